-- Edits may overtake each other on their way: what its author wrote last counts.
ALTER TABLE inbox ADD COLUMN edition BIGINT; -- which of its edits a message has the words of, as its platform numbers them
