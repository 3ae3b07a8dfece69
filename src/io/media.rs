//! The task of one session: UDP, the bot's queues and the clock around `proto::webrtc_session`.
//!
//! It waits for whichever comes first, a datagram, something of the bot, a further offer, the deadline, the bot's end or the
//! runner's, hands it to the session, and does what the session answers. It ends when nothing of the session is left, its
//! bot included.

use std::net::SocketAddr;
use std::time::Instant;

use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep_until;

use crate::bot::media::Link;
use crate::bot::{self, Shutdown};
use crate::config::Transport;
use crate::io::admission::Permit;
use crate::io::sessions::{BotTask, Outcome};
use crate::io::tasks;
use crate::io::udp::Inbox;
use crate::io::webrtc::{Hook, Registered, Reply, Request, Silent, WebRtc, refusal};
use crate::limits::{INQUIRY_CHECKS, WAITING_OFFERS_MAX};
use crate::proto::connection::{OfferError, Packet};
use crate::proto::metrics::{Count, Counts, Share};
use crate::proto::offer::{Answer, OfferRefusal};
use crate::proto::routes::Path;
use crate::proto::webrtc_session::{Event, Found, LeaveReason, Output, Rival, WebRtcSession};
use crate::proto::whip::resource::{Patch, Resource};
use crate::proto::whip::{Asked, Done, Refusal};

/// Everything that one session owns.
pub struct Life {
    /// On the heap: a task holds what it is given once for each step that it moves through.
    pub session: Box<WebRtcSession>,
    /// What is remembered of a session that came by one POST.
    pub resource: Option<Resource>,
    pub inbox: Inbox,
    /// Where what the bot says is sent to.
    pub used: Option<Used>,
    pub requests: mpsc::Receiver<Request>,
    /// Who waits to hear whether the caller is there.
    pub inquirers: Vec<oneshot::Sender<Silent>>,
    pub link: Link,
    pub bot: BotTask,
    pub engine: WebRtc,
    pub registered: Registered,
    pub shutdown: Shutdown,
    /// Whom a call's session tells how far it has come.
    pub call: Option<Hook>,
    pub _lease: Option<Box<dyn Send>>,
    /// Let go of last, as fields are dropped in this order: what waits for the last one finds
    /// nothing left.
    pub permit: Permit,
}

/// The way of media to the caller.
#[derive(Clone, Copy)]
pub struct Used {
    path: Path,
    local: SocketAddr,
    peer: SocketAddr,
}

/// What a session has done, for its last line in the log and for the metrics.
struct Tally {
    counts: Counts,
    share: Share,
    began: Instant,
    reason: Option<LeaveReason>,
    /// It was asked to leave before it was connected.
    gave_way: bool,
}

impl Tally {
    /// Takes over what others count.
    fn count(&mut self, session: &WebRtcSession, link: &Link) {
        let (heard, spoken, dropped) = (session.heard(), session.spoken(), link.dropped());
        let counters = heard.counters;
        for (what, total) in [
            (Count::PacketsLost, counters.lost),
            (Count::PacketsLate, counters.late),
            (Count::PacketsUnreadable, heard.unreadable + counters.refused),
            (Count::FramesRecovered, counters.recovered),
            (Count::FramesConcealed, counters.concealed),
            (Count::FramesOut, spoken.frames),
            (Count::FramesSkipped, spoken.skipped),
            (Count::FramesDropped, dropped.frames_in),
            (
                Count::MessagesDropped,
                session.messages_dropped() + dropped.messages_out,
            ),
        ] {
            self.counts.set(what, total);
        }
    }
}

