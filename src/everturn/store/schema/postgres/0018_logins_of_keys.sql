-- A browser that was let in by a key has that key's rights, and is out when the key is.
ALTER TABLE login ADD COLUMN key_hash TEXT; -- the key that made it; NULL: the owner did
ALTER TABLE visit ADD COLUMN key_hash TEXT; -- the same
-- Which of those there are came from a key cannot be told. Where a key could make them they end; the owner logs in again.
DELETE FROM login WHERE EXISTS (SELECT 1 FROM access_key WHERE scopes LIKE '%admin%');
DELETE FROM visit WHERE EXISTS (SELECT 1 FROM access_key WHERE scopes LIKE '%admin%');
