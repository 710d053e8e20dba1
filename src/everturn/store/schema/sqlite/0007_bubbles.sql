-- Answers that are shown while they grow.
ALTER TABLE outbox ADD COLUMN bubble TEXT; -- what is known of its screen (JSON); NULL: it was never shown unfinished
