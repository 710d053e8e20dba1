-- An agent keeps what it made of a transcript's rows and reads only newer ones, as long as none of the rows that it knows was hidden or changed.
ALTER TABLE session ADD COLUMN revision INTEGER NOT NULL DEFAULT 0; -- how often rows of it were hidden or changed
