-- What a real agent needs: frozen prompts, usage, approvals, spending, tool output, memories, what joins a running turn.
ALTER TABLE entry ADD COLUMN busy TEXT; -- what a message does while a turn runs, where /busy chose it
ALTER TABLE entry ADD COLUMN rolled_back TEXT; -- turns that were taken back, whose effects the next one is told (JSON)
ALTER TABLE entry ADD COLUMN model TEXT; -- what /model chose for its session, so that a turn need not look there
ALTER TABLE session ADD COLUMN frozen TEXT; -- the hash of its system prompt and tool schemas (table frozen)
ALTER TABLE session ADD COLUMN model TEXT; -- where /model chose it
ALTER TABLE session ADD COLUMN compact_after DOUBLE PRECISION; -- compaction failed: not again before this time
ALTER TABLE session ADD COLUMN compact_failures BIGINT NOT NULL DEFAULT 0;
ALTER TABLE session ADD COLUMN compact_wanted BIGINT NOT NULL DEFAULT 0; -- /compress: before the next model call
ALTER TABLE session ADD COLUMN requests BIGINT NOT NULL DEFAULT 0;
ALTER TABLE session ADD COLUMN input_tokens BIGINT NOT NULL DEFAULT 0;
ALTER TABLE session ADD COLUMN output_tokens BIGINT NOT NULL DEFAULT 0;
ALTER TABLE session ADD COLUMN cached_tokens BIGINT NOT NULL DEFAULT 0;
ALTER TABLE session ADD COLUMN cost DOUBLE PRECISION;
ALTER TABLE message ADD COLUMN author TEXT; -- who said it, where several people speak
ALTER TABLE inbox ADD COLUMN busy TEXT; -- what it does to a running turn, chosen when it was accepted
ALTER TABLE turn ADD COLUMN requests BIGINT NOT NULL DEFAULT 0;
ALTER TABLE turn ADD COLUMN input_tokens BIGINT NOT NULL DEFAULT 0;
ALTER TABLE turn ADD COLUMN output_tokens BIGINT NOT NULL DEFAULT 0;
ALTER TABLE turn ADD COLUMN cached_tokens BIGINT NOT NULL DEFAULT 0;
ALTER TABLE turn ADD COLUMN cost DOUBLE PRECISION;
ALTER TABLE turn ADD COLUMN planned_tokens BIGINT NOT NULL DEFAULT 0; -- counted before a call, settled with its step
ALTER TABLE turn ADD COLUMN planned_cost DOUBLE PRECISION NOT NULL DEFAULT 0;
ALTER TABLE turn ADD COLUMN planned_day TEXT; -- the day they were counted for, where a day has limits
ALTER TABLE turn ADD COLUMN planned_who TEXT; -- and for whom; NULL when nothing is planned
ALTER TABLE turn ADD COLUMN planned_call BIGINT; -- which call: an operation that runs twice counts it once
ALTER TABLE turn ADD COLUMN lost_tokens BIGINT NOT NULL DEFAULT 0; -- planned for calls whose end nobody saw: they stay counted
ALTER TABLE turn ADD COLUMN lost_cost DOUBLE PRECISION NOT NULL DEFAULT 0;
ALTER TABLE turn ADD COLUMN failures BIGINT NOT NULL DEFAULT 0; -- failed model calls since the last committed step
ALTER TABLE effect ADD COLUMN sent BIGINT; -- the message that this call made somebody owed: its outbox row
ALTER TABLE turn ADD COLUMN progress BIGINT; -- its progress notice in the outbox
CREATE TABLE frozen (hash TEXT NOT NULL PRIMARY KEY, text TEXT NOT NULL);
CREATE TABLE failure (
  turn BIGINT NOT NULL, number BIGINT NOT NULL, attempt BIGINT NOT NULL, kind TEXT NOT NULL, why TEXT NOT NULL,
  wait_s DOUBLE PRECISION NOT NULL, at DOUBLE PRECISION NOT NULL,
  PRIMARY KEY (turn, number)
);
CREATE TABLE approval (
  id BIGINT PRIMARY KEY, key TEXT NOT NULL, session_id TEXT NOT NULL, turn BIGINT NOT NULL, call_id TEXT NOT NULL, tool TEXT NOT NULL,
  question TEXT NOT NULL, person TEXT, state TEXT NOT NULL, asked_at DOUBLE PRECISION NOT NULL, expires_at DOUBLE PRECISION NOT NULL,
  answered_at DOUBLE PRECISION, answered_by TEXT, why TEXT
);
CREATE UNIQUE INDEX approval_of_call ON approval(turn, call_id);
CREATE INDEX approval_of_key ON approval(key, id);
CREATE INDEX approval_open ON approval(expires_at) WHERE answered_at IS NULL;
CREATE TABLE allowance (
  agent TEXT NOT NULL, tool TEXT NOT NULL, scope TEXT NOT NULL, granted_by TEXT, at DOUBLE PRECISION NOT NULL,
  PRIMARY KEY (agent, tool, scope)
);
CREATE TABLE spending (
  who TEXT NOT NULL, day TEXT NOT NULL, tokens BIGINT NOT NULL DEFAULT 0, cost DOUBLE PRECISION NOT NULL DEFAULT 0,
  PRIMARY KEY (who, day)
);
CREATE TABLE output (
  turn BIGINT NOT NULL, call_id TEXT NOT NULL, text TEXT NOT NULL, at DOUBLE PRECISION NOT NULL,
  PRIMARY KEY (turn, call_id)
);
CREATE TABLE memory (
  scope TEXT NOT NULL, name TEXT NOT NULL, text TEXT NOT NULL, at DOUBLE PRECISION NOT NULL,
  PRIMARY KEY (scope, name)
);
CREATE TABLE restart ( -- who asked for one with /restart, and is told when we are back
  id BIGINT PRIMARY KEY, instance BIGINT NOT NULL, key TEXT NOT NULL, source TEXT NOT NULL,
  asked_at DOUBLE PRECISION NOT NULL, told_at DOUBLE PRECISION
);
