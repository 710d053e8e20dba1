-- Replies that may or may not be out, where their chat is asked what to do.
ALTER TABLE outbox ADD COLUMN asked_at REAL; -- when its chat was asked whether it shall be sent again
