-- The core's tables. Rows are appended at the right edge (ids grow with time) and have one index each: several times
-- faster here than tables clustered by session. Indexes of what is still open are partial, so they stay small for ever.
CREATE TABLE instance (
  number INTEGER PRIMARY KEY, token TEXT NOT NULL UNIQUE, host TEXT NOT NULL, pid INTEGER NOT NULL,
  started_at REAL NOT NULL, heartbeat_at REAL NOT NULL, held INTEGER NOT NULL DEFAULT 0,
  found_unclean INTEGER NOT NULL DEFAULT 0,
  drain_kind TEXT, drain_reason TEXT, drain_at REAL, ended_at REAL, ended TEXT
);
CREATE INDEX instance_open ON instance(number) WHERE ended_at IS NULL;
CREATE TABLE entry (
  id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, session_id TEXT UNIQUE,
  state TEXT NOT NULL DEFAULT 'active', reason TEXT, marked_at REAL, unclean_ends INTEGER NOT NULL DEFAULT 0,
  tail INTEGER NOT NULL DEFAULT 0, tail_key TEXT, tail_at REAL,
  previous_session_id TEXT, reset_reason TEXT, reset_had_activity INTEGER NOT NULL DEFAULT 0, expired TEXT,
  origin TEXT, created_at REAL NOT NULL, active_at REAL NOT NULL,
  fence INTEGER NOT NULL DEFAULT 0, holder INTEGER, turn INTEGER,
  seq INTEGER NOT NULL DEFAULT 0, event_seq INTEGER NOT NULL DEFAULT 0, turns INTEGER NOT NULL DEFAULT 0,
  waiting INTEGER NOT NULL DEFAULT 0, arrivals INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE session (
  id INTEGER PRIMARY KEY, session_id TEXT NOT NULL UNIQUE, key TEXT NOT NULL, parent TEXT,
  started_at REAL NOT NULL, ended_at REAL, end_reason TEXT, title TEXT, first_words TEXT, mark TEXT,
  messages INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX session_of_key ON session(key, id);
CREATE TABLE message (
  id INTEGER PRIMARY KEY, session_id TEXT NOT NULL, seq INTEGER NOT NULL, role TEXT NOT NULL, content TEXT NOT NULL,
  calls TEXT, call_id TEXT, unknown INTEGER NOT NULL DEFAULT 0, extra TEXT,
  turn INTEGER, attempt INTEGER NOT NULL DEFAULT 1, hidden INTEGER NOT NULL DEFAULT 0, at REAL NOT NULL
);
CREATE UNIQUE INDEX message_of_session ON message(session_id, seq);
CREATE TABLE inbox (
  id INTEGER PRIMARY KEY, ext_id TEXT NOT NULL, platform TEXT NOT NULL, account TEXT NOT NULL,
  key TEXT NOT NULL, kind TEXT NOT NULL, source TEXT NOT NULL, body TEXT NOT NULL,
  state TEXT NOT NULL, place INTEGER NOT NULL, turn INTEGER, why TEXT, accepted_at REAL NOT NULL, ended_at REAL
);
CREATE UNIQUE INDEX inbox_once ON inbox(ext_id, platform, account);
CREATE INDEX inbox_open ON inbox(key, place) WHERE ended_at IS NULL;
CREATE TABLE cursor (
  platform TEXT NOT NULL, account TEXT NOT NULL, value TEXT NOT NULL, at REAL NOT NULL,
  PRIMARY KEY (platform, account)
) WITHOUT ROWID;
CREATE TABLE turn (
  id INTEGER PRIMARY KEY, key TEXT NOT NULL, session_id TEXT NOT NULL, state TEXT NOT NULL,
  attempt INTEGER NOT NULL DEFAULT 1, instance INTEGER, called INTEGER NOT NULL DEFAULT 0,
  proven INTEGER NOT NULL DEFAULT 0, first_seq INTEGER NOT NULL DEFAULT 1, verdict TEXT, note TEXT, reason TEXT, marked_at REAL, told_at REAL,
  started_at REAL NOT NULL, attempt_at REAL NOT NULL, ended_at REAL, why TEXT
);
CREATE INDEX turn_open ON turn(instance, id) WHERE ended_at IS NULL;
CREATE TABLE attempt (
  turn INTEGER NOT NULL, attempt INTEGER NOT NULL, instance INTEGER, note TEXT,
  started_at REAL NOT NULL, ended_at REAL NOT NULL, why TEXT NOT NULL,
  PRIMARY KEY (turn, attempt)
) WITHOUT ROWID;
CREATE TABLE effect (
  turn INTEGER NOT NULL, call_id TEXT NOT NULL, name TEXT NOT NULL, effect TEXT NOT NULL, state TEXT NOT NULL,
  attempt INTEGER NOT NULL, begun_at REAL NOT NULL, done_at REAL,
  PRIMARY KEY (turn, call_id)
) WITHOUT ROWID;
CREATE TABLE outbox (
  id INTEGER PRIMARY KEY, key TEXT NOT NULL, turn INTEGER, kind TEXT NOT NULL, platform TEXT NOT NULL,
  source TEXT NOT NULL, text TEXT NOT NULL, state TEXT NOT NULL, attempts INTEGER NOT NULL DEFAULT 0,
  due_at REAL NOT NULL, valid_until REAL, instance INTEGER, parts TEXT NOT NULL DEFAULT '[]',
  marked INTEGER NOT NULL DEFAULT 0, look INTEGER NOT NULL DEFAULT 0, error TEXT,
  created_at REAL NOT NULL, ended_at REAL
);
CREATE INDEX outbox_open ON outbox(key, id) WHERE ended_at IS NULL;
CREATE TABLE event (
  id INTEGER PRIMARY KEY, key TEXT NOT NULL, seq INTEGER NOT NULL, kind TEXT NOT NULL, data TEXT NOT NULL, at REAL NOT NULL
);
CREATE UNIQUE INDEX event_of_key ON event(key, seq);
