-- An operation that runs twice finds what its first run wrote by a number of its own, not by its time.
ALTER TABLE event ADD COLUMN operation INTEGER; -- a message, a turn's beginning or a notice that told it, or the fence of a turn that ended; negative: a command that ended
ALTER TABLE turn ADD COLUMN ended_by INTEGER; -- the message or the next turn that ended it; NULL: itself, or nobody who asks later
ALTER TABLE inbox ADD COLUMN ended_by TEXT; -- of a command: the run that applied it, by the session id that was made for it
