-- Records of the cloud service on several machines, version 1. Times are milliseconds since 1970 by
-- the clock of this database, sizes are bytes, ids are UUIDs as text.

CREATE FUNCTION now_ms() RETURNS BIGINT LANGUAGE sql VOLATILE AS
    $$ SELECT (extract(epoch FROM clock_timestamp()) * 1000)::BIGINT $$;

CREATE TABLE api_key (
    sha256     BYTEA PRIMARY KEY,
    id         TEXT NOT NULL UNIQUE,    -- the first 8 hex digits of the digest
    type       TEXT NOT NULL,
    org        TEXT NOT NULL,
    name       TEXT,
    created_ms BIGINT NOT NULL
);

-- `regions`: the JSON of the file of regions.
CREATE TABLE setting (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
);

-- Inserted with the grant. `etag` and what follows it describe the archive of the first build, and are
-- all set or all null. `key` is the SHA-256 of the requesting key.
CREATE TABLE upload (
    id         TEXT COLLATE "C" PRIMARY KEY,
    org        TEXT NOT NULL,
    region     TEXT NOT NULL,
    expires_ms BIGINT NOT NULL,
    ended_ms   BIGINT,                  -- when the last of its builds ended
    key        BYTEA,
    etag       TEXT,
    size       BIGINT,
    md5        BYTEA,
    sha256     BYTEA
);

-- `seq` is the order of insertion. `lease` is set while a worker has the build. Neither it nor
-- `attempt` has an index, so that a renewal stays in its page.
CREATE TABLE build (
    seq          BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id           TEXT COLLATE "C" NOT NULL UNIQUE,
    org          TEXT NOT NULL,
    upload       TEXT COLLATE "C" NOT NULL,
    region       TEXT NOT NULL,
    hash         TEXT NOT NULL,
    file         TEXT NOT NULL,
    size         BIGINT NOT NULL,
    base         TEXT NOT NULL,
    status       TEXT NOT NULL,
    attempt      INTEGER NOT NULL,
    lease        TIMESTAMPTZ,
    created_ms   BIGINT NOT NULL,
    updated_ms   BIGINT NOT NULL,
    started_ms   BIGINT,
    completed_ms BIGINT,
    image_uri    TEXT,                  -- where the command put the image,
    image_name   TEXT,                  -- or the name of the object that the service keeps
    image_size   BIGINT,
    error        TEXT,
    sha256       BYTEA,                 -- of the archive; null in what an old service on one machine made
    key          BYTEA
) WITH (fillfactor = 80);

CREATE INDEX build_org ON build (org, seq);
CREATE INDEX build_cache ON build (sha256, org) WHERE status = 'success';
CREATE INDEX build_queue ON build (seq) WHERE status IN ('pending', 'building');
-- A repeated request for a build that has not ended finds that one.
CREATE UNIQUE INDEX build_once ON build (upload, file) WHERE status IN ('pending', 'building');
CREATE INDEX build_ended ON build (completed_ms) WHERE completed_ms IS NOT NULL;

-- The log of a build in pieces; `start` is the offset of the first byte.
CREATE TABLE build_log (
    build TEXT COLLATE "C" NOT NULL REFERENCES build (id) ON DELETE CASCADE,
    start BIGINT NOT NULL,
    data  BYTEA NOT NULL,
    PRIMARY KEY (build, start)
);