/// Runs a session to its end.
pub async fn run(mut life: Life) {
    let began = tasks::now();
    let device = if life.session.is_device() { ", embedded" } else { "" };
    log::info!("session started: webrtc{device}, {}", life.session.codec());
    let mut tally = Tally {
        counts: Counts::default(),
        share: Share::begin(life.engine.sessions().metrics().clone(), Transport::WebRtc, began),
        began,
        reason: None,
        gave_way: false,
    };
    let outcome = talk(&mut life, &mut tally).await;
    // Its bot has its own time to end, and its place until then.
    life.permit.settle();
    tally.count(&life.session, &life.link);
    let Life {
        session,
        inbox,
        requests,
        link,
        bot,
        registered,
        shutdown,
        ..
    } = life;
    // Nobody can reach the session any more, and who just tried is told so; the bot learns of its end by the link.
    drop((registered, requests, inbox));
    drop(link);
    let outcome = match outcome {
        Some(outcome) => outcome,
        None => bot.finish(&shutdown).await,
    };
    let reason = tally.reason.unwrap_or(LeaveReason::Failed);
    explain(reason, &session, &tally);
    let counts = &tally.counts;
    let words = format!(
        "{:.1} s, {} packets in, {} out, {}, {} frames to the bot, {} dropped",
        (tasks::now() - began).as_secs_f64(),
        counts.get(Count::PacketsIn),
        counts.get(Count::PacketsOut),
        session.heard(),
        counts.get(Count::FramesIn),
        counts.get(Count::FramesDropped),
    );
    outcome.log(reason, &words);
    tally.share.end(counts, reason);
}

/// Says why a connection did not come to be. A client that gives up says so over HTTP, if it has a resource there.
fn explain(reason: LeaveReason, session: &WebRtcSession, tally: &Tally) {
    let unexplained = matches!(
        reason,
        LeaveReason::NeverConnected | LeaveReason::Vanished | LeaveReason::Failed | LeaveReason::Left
    );
    let Some(tried) = session.unconnected().filter(|_| unexplained) else {
        return;
    };
    if tally.gave_way {
        log::debug!("{reason}: it gave way to a newcomer; {tried}");
    } else {
        log::warn!("{reason}: {tried}");
    }
    log::debug!("tried: {}", tried.pairs());
}

/// The loop. Returns how the bot ended, if it did before the session.
async fn talk(life: &mut Life, tally: &mut Tally) -> Option<Outcome> {
    let timer = sleep_until(tasks::now().into());
    tokio::pin!(timer);
    let mut shutdown = life.shutdown.clone();
    let stop = async move { shutdown.wait().await };
    tokio::pin!(stop);
    let mut outcome = None;
    let mut stopping = false;
    while let Some(deadline) = drain(life, tally) {
        let deadline = tokio::time::Instant::from_std(deadline);
        if timer.deadline() != deadline {
            timer.as_mut().reset(deadline);
        }
        // In no order: a peer that floods its inbox, or a bot that never stops sending, must not keep the others waiting.
        tokio::select! {
            datagram = life.inbox.recv() => {
                tally.counts.add(Count::PacketsIn, 1);
                tally.counts.add(Count::BytesIn, datagram.contents.len() as u64);
                let packet = Packet {
                    over: datagram.over,
                    source: datagram.source,
                    destination: datagram.destination,
                    contents: &datagram.contents,
                };
                life.session.handle_packet(&packet, datagram.arrived);
            }
            () = life.link.notified() => hear_bot(life, tally),
            () = &mut timer => {
                let now = tasks::now();
                tally.share.served(now.saturating_duration_since(deadline.into_std()));
                life.session.handle_timeout(now);
                pull_speech(life);
            }
            () = life.permit.evicted() => {
                if life.session.has_joined() {
                    log::info!("{INQUIRY_CHECKS} checks got no answer, and a device at the same address takes the place");
                } else {
                    tally.gave_way = true;
                }
                life.session.handle_eviction(tasks::now());
            }
            Some(request) = life.requests.recv() => handle_request(life, request),
            ended = life.bot.ended(), if outcome.is_none() => {
                hear_bot(life, tally);
                life.session.handle_bot_end(ended.reason(), tasks::now());
                outcome = Some(ended);
            }
            () = &mut stop, if !stopping => {
                stopping = true;
                life.session.handle_end(LeaveReason::Shutdown, tasks::now());
            }
        }
    }
    outcome
}

