-- Who sends a reply writes to its row under the number of the claim: an earlier claimer's late write changes nothing.
ALTER TABLE outbox ADD COLUMN claim BIGINT; -- made anew by each claim; NULL when none was made, or its process died
UPDATE outbox SET claim=id WHERE ended_at IS NULL AND state IN ('sending','open');
