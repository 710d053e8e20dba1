-- Waits that a platform orders, and deaths of the gateway, are tries too, but no failed ones.
ALTER TABLE outbox ADD COLUMN failures INTEGER NOT NULL DEFAULT 0; -- of the attempts, those that failed
