-- How a row of the transcript ended, where it did not end as it should: an answer that was stopped, a call that failed.
ALTER TABLE message ADD COLUMN outcome TEXT; -- 'stopped', 'failed', 'skipped' (see model.RowOutcome); NULL: it is whole
