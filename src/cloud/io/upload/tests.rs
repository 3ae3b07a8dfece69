//! UploadService whose body, clock and records are the test's; on a real folder.

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

/// A body in pieces, each after a wait; every piece is asked for twice, as from a network.
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

/// UploadService in a folder of their own.
struct BuildService {
    path: PathBuf,
    uploads: Arc<UploadService>,
}

const SIZE_MAX: u64 = 1_000_000;
const KEY: &str = "sk_0123456789abcdef";

impl BuildService {
    fn new() -> BuildService {
        BuildService::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut UploadService)) -> BuildService {
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
        BuildService::set_keys(&path, true);
        BuildService {
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

    /// Whoever has the key of [`BuildService::set_keys`].
    fn holder(&self) -> KeyHolder {
        let keys = &self.uploads.keys;
        keys.find(KEY).expect("readable").expect("it is one")
    }

    /// Writes the file of keys, with or without the one.
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

impl Drop for BuildService {
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

/// Something like a gzip file, which no byte pattern repeats.
fn archive(bytes: usize, seed: u8) -> Vec<u8> {
    let mut file = vec![0x1f, 0x8b];
    let mut state = u32::from(seed) + 1;
    file.resize_with(bytes, || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    });
    file
}

/// C-066 to C-069, I-08: what was sent is what is kept, wherever the network cut it, and it is recorded as it is.
#[tokio::test]
async fn what_was_sent_is_kept() {
    let house = BuildService::new();
    for (bytes, piece) in [(2, 1), (1_000, 7), (600_000, 4_096), (SIZE_MAX as usize, 700_000)] {
        let grant = house.grant().await;
        let file = archive(bytes, 1);
        let stored = house
            .take(ChunkedReader::new(&form(&grant, &file), piece))
            .await
            .expect("stored");
        assert_eq!(stored.key, grant.upload_fields.key);
        assert!(house.archive(&grant) == Some(file), "{bytes} in pieces of {piece}");
        let upload = house.recorded(&grant);
        let info = upload.info.expect("recorded");
        assert_eq!((info.size, info.md5), (bytes as u64, stored.md5));
        assert_eq!(house.uploads.folder.head(&upload).expect("readable"), Some(info));
        assert!(stored.etag().len() == 34 && stored.etag().starts_with('"'));
    }
    assert_eq!(house.parts(), 0);
    assert_eq!(house.uploads.permits.available_permits(), 4);
}

/// I-07: sixty seconds without a byte are the end, and fifty-nine are not, however often.
#[tokio::test(start_paused = true)]
async fn an_upload_that_stands_still_ends() {
    let house = BuildService::new();
    let grant = house.grant().await;
    let body = form(&grant, &archive(1_000, 1));
    let mut slow = ChunkedReader::new(&body, 100);
    for (wait, _) in &mut slow.pieces {
        *wait = Duration::from_secs(59);
    }
    house.take(slow).await.expect("it went on all the time");
    assert!(house.archive(&grant).is_some());

    let phases = Mutex::new(Vec::new());
    for at in [0, 1, body.len() / 100 - 1] {
        let mut still = ChunkedReader::new(&body, 100);
        still.pieces[at].0 = Duration::from_secs(61);
        let began = Instant::now();
        let set_phase = |phase| {
            lock(&phases).push(phase);
            true
        };
        let refused = house
            .uploads
            .receive_form(&head(), still, &set_phase)
            .await
            .expect_err("it stood still");
        assert_eq!((refused.status, refused.code), (408, "RequestTimeout"));
        assert_eq!(began.elapsed().as_secs(), 60);
    }
    // Nobody is pushed out who was verified, and whoever was not may be.
    let phases = phases.into_inner().expect("no holder panics");
    assert_eq!(
        (phases[0], phases.last()),
        (ConnPhase::Receiving, Some(&ConnPhase::Upload))
    );
    gone(&house).await;
}

/// Waits until no part is left: a thread that has one deletes it when it is done with it.
async fn gone(house: &BuildService) {
    while house.parts() > 0 {
        spawn_blocking(std::thread::yield_now).await.expect("no panic");
    }
}

/// I-08: whoever goes away, at any moment, leaves what was there before, or all of the new archive; and no part.
#[tokio::test]
async fn an_upload_that_is_dropped_leaves_no_part() {
    let house = BuildService::new();
    let grant = house.grant().await;
    let (old, new) = (archive(500, 1), archive(600_000, 2));
    house
        .take(ChunkedReader::new(&form(&grant, &old), 500))
        .await
        .expect("stored");
    let body = form(&grant, &new);
    let mut polls = 0;
    loop {
        polls += 1;
        let mut left = polls;
        let mut upload = pin!(house.take(ChunkedReader::new(&body, 100_000)));
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
    gone(&house).await;
    assert!(house.archive(&grant) == Some(new));

    for polls in 1..polls {
        let grant = house.grant().await;
        house
            .take(ChunkedReader::new(&form(&grant, &old), 500))
            .await
            .expect("stored");
        let body = form(&grant, &archive(600_000, 2));
        {
            let mut left = polls;
            let mut upload = pin!(house.take(ChunkedReader::new(&body, 100_000)));
            poll_fn(|cx| {
                left -= 1;
                match left == 0 || upload.as_mut().poll(cx).is_ready() {
                    true => Poll::Ready(()),
                    false => Poll::Pending,
                }
            })
            .await;
        }
        gone(&house).await;
        let kept = house.archive(&grant).expect("the old one or the new one");
        assert!(kept.len() == 500 || kept.len() == 600_000, "{} bytes", kept.len());
    }
    assert_eq!(house.uploads.permits.available_permits(), 4);
}

/// I-06, I-08: each refusal comes before the rest of the body is asked for, and leaves the archive of before.
#[tokio::test]
async fn a_refusal_changes_nothing() {
    let house = BuildService::new();
    let grant = house.grant().await;
    let file = archive(500, 1);
    house
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
        let refused = house.take(body).await.expect_err(code);
        assert_eq!(refused.code, code, "{}", refused.text);
        gone(&house).await;
        assert!(house.archive(&grant).as_ref() == Some(&file), "{code}");
    }
    let mut just_fits = ChunkedReader::new(&form(&grant, &file), 500);
    just_fits.declared = Some(SIZE_MAX + FRAME_BYTES_MAX as u64);
    house
        .take(just_fits)
        .await
        .expect("what a head says is no refusal of what fits");
    let no_form = Request::post("/").body(()).expect("a request").into_parts().0;
    let refused = house
        .uploads
        .receive_form(&no_form, ChunkedReader::new(b"", 1), &|_| true)
        .await;
    assert_eq!(refused.expect_err("no form").status, 412);
}

/// I-09: of two with one grant the last to end wins, whole; once a build was made of it nobody does.
#[tokio::test]
async fn the_last_one_wins_until_a_build_is_made() {
    let house = BuildService::new();
    let grant = house.grant().await;
    let files = [archive(600_000, 1), archive(599_999, 2)];
    let bodies = files.each_ref().map(|file| form(&grant, file));
    let [first, second] = bodies
        .each_ref()
        .map(|body| house.take(ChunkedReader::new(body, 10_000)));
    let both = tokio::join!(first, second);
    assert!(both.0.is_ok() && both.1.is_ok());
    let kept = house.archive(&grant).expect("one of them");
    let info = house.recorded(&grant).info.expect("recorded");
    assert!(files.contains(&kept) && info.size == kept.len() as u64);

    // While a build has its lock, an upload waits, and then comes too late.
    let id = Uuid::parse(&grant.upload_id).expect("a UUID");
    let lock = house.uploads.upload_locks.lock(id).await;
    let late = form(&grant, &archive(500, 3));
    let mut late = pin!(house.take(ChunkedReader::new(&late, 10_000)));
    let mut is_written = false;
    while !is_written {
        let polled = poll_fn(|cx| Poll::Ready(late.as_mut().poll(cx))).await;
        assert!(polled.is_pending());
        is_written = house.parts() == 1;
        tokio::task::yield_now().await;
    }
    let build = Build::new(
        Uuid::v4(random()),
        &house.recorded(&grant),
        &info,
        "Dockerfile".into(),
        String::new(),
        1,
    );
    house.uploads.records.insert_build(&build).expect("space");
    drop(lock);
    assert_eq!(late.await.expect_err("sealed").code, "CONFLICT");
    let early = house
        .take(ChunkedReader::new(&form(&grant, b"PK"), 500))
        .await
        .expect_err("sealed");
    assert_eq!(
        (early.status, early.code),
        (409, "CONFLICT"),
        "before the file is looked at"
    );
    gone(&house).await;
    assert!(house.archive(&grant) == Some(kept));

    let (file, granted) = (archive(500, 1), house.grant().await);
    let id = Uuid::parse(&granted.upload_id).expect("a UUID");
    house.uploads.records.delete_upload(id).expect("space");
    let body = form(&granted, &file);
    let unknown = house.take(ChunkedReader::new(&body, 500)).await.expect_err("unknown");
    assert_eq!((unknown.status, unknown.code), (403, "AccessDenied"));
}

/// Finding 14: with its key a grant ends, before its file begins, and at the last step of an upload
/// that is under way; what was there before stays. One of an older release, which wrote no key
/// down, goes on until it expires.
#[tokio::test]
async fn a_grant_ends_with_its_key() {
    let house = BuildService::new();
    let (grant, other, old) = (house.grant().await, house.grant().await, house.grant().await);
    let kept = archive(700, 1);
    house
        .take(ChunkedReader::new(&form(&grant, &kept), 300))
        .await
        .expect("stored");
    let id = Uuid::parse(&old.upload_id).expect("a UUID");
    let unsigned = UploadRecord {
        key: None,
        ..house.recorded(&old)
    };
    house.uploads.records.delete_upload(id).expect("space");
    house.uploads.records.insert_upload(&unsigned).expect("space");

    // This one has begun: its first piece is written.
    let long = form(&other, &archive(SIZE_MAX as usize - 5, 2));
    let mut long = pin!(house.take(ChunkedReader::new(&long, 100_000)));
    while house.parts() == 0 {
        let polled = poll_fn(|cx| Poll::Ready(long.as_mut().poll(cx))).await;
        assert!(polled.is_pending());
        tokio::task::yield_now().await;
    }
    BuildService::set_keys(&house.path, false);
    let late = long.await.expect_err("its key is revoked");
    assert_eq!((late.status, late.code), (403, "AccessDenied"));
    // The body of this one would not come to an end, and is not waited for.
    let mut early = ChunkedReader::new(&form(&grant, &archive(700, 3)), 10_000);
    early.pieces.push_back((Duration::from_secs(3600), Bytes::new()));
    let early = house.take(early).await.expect_err("its key is revoked");
    assert_eq!((early.status, early.code), (403, "AccessDenied"));
    assert!(early.text.contains("revoked"), "{}", early.text);
    gone(&house).await;
    assert!(house.archive(&grant) == Some(kept) && house.archive(&other).is_none());
    house
        .take(ChunkedReader::new(&form(&old, &archive(9, 4)), 300))
        .await
        .expect("stored");

    // While the file of keys is of no use, keys cannot be checked, and nothing is taken.
    fs::write(house.path.join("keys.json"), "{").expect("a writable folder");
    let unknown = house
        .take(ChunkedReader::new(&form(&grant, b""), 300))
        .await
        .expect_err("unknown");
    assert_eq!(unknown.status, 500);
    BuildService::set_keys(&house.path, true);
    house
        .take(ChunkedReader::new(&form(&grant, &archive(8, 5)), 300))
        .await
        .expect("stored");
}

/// B3: what is too long as a whole is refused before anything of it is asked for, and with it the
/// leave to send it.
#[tokio::test]
async fn a_body_that_is_too_long_is_not_asked_for() {
    let house = BuildService::new();
    let longest = SIZE_MAX + FRAME_BYTES_MAX as u64;
    let grant = house.grant().await;
    let body = form(&grant, &archive(100, 1));
    let sent = |declared: u64| {
        let mut pieces = ChunkedReader::new(&body, 100);
        pieces.declared = Some(declared);
        pieces
    };
    let mut pieces = sent(longest + 1);
    // It would have to wait for an hour.
    pieces.pieces.push_front((Duration::from_secs(3600), Bytes::new()));
    let refused = house.take(pieces).await.expect_err("too long");
    assert_eq!((refused.status, refused.code), (400, "EntityTooLarge"));
    house.take(sent(longest)).await.expect("stored");
}

/// I-09: past the permits for uploads the next one is told to come again; a stranger takes none.
#[tokio::test]
async fn uploads_have_places() {
    let house = BuildService::with(|uploads| uploads.permits = Arc::new(Semaphore::new(1)));
    let grant = house.grant().await;
    let body = form(&grant, &archive(500, 1));
    let place = house.uploads.permits.clone().try_acquire_owned().expect("a place");
    let refused = house.take(ChunkedReader::new(&body, 100)).await.expect_err("no place");
    assert_eq!((refused.status, refused.code), (503, "SlowDown"));
    assert_eq!(refused.header, ErrorHeader::RetryAfterS(RETRY_AFTER_S));
    let mut stranger = grant.clone();
    stranger.upload_fields.signature = "0".repeat(64);
    let refused = house
        .take(ChunkedReader::new(&form(&stranger, b""), 100))
        .await
        .expect_err("a stranger");
    assert_eq!(refused.code, "SignatureDoesNotMatch");
    drop(place);
    house
        .take(ChunkedReader::new(&body, 100))
        .await
        .expect("a place is free");
}

/// I-21: too little space for a grant.
#[tokio::test]
async fn grants_need_space() {
    let region = name("us-west");
    let house = BuildService::with(|uploads| uploads.free_min = u64::MAX);
    let refused = house
        .uploads
        .grant(&house.holder(), &region, String::new())
        .await
        .expect_err("full");
    assert_eq!((refused.status, refused.code), (503, "STORAGE_FULL"));
    assert_eq!(refused.header, ErrorHeader::RetryAfterS(RETRY_AFTER_S));
    let house = BuildService::with(|uploads| uploads.free_min = 1);
    assert!(
        house
            .uploads
            .grant(&house.holder(), &region, String::new())
            .await
            .is_ok()
    );
}

/// I-21: what the system says of a full disk becomes 507, anything else is the service's own failure.
#[test]
fn a_full_disk_is_said_as_such() {
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

/// I-08, I-21: an archive that is in its place is an answer of success, also when what came finds no space in the records; the next
/// look at it hashes it, whether nothing is recorded of it or what was there before.
#[tokio::test]
async fn what_is_in_its_place_is_no_refusal() {
    let records = Arc::new(Mutex::new(None));
    let house = BuildService::with(|uploads| {
        let full = Arc::new(SqliteRecords::open(&uploads.data_dir).expect("records"));
        *lock(&records) = Some(full.clone());
        uploads.records = full;
    });
    let records = lock(&records).take().expect("records");
    let grant = house.grant().await;
    let full = "CREATE TRIGGER full BEFORE UPDATE ON upload BEGIN SELECT RAISE(ABORT, 'no space'); END";
    let mut known = None;
    for (n, sql) in [full, "DROP TRIGGER full", full].into_iter().enumerate() {
        records.ask(sql);
        let file = archive(500 + n, 1);
        let stored = house
            .take(ChunkedReader::new(&form(&grant, &file), 100))
            .await
            .expect("stored");
        let upload = house.recorded(&grant);
        if sql == full {
            assert_eq!(upload.info, known, "nothing new is recorded");
        }
        let found = house.uploads.folder.head(&upload).expect("readable").expect("there");
        assert_eq!((found.size, found.md5), (file.len() as u64, stored.md5));
        assert!(house.archive(&grant) == Some(file));
        known = upload.info;
    }
    assert!(known.is_some());
}
