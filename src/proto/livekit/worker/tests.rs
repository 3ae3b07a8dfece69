//! The worker in virtual time, against messages of a server.

use std::cell::RefCell;
use std::rc::Rc;

use prost::Message as _;

use super::wire::{
    AvailabilityAnswer, JobAssignment, JobInfo, JobOffer, JobTermination, WorkerRequest, WorkerResponse,
    WorkerServerInfo,
};
use super::*;
use crate::limits::{
    JOB_ATTRIBUTES_BYTES_MAX, JOB_METADATA_BYTES_MAX, JOB_OFFERS_MAX, JOB_PROMISE_KEPT, WORKER_LATE, WORKER_LATE_FOR,
};
use crate::livekit::wire::{ParticipantInfo, RoomInfo};

mod jobs;
mod registration;

const SECOND: Duration = Duration::from_secs(1);

/// Places that are counted, and for whom each was asked.
#[derive(Clone)]
struct TestSlots(Rc<RefCell<[usize; 2]>>, Rc<RefCell<Vec<Option<SourceKey>>>>);

impl TestSlots {
    fn new(max: usize) -> Self {
        TestSlots(Rc::new(RefCell::new([0, max])), Rc::default())
    }
}

/// One place, released when dropped.
struct TestPlace(TestSlots);

impl Drop for TestPlace {
    fn drop(&mut self) {
        self.0.0.borrow_mut()[0] -= 1;
    }
}

impl SessionSlots for TestSlots {
    type Place = TestPlace;

    fn reserve(&mut self, source: Option<SourceKey>) -> Option<TestPlace> {
        self.1.borrow_mut().push(source);
        let mut held = self.0.borrow_mut();
        let [used, max] = &mut *held;
        (*used < *max).then(|| *used += 1)?;
        drop(held);
        Some(TestPlace(self.clone()))
    }

    fn used(&self) -> usize {
        self.0.borrow()[0]
    }

    fn max(&self) -> usize {
        self.0.borrow()[1]
    }
}

/// A worker, its clock, and what it did.
struct Rig {
    worker: AgentWorker<TestSlots>,
    places: TestSlots,
    now: Instant,
    dials: Vec<(Duration, DialRequest)>,
    sent: Vec<WorkerRequestKind>,
    started: Vec<AssignedJob<TestPlace>>,
    terminated: Vec<String>,
    closes: usize,
    /// Measurements that the driver would make.
    measures: usize,
    start: Instant,
}

impl Rig {
    fn new() -> Self {
        Self::with(|_| ())
    }

    /// A worker with other settings.
    fn with(change: impl FnOnce(&mut WorkerSettings)) -> Self {
        let mut settings = WorkerSettings {
            urls: vec!["ws://a.example.net".into()],
            key: "devkey".into(),
            secret: Secret::new("secret"),
            worker: MediaroomWorker {
                job_type: JobType::Room,
                agent_name: "bot".into(),
                deployment: String::new(),
                target_load_percent: 70,
            },
            cores: 2,
            metadata_bytes_max: JOB_METADATA_BYTES_MAX,
            bots: Vec::new(),
        };
        change(&mut settings);
        let places = TestSlots::new(8);
        let start = Instant::now();
        let unix = Duration::from_secs(1_795_252_753);
        let mut rig = Rig {
            worker: AgentWorker::new(settings, places.clone(), 7, unix, start),
            places,
            now: start,
            dials: Vec::new(),
            sent: Vec::new(),
            started: Vec::new(),
            terminated: Vec::new(),
            closes: 0,
            measures: 0,
            start,
        };
        rig.worker.handle_timeout(start);
        rig.drain();
        rig
    }

    /// A worker that is registered.
    fn registered() -> Self {
        let mut rig = Self::new();
        rig.register();
        rig
    }

    fn register(&mut self) {
        self.worker.handle_open(self.now);
        self.drain();
        self.hear(WorkerResponseKind::Register(WorkerRegistered {
            worker_id: "AW_1".into(),
            server_info: Some(WorkerServerInfo {
                version: "1.13.5".into(),
                region: String::new(),
                node_id: "ND_1".into(),
            }),
        }));
    }

    /// Performs the commands as the driver does.
    fn drain(&mut self) {
        while let Some(command) = self.worker.poll_command() {
            match command {
                WorkerCommand::Dial(request) => self.dials.push((self.now - self.start, request)),
                WorkerCommand::Send(bytes) => {
                    let request = WorkerRequest::decode(&*bytes).expect("its own message");
                    self.sent.push(request.message.expect("a kind"));
                }
                WorkerCommand::CloseSocket => self.closes += 1,
                WorkerCommand::MeasureCpu => {
                    self.measures += 1;
                    self.worker.handle_cpu(Duration::ZERO, self.now);
                }
                WorkerCommand::Start(job) => self.started.push(*job),
                WorkerCommand::Terminate(id) => self.terminated.push(id),
            }
        }
    }

    /// Lets the server say something.
    fn hear(&mut self, kind: WorkerResponseKind) {
        let bytes = WorkerResponse { message: Some(kind) }.encode_to_vec();
        self.worker.handle_message(bytes.into(), self.now);
        self.drain();
    }

