-- Makes version 2 of the records out of version 1. What was built before has no SHA-256, so it is built again when it is wanted.
ALTER TABLE upload ADD COLUMN sha256 BLOB;
ALTER TABLE upload ADD COLUMN key BLOB;
ALTER TABLE build ADD COLUMN sha256 BLOB;
ALTER TABLE build ADD COLUMN key BLOB;
DROP INDEX build_cache;
CREATE INDEX build_cache ON build (sha256, org) WHERE status = 'success';
PRAGMA user_version = 2;