/// Does what the session answers, up to its next deadline; `None` when nothing of it is left.
fn drain(life: &mut Life, tally: &mut Tally) -> Option<Instant> {
    let now = tasks::now();
    if now >= tally.share.due() {
        tally.count(&life.session, &life.link);
        tally.share.tell(&tally.counts, life.link.waiting(), now);
    }
    loop {
        match life.session.poll_output(now) {
            Output::Timeout(at) => {
                if let Some(call) = life.call.as_mut().filter(|_| life.session.is_secured()) {
                    call.secured();
                }
                return Some(at);
            }
            Output::Gone => return None,
            Output::Transmit(mut transmit) => {
                tally.counts.add(Count::PacketsOut, 1);
                let (over, source, destination) = (transmit.over, transmit.source, transmit.destination);
                let path = life.inbox.port().path(over, source, destination);
                if transmit.is_check() || transmit.is_answer() {
                    life.inbox.expect(path);
                } else {
                    life.used = Some(Used {
                        path,
                        local: source,
                        peer: destination,
                    });
                }
                let contents = transmit.contents();
                tally.counts.add(Count::BytesOut, contents.len() as u64);
                life.inbox.port().send(over, source, destination, contents);
            }
            Output::Proven(proven) => {
                let path = life.inbox.port().path(proven.over, proven.local, proven.peer);
                for other in life.inbox.prove(path) {
                    life.engine.tell(other, Rival::AtAddress);
                }
            }
            Output::Found(found) => {
                let silent = Silent {
                    heard: life.session.last_heard(),
                    ticket: life.permit.ticket(),
                };
                for inquirer in life.inquirers.drain(..).filter(|_| found == Found::Silent) {
                    // It may have given up.
                    let _ = inquirer.send(silent);
                }
            }
            Output::Audio(pcm, rate_hz) => {
                tally.counts.add(Count::FramesIn, 1);
                if let Some(call) = &mut life.call {
                    call.heard();
                }
                life.link.push_audio(pcm, rate_hz);
            }
            Output::Event(event) => {
                if event == Event::Joined {
                    life.permit.settle();
                }
                if let Some(event) = translate(event, life, tally) {
                    life.link.push(event);
                }
            }
        }
    }
}

fn translate(event: Event, life: &Life, tally: &mut Tally) -> Option<bot::Event> {
    Some(match event {
        Event::Joined => {
            log::info!("connected");
            tally.share.connected(tasks::now() - tally.began);
            tally.share.spoken(life.session.codec().name());
            if let Some(device) = life.session.device() {
                life.engine.tell_others(life.inbox.number(), Rival::Device(device));
            }
            bot::Event::Joined
        }
        Event::Message(text) => {
            tally.counts.add(Count::MessagesIn, 1);
            bot::Event::Message(text)
        }
        Event::Dtmf(key) => bot::Event::Dtmf(key),
        Event::Mark { name, played } => bot::Event::Mark { name, played },
        Event::SpeechStarted => bot::Event::SpeechStarted,
        Event::SpeechStopped => bot::Event::SpeechStopped,
        Event::Lost => {
            log::info!("nothing heard of the caller for some seconds");
            bot::Event::Lost
        }
        Event::Resumed => {
            log::info!("the caller is heard again");
            bot::Event::Resumed
        }
        Event::Left(reason) => {
            tally.reason = Some(reason);
            if let Some(call) = &life.call {
                // The end of the call is asked for when the session is gone, and the end of the runner waits for it.
                call.ended(life.engine.sessions().hang_ups().enter());
            }
            bot::Event::Left(reason)
        }
    })
}

/// Takes everything that the bot has for the session.
fn hear_bot(life: &mut Life, tally: &mut Tally) {
    let now = tasks::now();
    if let Some(audio) = life.link.audio() {
        life.session.set_rates(audio.in_rate_hz, audio.out_rate_hz, now);
    }
    if life.link.take_interruption() {
        tally.counts.add(Count::Interruptions, 1);
        life.session.handle_interruption(now);
    }
    while let Some(text) = life.link.take_message() {
        tally.counts.add(Count::MessagesOut, 1);
        life.session.handle_message(text);
    }
    pull_speech(life);
}

