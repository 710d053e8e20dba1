-- Chats that their platform gave another number: the conversation goes on under the first one.
CREATE TABLE moved_chat (
  platform TEXT NOT NULL, account TEXT NOT NULL, chat_id TEXT NOT NULL, was TEXT NOT NULL, at DOUBLE PRECISION NOT NULL,
  PRIMARY KEY (platform, account, chat_id)
);
