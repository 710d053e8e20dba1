-- Columns and values get the names that everything else uses (ADR 66). Nothing changes its meaning.
ALTER TABLE instance RENAME COLUMN held TO locked;
ALTER TABLE inbox RENAME COLUMN held TO backlog;
ALTER TABLE inbox RENAME COLUMN brought TO extras;
ALTER TABLE approval RENAME COLUMN question TO request;
ALTER TABLE session RENAME COLUMN first_words TO first_text;
ALTER TABLE entry RENAME COLUMN backlog_told TO backlog_notice;
ALTER TABLE turn RENAME COLUMN told_at TO notice_at;
ALTER TABLE turn RENAME COLUMN planned_who TO planned_spender;
ALTER TABLE restart RENAME COLUMN told_at TO notice_at;
ALTER TABLE recovery RENAME COLUMN life TO instance;
ALTER TABLE action RENAME COLUMN who TO actor;
ALTER TABLE person RENAME COLUMN who TO main_id;
ALTER TABLE spending RENAME COLUMN who TO spender;
DROP INDEX attempt_of_life;
CREATE INDEX attempt_of_instance ON attempt(instance);
DROP INDEX inbox_held;
CREATE INDEX inbox_backlog ON inbox(key) WHERE backlog IS NOT NULL AND ended_at IS NULL;
UPDATE inbox SET state='queued' WHERE state='waiting';
UPDATE inbox SET backlog='collecting' WHERE backlog='backlog';
UPDATE inbox SET why=CASE why WHEN 'held' THEN 'suspended' WHEN 'asking' THEN 'awaiting_approval' ELSE 'backlog' END
WHERE why IN ('held', 'asking', 'away');
UPDATE turn SET state='awaiting_approval' WHERE state='waiting';
UPDATE outbox SET state=CASE state WHEN 'owed' THEN 'pending' ELSE 'unknown' END WHERE state IN ('owed', 'doubtful');
UPDATE outbox SET kind=CASE kind WHEN 'doubt' THEN 'delivery_request' ELSE 'approval_request' END
WHERE kind IN ('doubt', 'question');
UPDATE failure SET kind=CASE kind WHEN 'given_up' THEN 'dead' ELSE 'unknown' END
WHERE number<0 AND kind IN ('given_up', 'in_doubt');
UPDATE event SET data=replace(data, '"question":', '"request":') WHERE kind='approval';
UPDATE event SET data=replace(data, '"state":"waiting"', '"state":"awaiting_approval"') WHERE kind='turn';
UPDATE approval SET why='message' WHERE why='words';
UPDATE inbox SET attachments=replace(attachments, '"words":', '"text":') WHERE attachments IS NOT NULL;
