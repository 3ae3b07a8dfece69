//! The jobs of a worker: offers are answered at once, assignments become sessions.
//!
//! A yes reserves a place, which is released if no assignment follows within
//! [`JOB_PROMISE_KEPT`]. Whatever the server sends, there is one
//! session per room and name, and no session without a promise. A termination is passed to the
//! session, which knows whether its bot is in the room. Source: `docs/spec/livekit.md` 6.3 to 6.5.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::agent_dispatch::{BOT_ATTRIBUTE, SESSION_ID_ATTRIBUTE};
use super::report::OfferCounts;
use super::requester;
use super::wire::{AvailabilityAnswer, JobAssignment, JobInfo, JobOffer, UpdateJob, WorkerRequestKind};
use super::{AgentWorker, AssignedJob, JobOutcome, SessionSlots, WorkerCommand, plain, wire_type};
use crate::job::JobType;
use crate::job::{Job, JobParticipant};
use crate::limits::{
    JOB_ATTRIBUTES_BYTES_MAX, JOB_DEPARTURE_TIMEOUT, JOB_EMPTY_TIMEOUT, JOB_ID_BYTES_MAX, JOB_OFFERS_MAX,
    JOB_PROMISE_KEPT, ROOM_TOKEN_BYTES_MAX,
};
use crate::livekit::roster::{is_valid_id, truncated};
use crate::livekit::session::JobRules;
use crate::livekit::wire::ParticipantInfo;
use crate::secret::Secret;
use crate::sorting;
use crate::uuid::Uuid;

/// Jobs whose assignment did not come in time, remembered in case it comes later.
const JOB_PROMISES_REMEMBERED: usize = 64;
/// Longest such times that a job may name.
const JOB_TIMEOUT_MAX: Duration = Duration::from_secs(24 * 3_600);

/// The statuses of a job on the wire.
const RUNNING: i32 = 1;
const SUCCESS: i32 = 2;
const FAILED: i32 = 3;

/// What a job serves: there is one session for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PromiseKey {
    room: String,
    /// The participant, for a job of one.
    participant: Option<String>,
}

/// An accepted job that is not assigned yet.
pub(super) struct Promise<P> {
    key: PromiseKey,
    place: P,
    offered_at: Instant,
    /// The place is kept until then.
    pub until: Instant,
}

/// An assigned job.
pub(super) struct ServedJob {
    key: PromiseKey,
    offered_at: Instant,
    /// The server knows the outcome; the session is leaving.
    pub has_ended: bool,
}

/// The answer to an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OfferAnswer {
    Yes,
    Full,
    Overloaded,
    Draining,
    /// Too many accepted jobs wait for their assignment.
    TooMany,
    /// The runner serves the room already.
    OwnRoom,
    /// Metadata or attributes are too long for the bot.
    TooLong,
    /// The offer is not for this worker.
    Foreign,
}

impl OfferAnswer {
    fn count(self, counts: &mut OfferCounts) -> &mut u64 {
        match self {
            OfferAnswer::Yes => &mut counts.yes,
            OfferAnswer::Full | OfferAnswer::Overloaded | OfferAnswer::TooMany => &mut counts.full,
            OfferAnswer::Draining => &mut counts.draining,
            OfferAnswer::OwnRoom => &mut counts.own_room,
            OfferAnswer::TooLong | OfferAnswer::Foreign => &mut counts.unfit,
        }
    }
}

impl<P: SessionSlots> AgentWorker<P> {
    /// Answers an offer, at once: the server waits 3 s for all workers together.
    pub(super) fn handle_offer(&mut self, offer: JobOffer, now: Instant) {
        let job = offer.job.unwrap_or_default();
        if !is_job_id(&job.id) {
            return self.notices.warn(now, "an offer without a usable id is ignored");
        }
        let answer = self.decide(&job, now);
        *answer.count(&mut self.counts().offers) += 1;
        let worker = &self.settings.worker;
        let mut reply = AvailabilityAnswer {
            job_id: job.id.clone(),
            ..AvailabilityAnswer::default()
        };
        match answer {
            OfferAnswer::Yes => {
                reply.available = true;
                reply.participant_identity = format!("agent-{}", job.id);
                reply.participant_name.clone_from(&worker.agent_name);
                let (key, value) = agent_mark(&worker.agent_name);
                reply.participant_attributes = sorting::map([
                    (key.to_owned(), value.to_owned()),
                    ("lk.agent.state".to_owned(), "initializing".to_owned()),
                ]);
            }
            // Another worker would be asked in vain, or make a second bot.
            OfferAnswer::OwnRoom | OfferAnswer::TooLong => reply.terminate = true,
            _ => {}
        }
        self.send(WorkerRequestKind::Availability(reply));
        let why = match answer {
            OfferAnswer::Yes => return self.send_status(now),
            OfferAnswer::Full => format!("full ({} of {})", self.places.used(), self.places.max()),
            OfferAnswer::Overloaded => "overloaded: timers are late".to_owned(),
            OfferAnswer::Draining => "draining".to_owned(),
            OfferAnswer::TooMany => format!("{JOB_OFFERS_MAX} others wait for their assignment"),
            OfferAnswer::OwnRoom => "this runner serves the room already".to_owned(),
            OfferAnswer::TooLong => format!(
                "{} bytes of metadata and {} of attributes, but the bot can be given {} and {JOB_ATTRIBUTES_BYTES_MAX}",
                job.metadata.len(),
                attribute_bytes(&job.attributes),
                self.settings.metadata_bytes_max
            ),
            OfferAnswer::Foreign => "it is for another worker or bot, or names no room".to_owned(),
        };
        self.notices.info(now, &format!("job {} declined: {why}", job.id));
    }

