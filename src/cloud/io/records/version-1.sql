-- The schema of version 1, for the migration test. Times are milliseconds since 1970, sizes are
-- bytes, ids are UUIDs as text.

-- Inserted with the grant. `size`, `md5`, `inode` and `modified_ns` are all set or all null.
CREATE TABLE upload (
    id          TEXT PRIMARY KEY,
    org         TEXT NOT NULL,
    region      TEXT NOT NULL,
    expires_ms  INTEGER NOT NULL,
    sealed      INTEGER NOT NULL,   -- 1: a build was made of it
    ended_ms    INTEGER,            -- when the last of its builds ended
    size        INTEGER,
    md5         BLOB,
    inode       INTEGER,
    modified_ns INTEGER
) WITHOUT ROWID;

-- `seq` is the order of insertion, which clocks cannot change.
CREATE TABLE build (
    seq          INTEGER PRIMARY KEY AUTOINCREMENT,
    id           TEXT NOT NULL UNIQUE,
    org          TEXT NOT NULL,
    upload       TEXT NOT NULL,
    region       TEXT NOT NULL,
    hash         TEXT NOT NULL,
    file         TEXT NOT NULL,
    size         INTEGER NOT NULL,
    base         TEXT NOT NULL,
    status       TEXT NOT NULL,
    attempt      INTEGER NOT NULL,
    created_ms   INTEGER NOT NULL,
    updated_ms   INTEGER NOT NULL,
    started_ms   INTEGER,
    completed_ms INTEGER,
    image_uri    TEXT,              -- where the command put the image,
    image_name   TEXT,              -- or the name of the file that the service keeps
    image_size   INTEGER,
    error        TEXT
);

CREATE INDEX build_org ON build (org, seq);
CREATE INDEX build_cache ON build (hash, org) WHERE status = 'success';
CREATE INDEX build_open ON build (upload) WHERE status IN ('pending', 'building');
CREATE INDEX build_ended ON build (completed_ms) WHERE completed_ms IS NOT NULL;

PRAGMA application_id = 1163019075;  -- "ERCC"
PRAGMA user_version = 1;
