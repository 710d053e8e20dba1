-- Machines' clocks differ: whether a heartbeat is stale is judged by the database's clock alone.
ALTER TABLE instance ADD COLUMN alive_at REAL; -- the last heartbeat by that clock