    fn decide(&mut self, job: &JobInfo, now: Instant) -> OfferAnswer {
        let worker = &self.settings.worker;
        let key = match key_of(job, worker.job_type) {
            Some(key) if job.agent_name == worker.agent_name => key,
            _ => return OfferAnswer::Foreign,
        };
        let bots = &self.settings.bots;
        let is_unknown = |name: &String| !bots.is_empty() && !bots.contains(name);
        if job.attributes.get(BOT_ATTRIBUTE).is_some_and(is_unknown) {
            return OfferAnswer::Foreign;
        }
        if job.metadata.len() > self.settings.metadata_bytes_max
            || attribute_bytes(&job.attributes) > JOB_ATTRIBUTES_BYTES_MAX
        {
            return OfferAnswer::TooLong;
        }
        if self.promises.get(&job.id).is_some_and(|promise| promise.key == key) {
            // The same offer again has the same answer, and the same place.
            return OfferAnswer::Yes;
        }
        if self.jobs.contains_key(&job.id) || self.promises.contains_key(&job.id) || self.serves(&key) {
            return OfferAnswer::OwnRoom;
        }
        if self.draining {
            return OfferAnswer::Draining;
        }
        if self.meter.is_overloaded(now) {
            return OfferAnswer::Overloaded;
        }
        if self.promises.len() >= JOB_OFFERS_MAX {
            return OfferAnswer::TooMany;
        }
        let Some(place) = self.places.reserve(requester::read(&job.attributes)) else {
            return OfferAnswer::Full;
        };
        let promise = Promise {
            key,
            place,
            offered_at: now,
            until: now + JOB_PROMISE_KEPT,
        };
        self.promises.insert(job.id.clone(), promise);
        OfferAnswer::Yes
    }

    /// Tells whether there is a session for this room or participant, or will be one.
    fn serves(&self, key: &PromiseKey) -> bool {
        self.jobs.values().any(|served| !served.has_ended && served.key == *key)
            || self.promises.values().any(|promise| promise.key == *key)
    }

    /// Releases the places of jobs that were not assigned in time.
    pub(super) fn expire_promises(&mut self, now: Instant) {
        let is_due = |(_, promise): &(&String, &Promise<P::Place>)| now >= promise.until;
        let due: Vec<String> = (self.promises.iter().filter(is_due))
            .map(|(id, _)| id.clone())
            .collect();
        if due.is_empty() {
            return;
        }
        for id in due {
            let Some(promise) = self.promises.remove(&id) else {
                continue;
            };
            self.counts().assignments.lost += 1;
            let words = format!(
                "job {id} was promised and not assigned within {} s",
                JOB_PROMISE_KEPT.as_secs()
            );
            self.notices.warn(now, &words);
            if self.expired.len() >= JOB_PROMISES_REMEMBERED {
                self.expired.pop_front();
            }
            self.expired.push_back((id, promise.key));
        }
        self.send_status(now);
    }

