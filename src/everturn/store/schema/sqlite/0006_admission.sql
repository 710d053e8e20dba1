-- Who may speak on chat platforms, what is said of their messages later, and which process owns which credential.
CREATE TABLE person ( -- one row for each id of somebody whom the owner let in or turned out
  platform TEXT NOT NULL, id TEXT NOT NULL, who TEXT NOT NULL, state TEXT NOT NULL, owner INTEGER NOT NULL DEFAULT 0,
  name TEXT, at REAL NOT NULL,
  PRIMARY KEY (platform, id)
) WITHOUT ROWID;
CREATE TABLE pairing ( -- somebody unknown asked to be let in; of their code only a salted hash is kept
  id INTEGER PRIMARY KEY, platform TEXT NOT NULL, person TEXT NOT NULL, alias TEXT, name TEXT, key TEXT NOT NULL,
  source TEXT NOT NULL, salt TEXT NOT NULL, hash TEXT NOT NULL, asked_at REAL NOT NULL, expires_at REAL NOT NULL,
  ended_at REAL, ended TEXT
);
CREATE INDEX pairing_asked ON pairing(platform, asked_at);
CREATE TABLE pairing_lock ( -- wrong codes in a row
  platform TEXT NOT NULL PRIMARY KEY, wrong INTEGER NOT NULL DEFAULT 0, wrong_at REAL, locked_until REAL NOT NULL DEFAULT 0
) WITHOUT ROWID;
ALTER TABLE inbox ADD COLUMN edited_at REAL; -- its author changed its words while it waited
ALTER TABLE inbox ADD COLUMN held TEXT; -- it came while nobody read: backlog, then asked; NULL when it may begin a turn
CREATE INDEX inbox_held ON inbox(key) WHERE held IS NOT NULL AND ended_at IS NULL;
ALTER TABLE entry ADD COLUMN backlog_told INTEGER; -- the instance that said here that old messages are not answered
CREATE TABLE credential ( -- which instance uses a platform's secret, known by its hash
  hash TEXT NOT NULL PRIMARY KEY, platform TEXT NOT NULL, account TEXT NOT NULL, instance INTEGER NOT NULL,
  host TEXT NOT NULL, pid INTEGER NOT NULL, home TEXT NOT NULL, since REAL NOT NULL
) WITHOUT ROWID;
