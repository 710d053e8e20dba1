-- Whether a message of an album was said to us: then all of them were.
CREATE INDEX inbox_album ON inbox(key, album) WHERE album IS NOT NULL;
