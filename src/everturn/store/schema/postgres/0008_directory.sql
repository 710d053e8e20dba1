-- Where people talk: what platforms and conversations say of it, and the names that the owner gave.
CREATE TABLE channel ( -- a chat, or a thread in one, as it was last seen; thread_id is empty for the chat itself
  platform TEXT NOT NULL, account TEXT NOT NULL, chat_id TEXT NOT NULL, thread_id TEXT NOT NULL,
  chat_type TEXT NOT NULL, name TEXT NOT NULL, parent TEXT NOT NULL, person TEXT NOT NULL, seen_at DOUBLE PRECISION NOT NULL,
  PRIMARY KEY (platform, account, chat_id, thread_id)
);
CREATE INDEX channel_seen ON channel(seen_at);
CREATE TABLE alias (
  name TEXT NOT NULL PRIMARY KEY, platform TEXT NOT NULL, chat_id TEXT NOT NULL, thread_id TEXT NOT NULL, at DOUBLE PRECISION NOT NULL
);
CREATE TABLE look ( -- when somebody last looked something up for all replicas
  what TEXT NOT NULL PRIMARY KEY, at DOUBLE PRECISION NOT NULL, before DOUBLE PRECISION NOT NULL
);
