-- Migrates the records from version 1 to 2. Earlier builds have no SHA-256 and are built again
-- on request.
ALTER TABLE upload ADD COLUMN sha256 BLOB;
ALTER TABLE upload ADD COLUMN key BLOB;
ALTER TABLE build ADD COLUMN sha256 BLOB;
ALTER TABLE build ADD COLUMN key BLOB;
DROP INDEX build_cache;
CREATE INDEX build_cache ON build (sha256, org) WHERE status = 'success';
PRAGMA user_version = 2;
