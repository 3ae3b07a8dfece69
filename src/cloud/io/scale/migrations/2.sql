-- Version 2.

-- `given_back`: attempts that a stop of their worker in order has ended, which do not count against
-- `--max-attempts`. `log_size`: bytes of the object that has the log of an ended build, which then
-- has no row in `build_log`.
ALTER TABLE build ADD COLUMN given_back INTEGER NOT NULL DEFAULT 0, ADD COLUMN log_size BIGINT;

-- When logs of ended builds begin to become objects. Replicas of the release before, which do not
-- find them there, have been replaced by then.
INSERT INTO setting (name, value) VALUES ('log_objects_from_ms', now_ms() + 86400000);