    /// Moves the clock, serving every deadline in time.
    fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        while let Some(at) = self.worker.poll_timeout().filter(|at| *at <= until) {
            self.now = at.max(self.now);
            self.worker.handle_timeout(self.now);
            self.drain();
        }
        self.now = until;
    }

    /// Moves the clock with a server that pings.
    fn pass_with_pings(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
            self.pass(SECOND.min(until - self.now));
            self.worker.handle_frame(self.now);
        }
    }

    fn offer(&mut self, id: &str, room: &str) -> AvailabilityAnswer {
        self.offer_job(job(id, room))
    }

    fn offer_job(&mut self, job: JobInfo) -> AvailabilityAnswer {
        let id = job.id.clone();
        self.sent.clear();
        self.hear(WorkerResponseKind::Availability(Box::new(JobOffer { job: Some(job) })));
        let answers = self.sent.iter().filter_map(|sent| match sent {
            WorkerRequestKind::Availability(answer) => Some(answer.clone()),
            _ => None,
        });
        let answers: Vec<_> = answers.collect();
        assert_eq!(answers.len(), 1, "one answer at once");
        assert_eq!(answers[0].job_id, id);
        answers[0].clone()
    }

    fn assign(&mut self, id: &str, room: &str) {
        self.assign_job(job(id, room));
    }

    fn assign_job(&mut self, job: JobInfo) {
        self.hear(WorkerResponseKind::Assignment(Box::new(JobAssignment {
            job: Some(job),
            url: None,
            token: "t.t.t".into(),
        })));
    }

    fn terminate(&mut self, id: &str) {
        self.hear(WorkerResponseKind::Termination(JobTermination { job_id: id.into() }));
    }

    /// Returns status, load and number of jobs of the last report.
    fn last_status(&self) -> (i32, f32, u32) {
        let last = self.sent.iter().rev().find_map(|sent| match sent {
            WorkerRequestKind::UpdateWorker(update) => {
                Some((update.status.unwrap_or(-1), update.load, update.job_count))
            }
            _ => None,
        });
        last.expect("a status")
    }

    /// Returns id, status and error of the job reports.
    fn job_reports(&self) -> Vec<(&str, i32, &str)> {
        let reports = self.sent.iter().filter_map(|sent| match sent {
            WorkerRequestKind::UpdateJob(update) => Some((&*update.job_id, update.status, &*update.error)),
            _ => None,
        });
        reports.collect()
    }

    fn counts(&self) -> &WorkerCounts {
        &self.worker.report.counts
    }
}

fn job(id: &str, room: &str) -> JobInfo {
    JobInfo {
        id: id.into(),
        room: Some(RoomInfo {
            name: room.into(),
            ..RoomInfo::default()
        }),
        agent_name: "bot".into(),
        ..JobInfo::default()
    }
}

/// A machine that slept for an hour, whose monotonic clock stood still or went on: the server has
/// closed the connection without a word that arrived. It is noticed, at the latest after the usual
/// silence, and the next dial is signed by the clock of its moment, not by that of the sleep.
#[test]
fn a_worker_on_a_machine_that_slept_registers_again() {
    const HOUR: Duration = Duration::from_hours(1);
    for slept_by_monotonic in [Duration::ZERO, HOUR] {
        let mut rig = Rig::registered();
        rig.pass_with_pings(Duration::from_mins(1));
        rig.dials.clear();
        rig.now += slept_by_monotonic;
        let (woke, sent) = (rig.now, rig.sent.len());
        let unix = Duration::from_secs(1_795_252_753) + Duration::from_mins(1) + HOUR;
        rig.worker.set_clock(unix, woke);
        rig.pass(WORKER_SILENCE_MAX + SECOND);
        let (at, request) = rig.dials.first().expect("a dial");
        let after = rig.start + *at - woke;
        assert!(after <= WORKER_SILENCE_MAX + SECOND, "{after:?}");
        let expected = tokens::worker_token("devkey", &Secret::new("secret"), (unix + after).as_secs());
        assert_eq!(request.token.expose(), expected.expose());
        // The reports of the hour are not made up for: one each 2.5 s, and a ping each 10 s.
        assert!(rig.sent.len() - sent <= 16, "{:?}", rig.sent);
        rig.register();
        assert_eq!(rig.worker.report().counts.registrations, 2);
    }
}

/// A board without a clock of its own starts with that of its last shutdown, and is set right once
/// there is a network. Each dial is signed by the clock of its moment.
#[test]
fn each_dial_has_the_time_of_the_clock_as_it_is_set() {
    const WEEK: Duration = Duration::from_hours(7 * 24);
    let mut rig = Rig::new();
    let first = Duration::from_secs(1_795_252_753);
    for unix in [first + WEEK, first - WEEK] {
        rig.worker.handle_refused(401, rig.now);
        rig.dials.clear();
        let set = rig.now;
        rig.worker.set_clock(unix, set);
        rig.pass(Duration::from_mins(2));
        let (at, request) = rig.dials.first().expect("a dial after the pause");
        let now = unix + (rig.start + *at - set);
        let expected = tokens::worker_token("devkey", &Secret::new("secret"), now.as_secs());
        assert_eq!(request.token.expose(), expected.expose());
    }
}
