-- Files that come with messages and files that go out.
ALTER TABLE inbox ADD COLUMN attachments TEXT; -- files that came with it, by reference (JSON); NULL: none
ALTER TABLE inbox ADD COLUMN fetched TEXT; -- what became of them (JSON); NULL: they are not fetched yet
ALTER TABLE inbox ADD COLUMN seq BIGINT; -- of one with files: the transcript's row with its words
ALTER TABLE inbox ADD COLUMN album TEXT; -- messages of one album begin one turn
ALTER TABLE outbox ADD COLUMN file TEXT; -- what is sent, if it is a file (JSON): its text stands beneath it
CREATE TABLE description ( -- what a sticker shows, in words: asked of a model once
  platform TEXT NOT NULL, id TEXT NOT NULL, text TEXT NOT NULL, at DOUBLE PRECISION NOT NULL,
  PRIMARY KEY (platform, id)
);
