-- A key that an admin's key made outlives it. Who made each is kept, so that whoever revokes one sees what it leaves.
ALTER TABLE access_key ADD COLUMN made_by TEXT; -- the hash of a key, or 'owner'; NULL: made before this was kept
