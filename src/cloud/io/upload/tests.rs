//! Tests of uploads with simulated bodies, on a real folder.

use std::collections::VecDeque;
use std::fs;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Mutex;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::Request;
use hyper::body::{Frame, SizeHint};
use rustix::io::Errno;
use tokio::time::Instant;

use super::*;
use crate::io::archives::ArchiveStore as _;
use crate::io::records::SqliteRecords;
use crate::proto::build::Build;
use crate::proto::keys::{self, KeyKind, StoredKey};
use crate::proto::sign::SigningKey;
use edge_runner_http::common::lock;
use edge_runner_proto::config::Secret;

/// A body in pieces with delays; each piece is polled twice, as from a network.
struct ChunkedReader {
    pieces: VecDeque<(Duration, Bytes)>,
    sleep: Option<Pin<Box<tokio::time::Sleep>>>,
    declared: Option<u64>,
    breaks_off: bool,
}

impl ChunkedReader {
    fn new(body: &[u8], piece: usize) -> ChunkedReader {
        let pieces = body
            .chunks(piece)
            .map(|piece| (Duration::ZERO, Bytes::copy_from_slice(piece)));
        ChunkedReader {
            pieces: pieces.collect(),
            sleep: None,
            declared: None,
            breaks_off: false,
        }
    }
}

impl Body for ChunkedReader {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let Some((wait, _)) = self.pieces.front() else {
            let broken = std::mem::take(&mut self.breaks_off);
            return Poll::Ready(broken.then(|| Err(io::ErrorKind::ConnectionReset.into())));
        };
        let wait = *wait;
        match &mut self.sleep {
            None => {
                self.sleep = Some(Box::pin(tokio::time::sleep(wait)));
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            Some(sleep) => std::task::ready!(sleep.as_mut().poll(cx)),
        }
        self.sleep = None;
        let piece = self.pieces.pop_front().map(|(_, piece)| Ok(Frame::data(piece)));
        Poll::Ready(piece)
    }

