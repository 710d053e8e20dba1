-- What an operator sees and does: dead letters that nobody put away, actions, recoveries, when accounts were last heard.
-- `dead_at` is set while a dead letter waits for somebody: rows that live and end well are in neither index.
ALTER TABLE inbox ADD COLUMN dead_at DOUBLE PRECISION;
UPDATE inbox SET dead_at=ended_at WHERE state='dead';
CREATE INDEX inbox_dead ON inbox(id) WHERE dead_at IS NOT NULL;
ALTER TABLE outbox ADD COLUMN dead_at DOUBLE PRECISION;
UPDATE outbox SET dead_at=ended_at WHERE state='dead';
CREATE INDEX outbox_dead ON outbox(id) WHERE dead_at IS NOT NULL;
CREATE INDEX entry_marked ON entry(state, id) WHERE state<>'active';
CREATE INDEX turn_long ON turn(ended_at) WHERE ended_at-started_at>3600; -- those that their id does not find by time
CREATE INDEX attempt_ended ON attempt(ended_at);
CREATE INDEX attempt_of_life ON attempt(instance);
CREATE TABLE action ( -- what an operator did, by the id that the client gave it: asked again it says the same
  id TEXT NOT NULL PRIMARY KEY, action TEXT NOT NULL, target TEXT NOT NULL, who TEXT NOT NULL, key TEXT NOT NULL,
  said TEXT NOT NULL, stopped BIGINT, at DOUBLE PRECISION NOT NULL
);
CREATE INDEX action_at ON action(at);
CREATE TABLE recovery ( -- a life whose work another one took up
  life BIGINT PRIMARY KEY, ended TEXT NOT NULL, died_at DOUBLE PRECISION NOT NULL, found_by BIGINT NOT NULL, found_at DOUBLE PRECISION NOT NULL,
  ready_at DOUBLE PRECISION, continued BIGINT NOT NULL, suspended BIGINT NOT NULL, returned BIGINT NOT NULL
);
CREATE TABLE contact ( -- when an account of a platform was last proven to receive and to send, to the minute
  platform TEXT NOT NULL, account TEXT NOT NULL, received_at DOUBLE PRECISION, sent_at DOUBLE PRECISION,
  PRIMARY KEY (platform, account)
);