    /// Starts the session of an assigned job.
    pub(super) fn handle_assignment(&mut self, assignment: JobAssignment, now: Instant) {
        let JobAssignment { job, url, token } = assignment;
        let job = job.unwrap_or_default();
        if !is_job_id(&job.id) {
            return self.notices.warn(now, "an assignment without a usable id is ignored");
        }
        if self.jobs.contains_key(&job.id) {
            self.counts().assignments.doubled += 1;
            return log::debug!("job {} is assigned a second time, which is ignored", job.id);
        }
        let promise = match self.promises.remove(&job.id) {
            Some(promise) => {
                self.counts().assignments.in_time += 1;
                promise
            }
            None => match self.late_promise(&job, now) {
                Some(promise) => promise,
                None => return,
            },
        };
        let fits = key_of(&job, self.settings.worker.job_type).is_some_and(|key| key == promise.key)
            && job.metadata.len() <= self.settings.metadata_bytes_max
            && attribute_bytes(&job.attributes) <= JOB_ATTRIBUTES_BYTES_MAX
            && (1..=ROOM_TOKEN_BYTES_MAX).contains(&token.len())
            && token.bytes().all(|byte| byte.is_ascii_graphic());
        if !fits {
            let words = format!("the assignment of job {} does not fit its offer: it is refused", job.id);
            self.notices.warn(now, &words);
            return self.fail(job.id, "the assignment does not fit the offer", now);
        }
        let current = self.url().to_owned();
        let others = self.settings.urls.iter().filter(|url| **url != current).cloned();
        let mut urls: Vec<String> = others.collect();
        urls.insert(0, current);
        if let Some(other) = url.filter(|url| is_url(url)) {
            urls.retain(|url| *url != other);
            urls.insert(0, other);
        }
        let room = job.room.clone().unwrap_or_default();
        let rules = JobRules {
            empty_timeout: timeout(room.empty_timeout, JOB_EMPTY_TIMEOUT),
            departure_timeout: timeout(room.departure_timeout, JOB_DEPARTURE_TIMEOUT),
            mark: (self.settings.worker.job_type == JobType::Room).then(|| {
                let (key, value) = agent_mark(&self.settings.worker.agent_name);
                (key, value.to_owned())
            }),
        };
        let id = job.id.clone();
        let assigned = AssignedJob {
            room_name: room.name,
            session_id: job
                .attributes
                .get(SESSION_ID_ATTRIBUTE)
                .and_then(|id| Uuid::parse(id))
                .map(|id| id.to_string()),
            bot: job.attributes.get(BOT_ATTRIBUTE).cloned(),
            job: job_of(job, self.settings.worker.job_type, &self.report.id),
            urls,
            token: Secret::new(token),
            rules,
            place: promise.place,
        };
        let served = ServedJob {
            key: promise.key,
            offered_at: promise.offered_at,
            has_ended: false,
        };
        self.jobs.insert(id.clone(), served);
        self.commands.push_back(WorkerCommand::Start(Box::new(assigned)));
        self.send_job_status(id, RUNNING, String::new());
        self.send_status(now);
    }

    /// Renews the promise of a job that is assigned after its time, if there is a place, and the
    /// room or participant is not served by another job since.
    fn late_promise(&mut self, job: &JobInfo, now: Instant) -> Option<Promise<P::Place>> {
        let id = &job.id;
        let Some(at) = self.expired.iter().position(|(expired, _)| expired == id) else {
            self.counts().assignments.unpromised += 1;
            let words = format!("the assignment of job {id}, which was not promised, is ignored");
            self.notices.warn(now, &words);
            return None;
        };
        let (_, key) = self.expired.remove(at)?;
        self.counts().assignments.late += 1;
        let is_wanted = !self.draining && !self.serves(&key);
        let source = requester::read(&job.attributes);
        match is_wanted.then(|| self.places.reserve(source)).flatten() {
            Some(place) => Some(Promise {
                key,
                place,
                offered_at: now,
                until: now,
            }),
            None => {
                let words = format!("job {id} was assigned late: another one serves the room, or no place is left");
                self.notices.warn(now, &words);
                self.fail(id.clone(), "assigned too late", now);
                None
            }
        }
    }

    /// Handles a job that the server takes back: its dispatch was deleted, or the server believes
    /// that the bot is gone.
    pub(super) fn handle_termination(&mut self, id: &str, now: Instant) {
        if self.promises.remove(id).is_some() {
            log::info!("the server took the job back: {id}, before it was assigned");
            self.counts().taken_back += 1;
            return self.send_status(now);
        }
        match self.jobs.get(id) {
            Some(job) if !job.has_ended => self.commands.push_back(WorkerCommand::Terminate(id.to_owned())),
            _ => {
                self.counts().terminations_unknown += 1;
                log::debug!("the termination of an unknown job is ignored");
            }
        }
    }

    /// Handles what a session did with the termination of its job.
    pub fn handle_terminated(&mut self, was_live: bool) {
        match was_live {
            true => self.counts().taken_back += 1,
            false => self.counts().terminations_ignored += 1,
        }
    }

