-- A wrong code is counted once by the number of its try: two tries of one clock tick are two.
ALTER TABLE pairing_lock ADD COLUMN tried BIGINT; -- the number of the last wrong try; NULL: none since this is kept
