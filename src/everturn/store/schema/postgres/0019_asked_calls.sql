-- A model call that a death cut off was probably paid for: what it was expected to use is counted.
ALTER TABLE turn ADD COLUMN asked_requests INTEGER NOT NULL DEFAULT 0; -- 1 while a model call runs whose end is not stored
ALTER TABLE turn ADD COLUMN asked_input BIGINT NOT NULL DEFAULT 0; -- what it is expected to use
ALTER TABLE turn ADD COLUMN asked_output BIGINT NOT NULL DEFAULT 0;
ALTER TABLE turn ADD COLUMN asked_cost DOUBLE PRECISION;