    /// Handles a bot that is in the room of its job.
    pub fn handle_joined(&mut self, id: &str, now: Instant) {
        if let Some(job) = self.jobs.get(id) {
            let after = now.saturating_duration_since(job.offered_at);
            self.counts().joined(after);
        }
    }

    /// Handles the outcome of a job. Its bot has not left the room yet: a bot that leaves first has
    /// failed, as far as the server knows.
    pub fn handle_job_end(&mut self, id: &str, outcome: JobOutcome, now: Instant) {
        let Some(job) = self.jobs.get_mut(id).filter(|job| !job.has_ended) else {
            return;
        };
        job.has_ended = true;
        let (status, error) = match outcome {
            JobOutcome::Success => (SUCCESS, String::new()),
            JobOutcome::Failed(why) => (FAILED, why),
        };
        match status {
            SUCCESS => self.counts().jobs_succeeded += 1,
            _ => self.counts().jobs_failed += 1,
        }
        self.send_job_status(id.to_owned(), status, error);
        self.send_status(now);
    }

    /// Handles the end of a job's session.
    pub fn handle_session_gone(&mut self, id: &str, now: Instant) {
        self.handle_job_end(id, JobOutcome::Failed("the session failed".into()), now);
        if self.jobs.remove(id).is_some() {
            self.send_status(now);
        }
    }

    /// Reports a job as failed that has no session.
    fn fail(&mut self, id: String, why: &str, now: Instant) {
        self.counts().jobs_failed += 1;
        self.send_job_status(id, FAILED, why.to_owned());
        self.send_status(now);
    }

    fn send_job_status(&mut self, job_id: String, status: i32, error: String) {
        self.send(WorkerRequestKind::UpdateJob(UpdateJob { job_id, status, error }));
    }
}

/// Returns the attribute by which bots of one name recognise each other. Servers drop attributes
/// without a value, so bots without a name have another one.
fn agent_mark(agent_name: &str) -> (&'static str, &str) {
    match agent_name {
        "" => ("edge.agent", "automatic"),
        name => ("lk.agent.name", name),
    }
}

/// Returns what a job serves; `None` if it has another type, or does not name its room or
/// participant.
fn key_of(job: &JobInfo, job_type: JobType) -> Option<PromiseKey> {
    let room = job.room.as_ref().filter(|room| is_valid_id(&room.name))?;
    let identity = job.participant.as_ref().map(|participant| participant.identity.clone());
    let participant = match job_type {
        JobType::Room => None,
        JobType::Publisher | JobType::Participant => Some(identity.filter(|identity| is_valid_id(identity))?),
    };
    (job.job_type == wire_type(job_type)).then(|| PromiseKey {
        room: room.name.clone(),
        participant,
    })
}

fn job_of(job: JobInfo, job_type: JobType, worker_id: &str) -> Job {
    let room = job.room.unwrap_or_default();
    Job {
        id: job.id,
        dispatch_id: plain(&job.dispatch_id),
        job_type,
        agent_name: job.agent_name,
        metadata: job.metadata,
        attributes: job.attributes,
        room_sid: plain(&room.sid),
        room_metadata: room.metadata,
        participant: job.participant.map(participant_of),
        worker_id: worker_id.to_owned(),
    }
}

fn participant_of(info: ParticipantInfo) -> JobParticipant {
    JobParticipant {
        identity: info.identity,
        name: truncated(&info.name).to_owned(),
        kind: match info.kind {
            0 => "standard",
            1 => "ingress",
            2 => "egress",
            3 => "sip",
            4 => "agent",
            7 => "connector",
            8 => "bridge",
            _ => "other",
        },
        attributes: info.attributes,
    }
}

/// Tells whether an id is short and plain enough for the log and for an identity.
fn is_job_id(id: &str) -> bool {
    (1..=JOB_ID_BYTES_MAX).contains(&id.len())
        && id
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
}

fn is_url(url: &str) -> bool {
    let is_known = ["ws://", "wss://", "http://", "https://"]
        .iter()
        .any(|scheme| url.len() > scheme.len() && url.starts_with(scheme));
    is_known && url.len() <= ROOM_TOKEN_BYTES_MAX && url.bytes().all(|byte| byte.is_ascii_graphic())
}

fn attribute_bytes(attributes: &BTreeMap<String, String>) -> usize {
    attributes.iter().map(|(name, value)| name.len() + value.len()).sum()
}

fn timeout(seconds: u32, default: Duration) -> Duration {
    match seconds {
        0 => default,
        seconds => Duration::from_secs(seconds.into()).min(JOB_TIMEOUT_MAX),
    }
}