    fn size_hint(&self) -> SizeHint {
        self.declared.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

/// An upload service on a temporary folder.
struct UploadFixture {
    path: PathBuf,
    uploads: Arc<UploadService>,
}

const SIZE_MAX: u64 = 1_000_000;
const KEY: &str = "sk_0123456789abcdef";

impl UploadFixture {
    fn new() -> UploadFixture {
        UploadFixture::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut UploadService)) -> UploadFixture {
        let path = std::env::temp_dir().join(format!("edge-runner-{}", Uuid::v4(random())));
        let keys = KeyStore::new(&path, Vec::new());
        let mut uploads = UploadService {
            folder: Arc::new(ArchiveDir::open(&path).expect("a folder")),
            records: Arc::new(SqliteRecords::open(&path).expect("records")),
            upload_locks: Arc::default(),
            keys: Arc::new(keys),
            signing: GrantSigner::Fixed(SigningKey {
                id: "SK1".into(),
                secret: b"secret".to_vec(),
            }),
            data_dir: path.clone(),
            size_max: SIZE_MAX,
            grant_ms: 900_000,
            free_min: 0,
            permits: Arc::new(Semaphore::new(4)),
        };
        change(&mut uploads);
        UploadFixture::set_keys(&path, true);
        UploadFixture {
            path,
            uploads: Arc::new(uploads),
        }
    }

    async fn grant(&self) -> UploadGrant {
        self.grant_to(&self.holder()).await
    }

    async fn grant_to(&self, holder: &KeyHolder) -> UploadGrant {
        let url = "http://h/build-contexts".into();
        self.uploads
            .grant(holder, &name("us-west"), url)
            .await
            .expect("a grant")
    }

    /// Returns the owner of the key from [`UploadFixture::set_keys`].
    fn holder(&self) -> KeyHolder {
        let keys = &self.uploads.keys;
        keys.find(KEY).expect("readable").expect("it is one")
    }

    /// Writes the key file, with or without the key.
    fn set_keys(path: &std::path::Path, has_one: bool) {
        let kept = StoredKey::new(&Secret::new(KEY), KeyKind::Private, name("org-7"), None, 0);
        let kept = if has_one { vec![kept] } else { Vec::new() };
        fs::write(path.join("keys.json"), keys::encode_file(&kept)).expect("a writable folder");
    }

    async fn take(&self, body: ChunkedReader) -> Result<StoredUpload, ApiError> {
        self.uploads.receive_form(&head(), body, &|_| true).await
    }

    fn parts(&self) -> usize {
        fs::read_dir(self.path.join("tmp")).expect("a folder").count()
    }

    fn archive(&self, grant: &UploadGrant) -> Option<Vec<u8>> {
        fs::read(self.path.join("archives").join(&grant.upload_fields.key)).ok()
    }

    fn recorded(&self, grant: &UploadGrant) -> UploadRecord {
        let id = Uuid::parse(&grant.upload_id).expect("a UUID");
        let recorded = self.uploads.records.upload(id).expect("readable");
        recorded.expect("it was granted")
    }
}

impl Drop for UploadFixture {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn name(text: &str) -> Slug {
    Slug::parse(text).expect("a name")
}

fn head() -> Parts {
    let request = Request::post("/build-contexts").header("content-type", "multipart/form-data; boundary=B");
    request.body(()).expect("a request").into_parts().0
}

fn form(grant: &UploadGrant, file: &[u8]) -> Vec<u8> {
    let fields = serde_json::to_value(&grant.upload_fields).expect("JSON");
    let mut body = Vec::new();
    let mut part = |name: &str, value: &[u8]| {
        let head = format!("--B\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n");
        body.extend([head.as_bytes(), value, b"\r\n"].concat());
    };
    for (name, value) in fields.as_object().expect("an object") {
        part(name, value.as_str().expect("text").as_bytes());
    }
    part("file", file);
    body.extend(b"--B--\r\n");
    body
}

/// Data with a gzip magic number and no repeating pattern.
fn archive(bytes: usize, seed: u8) -> Vec<u8> {
    let mut file = vec![0x1f, 0x8b];
    let mut state = u32::from(seed) + 1;
    file.resize_with(bytes, || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    });
    file
}

/// C-066 to C-069, I-08: the stored archive equals what was sent, however it was split, and is
/// recorded.
#[tokio::test]
async fn an_upload_is_stored_unchanged() {
    let fixture = UploadFixture::new();
    for (bytes, piece) in [(2, 1), (1_000, 7), (600_000, 4_096), (SIZE_MAX as usize, 700_000)] {
        let grant = fixture.grant().await;
        let file = archive(bytes, 1);
        let stored = fixture
            .take(ChunkedReader::new(&form(&grant, &file), piece))
            .await
            .expect("stored");
        assert_eq!(stored.key, grant.upload_fields.key);
        assert!(fixture.archive(&grant) == Some(file), "{bytes} in pieces of {piece}");
        let upload = fixture.recorded(&grant);
        let info = upload.info.expect("recorded");
        assert_eq!((info.size, info.md5), (bytes as u64, stored.md5));
        assert_eq!(fixture.uploads.folder.head(&upload).expect("readable"), Some(info));
        assert!(stored.etag().len() == 34 && stored.etag().starts_with('"'));
    }
    assert_eq!(fixture.parts(), 0);
    assert_eq!(fixture.uploads.permits.available_permits(), 4);
}

/// I-07: an upload ends after 60 s without a byte, but not after 59 s, however often.
#[tokio::test(start_paused = true)]
async fn a_stalled_upload_times_out() {
    let fixture = UploadFixture::new();
    let grant = fixture.grant().await;
    let body = form(&grant, &archive(1_000, 1));
    let mut slow = ChunkedReader::new(&body, 100);
    for (wait, _) in &mut slow.pieces {
        *wait = Duration::from_secs(59);
    }
    fixture.take(slow).await.expect("it went on all the time");
    assert!(fixture.archive(&grant).is_some());

    let phases = Mutex::new(Vec::new());
    for at in [0, 1, body.len() / 100 - 1] {
        let mut still = ChunkedReader::new(&body, 100);
        still.pieces[at].0 = Duration::from_secs(61);
        let began = Instant::now();
        let set_phase = |phase| {
            lock(&phases).push(phase);
            true
        };
        let refused = fixture
            .uploads
            .receive_form(&head(), still, &set_phase)
            .await
            .expect_err("it stood still");
        assert_eq!((refused.status, refused.code), (408, "RequestTimeout"));
        assert_eq!(began.elapsed().as_secs(), 60);
    }
    // Verified uploads are not evictable, others are.
    let phases = phases.into_inner().expect("no holder panics");
    assert_eq!(
        (phases[0], phases.last()),
        (ConnPhase::Receiving, Some(&ConnPhase::Upload))
    );
    gone(&fixture).await;
}

/// Waits until no partial archive is left.
async fn gone(fixture: &UploadFixture) {
    while fixture.parts() > 0 {
        spawn_blocking(std::thread::yield_now).await.expect("no panic");
    }
}

/// I-08: a disconnect at any moment leaves the old or the new archive, and no partial one.
#[tokio::test]
async fn a_dropped_upload_leaves_no_partial_archive() {
    let fixture = UploadFixture::new();
    let grant = fixture.grant().await;
    let (old, new) = (archive(500, 1), archive(600_000, 2));
    fixture
        .take(ChunkedReader::new(&form(&grant, &old), 500))
        .await
        .expect("stored");
    let body = form(&grant, &new);
    let mut polls = 0;
    loop {
        polls += 1;
        let mut left = polls;
        let mut upload = pin!(fixture.take(ChunkedReader::new(&body, 100_000)));
        let done = poll_fn(|cx| {
            if left == 0 {
                return Poll::Ready(false);
            }
            left -= 1;
            upload.as_mut().poll(cx).map(|stored| stored.is_ok())
        });
        let done = done.await;
        if done {
            break;
        }
    }
    assert!(polls > 10, "it waited {polls} times");
    gone(&fixture).await;
    assert!(fixture.archive(&grant) == Some(new));

    for polls in 1..polls {
        let grant = fixture.grant().await;
        fixture
            .take(ChunkedReader::new(&form(&grant, &old), 500))
            .await
            .expect("stored");
        let body = form(&grant, &archive(600_000, 2));
        {
            let mut left = polls;
            let mut upload = pin!(fixture.take(ChunkedReader::new(&body, 100_000)));
            poll_fn(|cx| {
                left -= 1;
                match left == 0 || upload.as_mut().poll(cx).is_ready() {
                    true => Poll::Ready(()),
                    false => Poll::Pending,
                }
            })
            .await;
        }
        gone(&fixture).await;
        let kept = fixture.archive(&grant).expect("the old one or the new one");
        assert!(kept.len() == 500 || kept.len() == 600_000, "{} bytes", kept.len());
    }
    assert_eq!(fixture.uploads.permits.available_permits(), 4);
}

/// I-06, I-08: each error comes before the rest of the body is read, and leaves the earlier
/// archive.
#[tokio::test]
async fn an_error_leaves_the_earlier_archive() {
    let fixture = UploadFixture::new();
    let grant = fixture.grant().await;
    let file = archive(500, 1);
    fixture
        .take(ChunkedReader::new(&form(&grant, &file), 500))
        .await
        .expect("stored");
    let mut wrong = grant.clone();
    wrong.upload_fields.signature = "0".repeat(64);
    let mut declared = ChunkedReader::new(&form(&grant, &file), 500);
    declared.declared = Some(SIZE_MAX + FRAME_BYTES_MAX as u64 + 1);
    let mut broken = ChunkedReader::new(&form(&grant, &file)[..2_000], 500);
    broken.breaks_off = true;
    for (body, code) in [
        (ChunkedReader::new(&form(&wrong, &file), 500), "SignatureDoesNotMatch"),
        (ChunkedReader::new(&form(&grant, b"PK"), 500), "InvalidArgument"),
        (ChunkedReader::new(&form(&grant, b""), 500), "EntityTooSmall"),
        (
            ChunkedReader::new(&form(&grant, &archive(SIZE_MAX as usize + 1, 1)), 9_999),
            "EntityTooLarge",
        ),
        (
            ChunkedReader::new(&form(&grant, &file)[..2_000], 500),
            "MalformedPOSTRequest",
        ),
        (declared, "EntityTooLarge"),
        (broken, "MalformedPOSTRequest"),
    ] {
        let refused = fixture.take(body).await.expect_err(code);
        assert_eq!(refused.code, code, "{}", refused.text);
        gone(&fixture).await;
        assert!(fixture.archive(&grant).as_ref() == Some(&file), "{code}");
    }
    let mut just_fits = ChunkedReader::new(&form(&grant, &file), 500);
    just_fits.declared = Some(SIZE_MAX + FRAME_BYTES_MAX as u64);
    fixture
        .take(just_fits)
        .await
        .expect("what a head says is no refusal of what fits");
    let no_form = Request::post("/").body(()).expect("a request").into_parts().0;
    let refused = fixture
        .uploads
        .receive_form(&no_form, ChunkedReader::new(b"", 1), &|_| true)
        .await;
    assert_eq!(refused.expect_err("no form").status, 412);
}

/// I-09: of two uploads with one grant the last to end wins; after a build none does.
#[tokio::test]
async fn the_last_upload_wins_until_a_build_is_created() {
    let fixture = UploadFixture::new();
    let grant = fixture.grant().await;
    let files = [archive(600_000, 1), archive(599_999, 2)];
    let bodies = files.each_ref().map(|file| form(&grant, file));
    let [first, second] = bodies
        .each_ref()
        .map(|body| fixture.take(ChunkedReader::new(body, 10_000)));
    let both = tokio::join!(first, second);
    assert!(both.0.is_ok() && both.1.is_ok());
    let kept = fixture.archive(&grant).expect("one of them");
    let info = fixture.recorded(&grant).info.expect("recorded");
    assert!(files.contains(&kept) && info.size == kept.len() as u64);

    // An upload waits while a build holds the lock, and is rejected then.
    let id = Uuid::parse(&grant.upload_id).expect("a UUID");
    let lock = fixture.uploads.upload_locks.lock(id).await;
    let late = form(&grant, &archive(500, 3));
    let mut late = pin!(fixture.take(ChunkedReader::new(&late, 10_000)));
    let mut is_written = false;
    while !is_written {
        let polled = poll_fn(|cx| Poll::Ready(late.as_mut().poll(cx))).await;
        assert!(polled.is_pending());
        is_written = fixture.parts() == 1;
        tokio::task::yield_now().await;
    }
    let build = Build::new(
        Uuid::v4(random()),
        &fixture.recorded(&grant),
        &info,
        "Dockerfile".into(),
        String::new(),
        1,
    );
    fixture.uploads.records.insert_build(&build).expect("space");
    drop(lock);
    assert_eq!(late.await.expect_err("sealed").code, "CONFLICT");
    let early = fixture
        .take(ChunkedReader::new(&form(&grant, b"PK"), 500))
        .await
        .expect_err("sealed");
    assert_eq!(
        (early.status, early.code),
        (409, "CONFLICT"),
        "before the file is looked at"
    );
    gone(&fixture).await;
    assert!(fixture.archive(&grant) == Some(kept));

    let (file, granted) = (archive(500, 1), fixture.grant().await);
    let id = Uuid::parse(&granted.upload_id).expect("a UUID");
    fixture.uploads.records.delete_upload(id).expect("space");
    let body = form(&granted, &file);
    let unknown = fixture.take(ChunkedReader::new(&body, 500)).await.expect_err("unknown");
    assert_eq!((unknown.status, unknown.code), (403, "AccessDenied"));
}

/// A grant ends with its key, before the file begins and at the last step; the earlier archive
/// stays. A grant of an older release, without a recorded key, stays valid until it expires.
#[tokio::test]
async fn a_grant_ends_with_its_key() {
    let fixture = UploadFixture::new();
    let (grant, other, old) = (fixture.grant().await, fixture.grant().await, fixture.grant().await);
    let kept = archive(700, 1);
    fixture
        .take(ChunkedReader::new(&form(&grant, &kept), 300))
        .await
        .expect("stored");
    let id = Uuid::parse(&old.upload_id).expect("a UUID");
    let unsigned = UploadRecord {
        key: None,
        ..fixture.recorded(&old)
    };
    fixture.uploads.records.delete_upload(id).expect("space");
    fixture.uploads.records.insert_upload(&unsigned).expect("space");

    // The first piece of this upload is already written.
    let long = form(&other, &archive(SIZE_MAX as usize - 5, 2));
    let mut long = pin!(fixture.take(ChunkedReader::new(&long, 100_000)));
    while fixture.parts() == 0 {
        let polled = poll_fn(|cx| Poll::Ready(long.as_mut().poll(cx))).await;
        assert!(polled.is_pending());
        tokio::task::yield_now().await;
    }
    UploadFixture::set_keys(&fixture.path, false);
    let late = long.await.expect_err("its key is revoked");
    assert_eq!((late.status, late.code), (403, "AccessDenied"));
    // This body never ends and is not waited for.
    let mut early = ChunkedReader::new(&form(&grant, &archive(700, 3)), 10_000);
    early.pieces.push_back((Duration::from_secs(3600), Bytes::new()));
    let early = fixture.take(early).await.expect_err("its key is revoked");
    assert_eq!((early.status, early.code), (403, "AccessDenied"));
    assert!(early.text.contains("revoked"), "{}", early.text);
    gone(&fixture).await;
    assert!(fixture.archive(&grant) == Some(kept) && fixture.archive(&other).is_none());
    fixture
        .take(ChunkedReader::new(&form(&old, &archive(9, 4)), 300))
        .await
        .expect("stored");

    // Without a usable key file nothing is accepted.
    fs::write(fixture.path.join("keys.json"), "{").expect("a writable folder");
    let unknown = fixture
        .take(ChunkedReader::new(&form(&grant, b""), 300))
        .await
        .expect_err("unknown");
    assert_eq!(unknown.status, 500);
    UploadFixture::set_keys(&fixture.path, true);
    fixture
        .take(ChunkedReader::new(&form(&grant, &archive(8, 5)), 300))
        .await
        .expect("stored");
}

/// An oversized declared length is rejected before the first read.
#[tokio::test]
async fn an_oversized_body_is_rejected_before_reading() {
    let fixture = UploadFixture::new();
    let longest = SIZE_MAX + FRAME_BYTES_MAX as u64;
    let grant = fixture.grant().await;
    let body = form(&grant, &archive(100, 1));
    let sent = |declared: u64| {
        let mut pieces = ChunkedReader::new(&body, 100);
        pieces.declared = Some(declared);
        pieces
    };
    let mut pieces = sent(longest + 1);
    // Reading would take an hour.
    pieces.pieces.push_front((Duration::from_secs(3600), Bytes::new()));
    let refused = fixture.take(pieces).await.expect_err("too long");
    assert_eq!((refused.status, refused.code), (400, "EntityTooLarge"));
    fixture.take(sent(longest)).await.expect("stored");
}

/// I-09: above `--max-uploads` an upload gets 503; unverified ones take no permit.
#[tokio::test]
async fn concurrent_uploads_are_limited() {
    let fixture = UploadFixture::with(|uploads| uploads.permits = Arc::new(Semaphore::new(1)));
    let grant = fixture.grant().await;
    let body = form(&grant, &archive(500, 1));
    let place = fixture.uploads.permits.clone().try_acquire_owned().expect("a place");
    let refused = fixture
        .take(ChunkedReader::new(&body, 100))
        .await
        .expect_err("no place");
    assert_eq!((refused.status, refused.code), (503, "SlowDown"));
    assert_eq!(refused.header, ErrorHeader::RetryAfterS(RETRY_AFTER_S));
    let mut forged = grant.clone();
    forged.upload_fields.signature = "0".repeat(64);
    let refused = fixture
        .take(ChunkedReader::new(&form(&forged, b""), 100))
        .await
        .expect_err("a forged signature");
    assert_eq!(refused.code, "SignatureDoesNotMatch");
    drop(place);
    fixture
        .take(ChunkedReader::new(&body, 100))
        .await
        .expect("a place is free");
}

/// I-21: no grant when disk space is low.
#[tokio::test]
async fn grants_need_space() {
    let region = name("us-west");
    let fixture = UploadFixture::with(|uploads| uploads.free_min = u64::MAX);
    let refused = fixture
        .uploads
        .grant(&fixture.holder(), &region, String::new())
        .await
        .expect_err("full");
    assert_eq!((refused.status, refused.code), (503, "STORAGE_FULL"));
    assert_eq!(refused.header, ErrorHeader::RetryAfterS(RETRY_AFTER_S));
    let fixture = UploadFixture::with(|uploads| uploads.free_min = 1);
    assert!(
        fixture
            .uploads
            .grant(&fixture.holder(), &region, String::new())
            .await
            .is_ok()
    );
}

/// I-21: a full disk gives 507, any other error 500.
#[test]
fn a_full_disk_gives_507() {
    let of = |errno: Errno| write_error(errno.into());
    assert_eq!(
        (of(Errno::NOSPC).status, of(Errno::NOSPC).code),
        (507, "InsufficientStorage")
    );
    assert_eq!(of(Errno::DQUOT).status, 507);
    assert!(of(Errno::IO).is_internal());
    assert_eq!(record_error(RecordError::Full).status, 507);
    assert!(record_error(RecordError::Broken("locked".into())).is_internal());
}

/// I-08, I-21: a stored archive is a success even if it cannot be recorded; the next access hashes
/// it.
#[tokio::test]
async fn a_stored_archive_is_a_success() {
    let records = Arc::new(Mutex::new(None));
    let fixture = UploadFixture::with(|uploads| {
        let full = Arc::new(SqliteRecords::open(&uploads.data_dir).expect("records"));
        *lock(&records) = Some(full.clone());
        uploads.records = full;
    });
    let records = lock(&records).take().expect("records");
    let grant = fixture.grant().await;
    let full = "CREATE TRIGGER full BEFORE UPDATE ON upload BEGIN SELECT RAISE(ABORT, 'no space'); END";
    let mut known = None;
    for (n, sql) in [full, "DROP TRIGGER full", full].into_iter().enumerate() {
        records.ask(sql);
        let file = archive(500 + n, 1);
        let stored = fixture
            .take(ChunkedReader::new(&form(&grant, &file), 100))
            .await
            .expect("stored");
        let upload = fixture.recorded(&grant);
        if sql == full {
            assert_eq!(upload.info, known, "nothing new is recorded");
        }
        let found = fixture.uploads.folder.head(&upload).expect("readable").expect("there");
        assert_eq!((found.size, found.md5), (file.len() as u64, stored.md5));
        assert!(fixture.archive(&grant) == Some(file));
        known = upload.info;
    }
    assert!(known.is_some());
}
