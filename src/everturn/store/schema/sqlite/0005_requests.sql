-- What a program asks in the OpenAI shape: more than words, and known again by all that was asked.
ALTER TABLE inbox ADD COLUMN brought TEXT; -- rows, instructions and functions that come with the words (JSON)
ALTER TABLE inbox ADD COLUMN fingerprint TEXT; -- of the whole request: its id with another one is a conflict
