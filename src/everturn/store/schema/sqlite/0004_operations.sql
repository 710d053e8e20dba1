-- What an operator sees and does: dead letters that nobody put away, actions, recoveries, when accounts were last heard.
-- `dead_at` is set while a dead letter waits for somebody: rows that live and end well are in neither index.
ALTER TABLE inbox ADD COLUMN dead_at REAL;
UPDATE inbox SET dead_at=ended_at WHERE state='dead';
CREATE INDEX inbox_dead ON inbox(id) WHERE dead_at IS NOT NULL;
ALTER TABLE outbox ADD COLUMN dead_at REAL;
UPDATE outbox SET dead_at=ended_at WHERE state='dead';
CREATE INDEX outbox_dead ON outbox(id) WHERE dead_at IS NOT NULL;
CREATE INDEX entry_marked ON entry(state, id) WHERE state<>'active';
CREATE INDEX turn_long ON turn(ended_at) WHERE ended_at-started_at>3600; -- those that their id does not find by time
CREATE INDEX attempt_ended ON attempt(ended_at);
CREATE INDEX attempt_of_life ON attempt(instance);
CREATE TABLE action ( -- what an operator did, by the id that the client gave it: asked again it says the same
  id TEXT NOT NULL PRIMARY KEY, action TEXT NOT NULL, target TEXT NOT NULL, who TEXT NOT NULL, key TEXT NOT NULL,
  said TEXT NOT NULL, stopped INTEGER, at REAL NOT NULL
) WITHOUT ROWID;
CREATE INDEX action_at ON action(at);
CREATE TABLE recovery ( -- a life whose work another one took up
  life INTEGER PRIMARY KEY, ended TEXT NOT NULL, died_at REAL NOT NULL, found_by INTEGER NOT NULL, found_at REAL NOT NULL,
  ready_at REAL, continued INTEGER NOT NULL, suspended INTEGER NOT NULL, returned INTEGER NOT NULL
);
CREATE TABLE contact ( -- when an account of a platform was last proven to receive and to send, to the minute
  platform TEXT NOT NULL, account TEXT NOT NULL, received_at REAL, sent_at REAL,
  PRIMARY KEY (platform, account)
) WITHOUT ROWID;