/// A mark is passed when the speech before it has been taken: a WebRTC peer does not say what it has played.
fn pull_speech(life: &mut Life) {
    let link = &life.link;
    for name in link.take_unplayed() {
        link.push(bot::Event::Mark { name, played: false });
    }
    loop {
        life.session
            .pull_speech(|into, samples_max| link.take_audio(into, samples_max), tasks::now());
        let Some(name) = link.take_mark() else { break };
        link.push(bot::Event::Mark { name, played: true });
    }
}

fn handle_request(life: &mut Life, request: Request) {
    let now = tasks::now();
    match request {
        Request::Renegotiate { offer, reply } => {
            let answer = life.session.renegotiate(&offer);
            rename(life);
            answered(life, answer, reply);
        }
        Request::Restart {
            offer,
            pc_id,
            former,
            reached,
            reply,
        } => {
            let session = &mut life.session;
            let answer = life
                .engine
                .with_setup(reached, |setup| session.restart(&offer, setup, now));
            if answer.is_ok() {
                log::info!("connection restarted by the client, {}", session.codec());
                life.registered.rename(pc_id, former);
            }
            answered(life, answer, reply);
        }
        Request::Candidates(lines) => {
            for line in &lines {
                life.session.add_remote_candidate(line);
            }
        }
        Request::Resource(asked, reply) => {
            let done = serve(life, asked, now);
            // A restart has given this end another name.
            rename(life);
            // The client may have gone away meanwhile.
            let _ = reply.send(done);
        }
        Request::Open => life.session.open(now),
        Request::End(reason) => life.session.handle_end(reason, now),
        Request::Rival(rival) => life.session.handle_rival(rival, now),
        Request::Inquire(inquirer) => {
            life.inquirers.retain(|other| !other.is_closed());
            if life.inquirers.len() < WAITING_OFFERS_MAX {
                life.inquirers.push(inquirer);
                life.session.handle_inquiry(now);
            }
        }
    }
}

/// Does what is asked of the session as a resource.
fn serve(life: &mut Life, asked: Asked, now: Instant) -> Result<Done, Refusal> {
    let session = &mut life.session;
    let Some(resource) = life.resource.as_mut().filter(|_| !session.is_ending()) else {
        return Err(Refusal::Offer(OfferRefusal::UnknownConnection));
    };
    match asked {
        Asked::Look => Ok(Done::Nothing),
        Asked::Leave => {
            life.resource = None;
            session.handle_leave(now);
            Ok(Done::Nothing)
        }
        Asked::Patch { if_match, body } => match resource.patch(if_match.as_deref(), &body)? {
            Patch::Trickle(candidates) => {
                for line in &candidates {
                    session.add_remote_candidate(line);
                }
                Ok(Done::Nothing)
            }
            Patch::Restart(restart) => {
                let answer = session.renegotiate(&restart.offer).map_err(refusal)?;
                log::info!("ICE restarted by the client");
                let used = life.used.map(|used| (used.local, used.peer));
                Ok(resource.handle_restart(restart, &answer, used))
            }
        },
    }
}

/// Listens under the name that this end has now; the caller sends on the old path until it has another.
fn rename(life: &mut Life) {
    let used = life.used.map(|used| used.path);
    life.inbox.rename(life.session.local_ufrag(), used);
}

/// Listens for what the answer announces, then lets the answer go.
fn answered(life: &mut Life, answer: Result<String, OfferError>, reply: Reply) {
    let answer = answer.map_err(refusal).map(|sdp| Answer {
        sdp,
        pc_id: life.registered.pc_id().to_owned(),
    });
    life.inbox.listen(life.session.local_ufrag());
    // The client may have gone away meanwhile.
    let _ = reply.send(answer);
}
