-- Who may enter over HTTP, and the conversations of the page. Secrets are kept as their SHA-256 only.
CREATE TABLE access_key (
  hash TEXT NOT NULL PRIMARY KEY, name TEXT NOT NULL, prefix TEXT NOT NULL, scopes TEXT NOT NULL,
  made_at DOUBLE PRECISION NOT NULL, used_at DOUBLE PRECISION, revoked_at DOUBLE PRECISION
);
CREATE UNIQUE INDEX access_key_name ON access_key(name) WHERE revoked_at IS NULL;
CREATE TABLE login (
  hash TEXT NOT NULL PRIMARY KEY, made_at DOUBLE PRECISION NOT NULL, expires_at DOUBLE PRECISION NOT NULL, used_at DOUBLE PRECISION, visit TEXT
);
CREATE TABLE visit (
  hash TEXT NOT NULL PRIMARY KEY, browser TEXT NOT NULL, made_at DOUBLE PRECISION NOT NULL, expires_at DOUBLE PRECISION NOT NULL
);
CREATE TABLE conversation (
  key TEXT NOT NULL PRIMARY KEY, chat TEXT NOT NULL, made_at DOUBLE PRECISION NOT NULL
);
