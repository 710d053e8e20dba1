-- Who may enter over HTTP, and the conversations of the page. Secrets are kept as their SHA-256 only.
CREATE TABLE access_key (
  hash TEXT NOT NULL PRIMARY KEY, name TEXT NOT NULL, prefix TEXT NOT NULL, scopes TEXT NOT NULL,
  made_at REAL NOT NULL, used_at REAL, revoked_at REAL
) WITHOUT ROWID;
CREATE UNIQUE INDEX access_key_name ON access_key(name) WHERE revoked_at IS NULL;
CREATE TABLE login (
  hash TEXT NOT NULL PRIMARY KEY, made_at REAL NOT NULL, expires_at REAL NOT NULL, used_at REAL, visit TEXT
) WITHOUT ROWID;
CREATE TABLE visit (
  hash TEXT NOT NULL PRIMARY KEY, browser TEXT NOT NULL, made_at REAL NOT NULL, expires_at REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE conversation (
  key TEXT NOT NULL PRIMARY KEY, chat TEXT NOT NULL, made_at REAL NOT NULL
) WITHOUT ROWID;
