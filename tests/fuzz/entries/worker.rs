//! An agent worker under any messages of a server.
//!
//! In: messages, each after its length in two bytes; an odd length lets three seconds pass after
//! it. Whatever comes: places are never exceeded and never leak, each session was promised by a
//! yes, no job starts twice, a room has one session, every offer with a usable id is answered at
//! once, and a job reaches a program as JSON.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::{Duration, Instant};

use edge_runner_proto::config::{JobType, MediaroomWorker};
use edge_runner_proto::limits;
use edge_runner_proto::livekit::worker::wire::{
    self, WorkerRequest, WorkerRequestKind, WorkerResponse, WorkerResponseKind,
};
use edge_runner_proto::livekit::worker::{
    AgentWorker, AssignedJob, JobOutcome, SessionSlots, WorkerCommand, WorkerSettings,
};
use edge_runner_proto::secret::Secret;
use edge_runner_proto::server::source::SourceKey;
use prost::Message as _;

const PLACES: usize = 3;

/// Three places.
#[derive(Clone, Default)]
struct FuzzPlaces(Rc<Cell<usize>>);

struct FuzzPlace(FuzzPlaces);

impl Drop for FuzzPlace {
    fn drop(&mut self) {
        self.0.0.set(self.0.0.get() - 1);
    }
}

impl SessionSlots for FuzzPlaces {
    type Place = FuzzPlace;

    fn reserve(&mut self, _source: Option<SourceKey>) -> Option<FuzzPlace> {
        (self.used() < PLACES).then(|| self.0.set(self.used() + 1))?;
        Some(FuzzPlace(self.clone()))
    }

    fn used(&self) -> usize {
        self.0.get()
    }

    fn max(&self) -> usize {
        PLACES
    }
}

/// Plays the messages to a registered worker of each job type.
pub fn worker(bytes: &[u8]) {
    if let Ok(message) = wire::parse(bytes.to_vec().into()) {
        let again = WorkerResponse::decode(&*message.encode_to_vec()).expect("its own message");
        assert!(again == message || message.encode_to_vec().len() < bytes.len());
    }
    for job_type in JobType::ALL {
        let mut harness = WorkerHarness::new(job_type);
        harness.hear(bytes);
        let mut rest = bytes;
        while let Some((length, after)) = rest.split_first_chunk() {
            let length = u16::from_be_bytes(*length);
            let (message, after) = after.split_at(usize::from(length).min(after.len()));
            harness.hear(message);
            if length % 2 == 1 {
                harness.pass(Duration::from_secs(3));
            }
            rest = after;
        }
        harness.finish();
    }
}

struct WorkerHarness {
    worker: AgentWorker<FuzzPlaces>,
    places: FuzzPlaces,
    now: Instant,
    /// Ids that were answered with yes.
    promised: BTreeSet<String>,
    started: Vec<AssignedJob<FuzzPlace>>,
    answers: usize,
}

impl WorkerHarness {
    fn new(job_type: JobType) -> Self {
        let now = Instant::now();
        let places = FuzzPlaces::default();
        let settings = WorkerSettings {
            urls: vec!["ws://a".into(), "ws://b".into()],
            key: "devkey".into(),
            secret: Secret::new("secret"),
            worker: MediaroomWorker {
                job_type,
                agent_name: "bot".into(),
                deployment: String::new(),
                target_load_percent: 70,
            },
            cores: 1,
            metadata_bytes_max: limits::JOB_METADATA_BYTES_MAX,
            bots: Vec::new(),
        };
        let mut harness = WorkerHarness {
            worker: AgentWorker::new(settings, places.clone(), 1, Duration::from_secs(1_795_252_753), now),
            places,
            now,
            promised: BTreeSet::new(),
            started: Vec::new(),
            answers: 0,
        };
        harness.connect();
        harness
    }

    fn connect(&mut self) {
        self.pass(Duration::from_secs(20));
        self.worker.handle_open(self.now);
        // `register` with the id `AW`.
        self.worker
            .handle_message((&b"\x0a\x04\x0a\x02AW"[..]).into(), self.now);
        self.drain();
        assert!(self.worker.report().is_ready());
    }

    fn hear(&mut self, bytes: &[u8]) {
        let offered = match wire::parse(bytes.to_vec().into())
            .ok()
            .and_then(|message| message.message)
        {
            Some(WorkerResponseKind::Availability(offer)) => offer.job.map(|job| job.id),
            _ => None,
        };
        let before = self.answers;
        self.worker.handle_message(bytes.to_vec().into(), self.now);
        self.drain();
        let is_usable = |id: &String| {
            (1..=limits::JOB_ID_BYTES_MAX).contains(&id.len())
                && id
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
        };
        let due = usize::from(offered.as_ref().is_some_and(is_usable));
        assert_eq!(self.answers - before, due, "one answer, at once");
    }

    fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        while let Some(at) = self.worker.poll_timeout().filter(|at| *at <= until) {
            self.now = at.max(self.now);
            self.worker.handle_timeout(self.now);
            self.drain();
        }
        self.now = until;
        self.worker.handle_frame(self.now);
    }

    fn drain(&mut self) {
        while let Some(command) = self.worker.poll_command() {
            match command {
                WorkerCommand::Send(bytes) => {
                    let request = WorkerRequest::decode(&*bytes).expect("its own message");
                    if let Some(WorkerRequestKind::Availability(answer)) = request.message {
                        self.answers += 1;
                        if answer.available {
                            assert!(!answer.terminate && !answer.participant_identity.is_empty());
                            self.promised.insert(answer.job_id);
                        }
                    }
                }
                WorkerCommand::Start(job) => self.start(*job),
                WorkerCommand::Terminate(id) => {
                    assert!(self.started.iter().any(|started| started.job.id == id), "it is live");
                }
                WorkerCommand::MeasureCpu => self.worker.handle_cpu(Duration::ZERO, self.now),
                WorkerCommand::Dial(_) | WorkerCommand::CloseSocket => {}
            }
            assert!(self.places.used() <= PLACES);
        }
    }

    fn start(&mut self, job: AssignedJob<FuzzPlace>) {
        assert!(self.promised.contains(&job.job.id), "it was promised");
        let key = |job: &AssignedJob<FuzzPlace>| {
            let identity = job.job.participant.as_ref().map(|who| who.identity.clone());
            let of = (job.job.job_type != JobType::Room).then_some(identity).flatten();
            (job.room_name.clone(), of)
        };
        let is_second = |other: &AssignedJob<FuzzPlace>| other.job.id == job.job.id || key(other) == key(&job);
        assert!(!self.started.iter().any(is_second), "a room has one session");
        assert!((1..=limits::ROOM_NAME_BYTES_MAX).contains(&job.room_name.len()));
        assert!(job.job.metadata.len() <= limits::JOB_METADATA_BYTES_MAX && !job.urls.is_empty());
        let json = job.job.to_json().to_string();
        let back: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(back["metadata"], job.job.metadata);
        assert!(job.job.body().is_object());
        self.started.push(job);
    }

    /// Ends all sessions: no place is left over, once promises have expired.
    fn finish(mut self) {
        for job in std::mem::take(&mut self.started) {
            self.worker.handle_job_end(&job.job.id, JobOutcome::Success, self.now);
            let id = job.job.id.clone();
            drop(job);
            self.worker.handle_session_gone(&id, self.now);
        }
        self.drain();
        self.pass(limits::JOB_PROMISE_KEPT);
        assert_eq!((self.places.used(), self.worker.report().jobs), (0, 0));
        self.worker.handle_socket_closed(self.now);
        self.drain();
        self.connect();
    }
}
