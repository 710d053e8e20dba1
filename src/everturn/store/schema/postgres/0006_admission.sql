-- Who may speak on chat platforms, what is said of their messages later, and which process owns which credential.
CREATE TABLE person ( -- one row for each id of somebody whom the owner let in or turned out
  platform TEXT NOT NULL, id TEXT NOT NULL, who TEXT NOT NULL, state TEXT NOT NULL, owner BIGINT NOT NULL DEFAULT 0,
  name TEXT, at DOUBLE PRECISION NOT NULL,
  PRIMARY KEY (platform, id)
);
CREATE TABLE pairing ( -- somebody unknown asked to be let in; of their code only a salted hash is kept
  id BIGINT PRIMARY KEY, platform TEXT NOT NULL, person TEXT NOT NULL, alias TEXT, name TEXT, key TEXT NOT NULL,
  source TEXT NOT NULL, salt TEXT NOT NULL, hash TEXT NOT NULL, asked_at DOUBLE PRECISION NOT NULL, expires_at DOUBLE PRECISION NOT NULL,
  ended_at DOUBLE PRECISION, ended TEXT
);
CREATE INDEX pairing_asked ON pairing(platform, asked_at);
CREATE TABLE pairing_lock ( -- wrong codes in a row
  platform TEXT NOT NULL PRIMARY KEY, wrong BIGINT NOT NULL DEFAULT 0, wrong_at DOUBLE PRECISION, locked_until DOUBLE PRECISION NOT NULL DEFAULT 0
);
ALTER TABLE inbox ADD COLUMN edited_at DOUBLE PRECISION; -- its author changed its words while it waited
ALTER TABLE inbox ADD COLUMN held TEXT; -- it came while nobody read: backlog, then asked; NULL when it may begin a turn
CREATE INDEX inbox_held ON inbox(key) WHERE held IS NOT NULL AND ended_at IS NULL;
ALTER TABLE entry ADD COLUMN backlog_told BIGINT; -- the instance that said here that old messages are not answered
CREATE TABLE credential ( -- which instance uses a platform's secret, known by its hash
  hash TEXT NOT NULL PRIMARY KEY, platform TEXT NOT NULL, account TEXT NOT NULL, instance BIGINT NOT NULL,
  host TEXT NOT NULL, pid BIGINT NOT NULL, home TEXT NOT NULL, since DOUBLE PRECISION NOT NULL
);
