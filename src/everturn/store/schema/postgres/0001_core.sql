-- The core's tables. Rows are appended at the right edge (ids grow with time) and have one index each: several times
-- faster here than tables clustered by session. Indexes of what is still open are partial, so they stay small for ever.
CREATE TABLE instance (
  number BIGINT PRIMARY KEY, token TEXT NOT NULL UNIQUE, host TEXT NOT NULL, pid BIGINT NOT NULL,
  started_at DOUBLE PRECISION NOT NULL, heartbeat_at DOUBLE PRECISION NOT NULL, held BIGINT NOT NULL DEFAULT 0,
  found_unclean BIGINT NOT NULL DEFAULT 0,
  drain_kind TEXT, drain_reason TEXT, drain_at DOUBLE PRECISION, ended_at DOUBLE PRECISION, ended TEXT
);
CREATE INDEX instance_open ON instance(number) WHERE ended_at IS NULL;
CREATE TABLE entry (
  id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, key TEXT COLLATE "C" NOT NULL UNIQUE, session_id TEXT UNIQUE,
  state TEXT NOT NULL DEFAULT 'active', reason TEXT, marked_at DOUBLE PRECISION, unclean_ends BIGINT NOT NULL DEFAULT 0,
  tail BIGINT NOT NULL DEFAULT 0, tail_key TEXT, tail_at DOUBLE PRECISION,
  previous_session_id TEXT, reset_reason TEXT, reset_had_activity BIGINT NOT NULL DEFAULT 0, expired TEXT,
  origin TEXT, created_at DOUBLE PRECISION NOT NULL, active_at DOUBLE PRECISION NOT NULL,
  fence BIGINT NOT NULL DEFAULT 0, holder BIGINT, turn BIGINT,
  seq BIGINT NOT NULL DEFAULT 0, event_seq BIGINT NOT NULL DEFAULT 0, turns BIGINT NOT NULL DEFAULT 0,
  waiting BIGINT NOT NULL DEFAULT 0, arrivals BIGINT NOT NULL DEFAULT 0
);
CREATE TABLE session (
  id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, session_id TEXT NOT NULL UNIQUE, key TEXT NOT NULL, parent TEXT,
  started_at DOUBLE PRECISION NOT NULL, ended_at DOUBLE PRECISION, end_reason TEXT, title TEXT, first_words TEXT, mark TEXT,
  messages BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX session_of_key ON session(key, id);
CREATE TABLE message (
  id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, session_id TEXT NOT NULL, seq BIGINT NOT NULL, role TEXT NOT NULL, content TEXT NOT NULL,
  calls TEXT, call_id TEXT, unknown BIGINT NOT NULL DEFAULT 0, extra TEXT,
  turn BIGINT, attempt BIGINT NOT NULL DEFAULT 1, hidden BIGINT NOT NULL DEFAULT 0, at DOUBLE PRECISION NOT NULL
);
CREATE UNIQUE INDEX message_of_session ON message(session_id, seq);
CREATE TABLE inbox (
  id BIGINT PRIMARY KEY, ext_id TEXT COLLATE "C" NOT NULL, platform TEXT NOT NULL, account TEXT NOT NULL,
  key TEXT NOT NULL, kind TEXT NOT NULL, source TEXT NOT NULL, body TEXT NOT NULL,
  state TEXT NOT NULL, place BIGINT NOT NULL, turn BIGINT, why TEXT, accepted_at DOUBLE PRECISION NOT NULL, ended_at DOUBLE PRECISION
);
CREATE UNIQUE INDEX inbox_once ON inbox(ext_id, platform, account);
CREATE INDEX inbox_open ON inbox(key, place) WHERE ended_at IS NULL;
CREATE TABLE cursor (
  platform TEXT NOT NULL, account TEXT NOT NULL, value TEXT NOT NULL, at DOUBLE PRECISION NOT NULL,
  PRIMARY KEY (platform, account)
);
CREATE TABLE turn (
  id BIGINT PRIMARY KEY, key TEXT NOT NULL, session_id TEXT NOT NULL, state TEXT NOT NULL,
  attempt BIGINT NOT NULL DEFAULT 1, instance BIGINT, called BIGINT NOT NULL DEFAULT 0,
  proven BIGINT NOT NULL DEFAULT 0, first_seq BIGINT NOT NULL DEFAULT 1, verdict TEXT, note TEXT, reason TEXT, marked_at DOUBLE PRECISION, told_at DOUBLE PRECISION,
  started_at DOUBLE PRECISION NOT NULL, attempt_at DOUBLE PRECISION NOT NULL, ended_at DOUBLE PRECISION, why TEXT
);
CREATE INDEX turn_open ON turn(instance, id) WHERE ended_at IS NULL;
CREATE TABLE attempt (
  turn BIGINT NOT NULL, attempt BIGINT NOT NULL, instance BIGINT, note TEXT,
  started_at DOUBLE PRECISION NOT NULL, ended_at DOUBLE PRECISION NOT NULL, why TEXT NOT NULL,
  PRIMARY KEY (turn, attempt)
);
CREATE TABLE effect (
  turn BIGINT NOT NULL, call_id TEXT NOT NULL, name TEXT NOT NULL, effect TEXT NOT NULL, state TEXT NOT NULL,
  attempt BIGINT NOT NULL, begun_at DOUBLE PRECISION NOT NULL, done_at DOUBLE PRECISION,
  PRIMARY KEY (turn, call_id)
);
CREATE TABLE outbox (
  id BIGINT PRIMARY KEY, key TEXT NOT NULL, turn BIGINT, kind TEXT NOT NULL, platform TEXT NOT NULL,
  source TEXT NOT NULL, text TEXT NOT NULL, state TEXT NOT NULL, attempts BIGINT NOT NULL DEFAULT 0,
  due_at DOUBLE PRECISION NOT NULL, valid_until DOUBLE PRECISION, instance BIGINT, parts TEXT NOT NULL DEFAULT '[]',
  marked BIGINT NOT NULL DEFAULT 0, look BIGINT NOT NULL DEFAULT 0, error TEXT,
  created_at DOUBLE PRECISION NOT NULL, ended_at DOUBLE PRECISION
);
CREATE INDEX outbox_open ON outbox(key, id) WHERE ended_at IS NULL;
CREATE TABLE event (
  id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, key TEXT NOT NULL, seq BIGINT NOT NULL, kind TEXT NOT NULL, data TEXT NOT NULL, at DOUBLE PRECISION NOT NULL
);
CREATE UNIQUE INDEX event_of_key ON event(key, seq);
