-- Version 2: attempts that a stop of their worker in order has ended. They do not count against
-- `--max-attempts`.

ALTER TABLE build ADD COLUMN given_back INTEGER NOT NULL DEFAULT 0;
