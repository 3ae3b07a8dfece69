//! Listening in: `POST /calls/ID/listen` with an offer of WebRTC, DELETE of what it answers.
//!
//! In: offers of operators, and what passes the tap of a call. Out: a connection that sends the
//! mixed sound of both sides, as `proto::calls` makes it. A task per listener mixes. Its queue is
//! bounded: one that is too slow is dropped, and the call never waits. A listener is no session: it
//! has no bot, takes no place of a caller, and ends with the call. The log of the call has a line
//! when one joins and when one leaves.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use edge_runner_http::common::{Reply, json_reply, lock, random, whole};
use hyper::StatusCode;
use hyper::header::{self, HeaderValue};
use serde_json::json;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::MissedTickBehavior;

use super::Calls;
use crate::bot::SessionId;
use crate::bot::media::{Audio, Event, Media};
use crate::features::Feature;
use crate::io::admission::PendingPermits;
use crate::io::http::body::{AcceptedBody, read};
use crate::io::http::error::{HttpError, ModuleRefusal};
use crate::io::http::lease::requester;
use crate::io::http::refusal_log::log_client;
use crate::io::module::RouteRequest;
use crate::io::tasks;
use crate::io::webrtc::WebRtc;
use crate::io::webrtc::listener::ListenerLink;
use crate::limits::{LISTENER_QUEUE, LISTENERS_MAX, LISTENERS_OF_CALL_MAX};
use crate::logging;
use crate::proto::calls::ListenerSound;
use crate::proto::calls::sound::TappedSound;
use crate::proto::http::route::{Route, RouteError};
use crate::proto::webrtc::whip::call::CallsRequest;
use crate::proto::webrtc::whip::{self, offer};

/// How often mixed sound is sent: one packet.
const FRAME: Duration = Duration::from_millis(20);

/// The calls that may be listened to, and the permits of all listeners.
pub struct Listening {
    calls: Mutex<BTreeMap<SessionId, Arc<CallListeners>>>,
    permits: PendingPermits,
}

/// The listeners of one call.
pub struct CallListeners {
    call: SessionId,
    /// The name of its bot, of several.
    bot: Option<Arc<str>>,
    /// The rate of their sound, in Hz.
    rate_hz: u32,
    calls: Weak<Calls>,
    state: Mutex<ListenerQueues>,
}

#[derive(Default)]
struct ListenerQueues {
    /// The call is over.
    is_closed: bool,
    queues: Vec<ListenerQueue>,
}

struct ListenerQueue {
    id: Arc<str>,
    sound: Sender<(Instant, TappedSound)>,
    /// `None` until its offer is answered.
    link: Option<ListenerLink>,
}

/// The place of a listener. Dropping it ends the listener.
struct ListenerPlace {
    listeners: Arc<CallListeners>,
    id: Arc<str>,
    link: Option<ListenerLink>,
}

/// Why a call has no place for a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NoPlace {
    Ended,
    Full,
}

impl Default for Listening {
    fn default() -> Self {
        Listening {
            calls: Mutex::default(),
            permits: PendingPermits::of_requests(LISTENERS_MAX),
        }
    }
}

impl Listening {
    /// Lets operators listen to a call from now on.
    pub fn begin(&self, id: &SessionId, bot: Option<Arc<str>>, rate_hz: u32, calls: Weak<Calls>) -> Arc<CallListeners> {
        let listeners = Arc::new(CallListeners {
            call: id.clone(),
            bot,
            rate_hz,
            calls,
            state: Mutex::default(),
        });
        lock(&self.calls).insert(id.clone(), listeners.clone());
        listeners
    }

    /// Forgets a call that is over.
    pub fn end(&self, id: &SessionId) {
        lock(&self.calls).remove(id);
    }

    fn find(&self, id: &str) -> Option<Arc<CallListeners>> {
        lock(&self.calls).get(id).cloned()
    }
}

impl CallListeners {
    /// Returns whether no one listens.
    pub fn is_empty(&self) -> bool {
        lock(&self.state).queues.is_empty()
    }

    /// Sends what passed the tap. A listener whose queue is full is dropped: what is missing may be
    /// a key, whose sound it must not get.
    pub fn send(&self, tapped: &TappedSound, now: Instant) {
        lock(&self.state)
            .queues
            .retain(|queue| match queue.sound.try_send((now, tapped.clone())) {
                Ok(()) => true,
                Err(TrySendError::Closed(_)) => false,
                Err(TrySendError::Full(_)) => {
                    log::warn!("a listener is dropped: the runner is too slow to send it the sound of this call");
                    false
                }
            });
    }

    /// Tells all listeners that the call is over; no further one is taken.
    pub fn close(&self) {
        let mut state = lock(&self.state);
        state.is_closed = true;
        state.queues.clear();
    }

    /// Takes a place for a listener, and returns it with the sound for it.
    fn add(self: &Arc<Self>) -> Result<(ListenerPlace, Receiver<(Instant, TappedSound)>), NoPlace> {
        let mut state = lock(&self.state);
        state.queues.retain(|queue| !queue.sound.is_closed());
        match state.is_closed {
            true => return Err(NoPlace::Ended),
            false if state.queues.len() >= LISTENERS_OF_CALL_MAX => return Err(NoPlace::Full),
            false => {}
        }
        let (sound, waiting) = channel(LISTENER_QUEUE);
        let id: Arc<str> = format!("{:032x}", u128::from_be_bytes(random())).into();
        state.queues.push(ListenerQueue {
            id: id.clone(),
            sound,
            link: None,
        });
        let listeners = self.clone();
        let place = ListenerPlace {
            listeners,
            id,
            link: None,
        };
        Ok((place, waiting))
    }

    /// Ends a listener; returns whether it listens.
    fn end(&self, id: &str) -> bool {
        let state = lock(&self.state);
        let queue = state.queues.iter().find(|queue| *queue.id == *id);
        queue
            .and_then(|queue| queue.link.as_ref())
            .map(ListenerLink::end)
            .is_some()
    }
}

impl ListenerPlace {
    fn set_link(&mut self, link: ListenerLink) {
        self.link = Some(link.clone());
        let mut state = lock(&self.listeners.state);
        if let Some(queue) = state.queues.iter_mut().find(|queue| queue.id == self.id) {
            queue.link = Some(link);
        }
    }

    fn end(&self) {
        if let Some(link) = &self.link {
            link.end();
        }
    }
}

impl Drop for ListenerPlace {
    fn drop(&mut self) {
        self.end();
        lock(&self.listeners.state).queues.retain(|queue| queue.id != self.id);
    }
}

/// Answers the requests of listeners.
pub async fn answer(calls: &Calls, request: RouteRequest<'_>) -> Result<Reply, HttpError> {
    if !calls.config.listen_in {
        let detail = "this runner lets no one listen in: it was started without --listen-in";
        return Err(ModuleRefusal::new(StatusCode::NOT_FOUND, detail).into());
    }
    match request.route {
        Route::Listen(ref id) => {
            let id = id.clone();
            listen(calls, &id, request).await
        }
        Route::EndListening(id, listener) => {
            let is_ended = calls.listening.find(&id).is_some_and(|call| call.end(&listener));
            match is_ended {
                true => Ok(json_reply(StatusCode::OK, json!({"ended": listener}).to_string())),
                false => Err(ModuleRefusal::new(StatusCode::NOT_FOUND, "no such listener hears this call").into()),
            }
        }
        _ => Err(HttpError::Route(RouteError::NotFound)),
    }
}

async fn listen(calls: &Calls, id: &str, request: RouteRequest<'_>) -> Result<Reply, HttpError> {
    let RouteRequest {
        app, head, body, peer, ..
    } = request;
    let Some(call) = calls.listening.find(id) else {
        let is_live = lock(&calls.log).live(id).is_some();
        let (status, detail) = match is_live {
            true => (
                StatusCode::FORBIDDEN,
                "no one may listen to this call: its start declined it by `\"record\": false`, or its sound does not pass \
                 the runner",
            ),
            false => (StatusCode::NOT_FOUND, "no live call has this id"),
        };
        return Err(ModuleRefusal::new(status, detail).into());
    };
    let kind = head
        .headers
        .get(header::CONTENT_TYPE)
        .map_or(&b""[..], HeaderValue::as_bytes);
    let body = read(app.conn_limits, &head.headers, AcceptedBody::Anything, body).await?;
    let sdp = CallsRequest::from_sdp(kind, &body)?.sdp;
    drop(body);
    offer::check_listener(&sdp)?;
    let webrtc = app.module::<WebRtc>(Feature::WebRtc)?;
    let full = |detail: String| ModuleRefusal::new(StatusCode::SERVICE_UNAVAILABLE, detail).with_retry();
    let (mut place, sound) = call.add().map_err(|why| match why {
        NoPlace::Ended => ModuleRefusal::new(StatusCode::NOT_FOUND, "this call is over"),
        NoPlace::Full => full(format!("{LISTENERS_OF_CALL_MAX} listen to this call, as many as may")),
    })?;
    let requester = requester(peer, None);
    let permit = calls.listening.permits.admit(requester);
    let permit = permit.map_err(|_| {
        full(format!(
            "{LISTENERS_MAX} listen to calls of this runner, as many as may"
        ))
    })?;
    let listener = place.id.clone();
    let name = SessionId::from(format!("listener-{}", listener.get(..8).unwrap_or_default()));
    let client = log_client(app, peer);
    let connected = webrtc
        .listen(&sdp, requester, permit, name, client)
        .map_err(HttpError::Offer)?;
    place.set_link(connected.link);
    let media = connected.slot.open(Audio::at(call.rate_hz));
    tasks::spawn(logging::in_session(SessionId::from(id), play(place, sound, media)));
    let mut reply = Reply::new(whole(connected.answer));
    *reply.status_mut() = StatusCode::CREATED;
    let headers = reply.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(whip::SDP));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    let path = head.uri.path().trim_end_matches('/');
    if let Ok(location) = HeaderValue::from_str(&format!("{path}/{listener}")) {
        headers.insert(header::LOCATION, location);
    }
    Ok(reply)
}

/// Sends the sound of a call to one listener until either of them is gone.
async fn play(place: ListenerPlace, mut sound: Receiver<(Instant, TappedSound)>, mut media: Media) {
    place.listeners.bot.iter().for_each(logging::set_bot);
    let mut mixed = ListenerSound::new(place.listeners.rate_hz, tasks::now());
    let mut frames = tokio::time::interval(FRAME);
    frames.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut joined = None;
    let mut is_over = false;
    loop {
        tokio::select! {
            event = media.recv() => match event {
                Some(Event::Joined) => joined = Some(join(&place)),
                // What a listener sends goes nowhere.
                Some(_) => {}
                None => break,
            },
            tapped = sound.recv(), if !is_over => match tapped {
                Some((at, tapped)) => mixed.handle(&tapped, at),
                None => {
                    is_over = true;
                    mixed.handle_end(tasks::now());
                }
            },
            _ = frames.tick() => {
                let now = tasks::now();
                let pcm = mixed.take(now);
                // What passed before it joined is not for it.
                if joined.is_some() && media.send_audio(pcm).await.is_err() {
                    break;
                }
                if mixed.is_over(now) {
                    place.end();
                }
            }
        }
    }
    drop(place);
    if let Some(joined) = joined {
        let seconds = tasks::now().saturating_duration_since(joined).as_secs_f64();
        log::info!("a listener left this call after {seconds:.1} s");
    }
}

/// Notes in the log and in the record that a listener has joined.
fn join(place: &ListenerPlace) -> Instant {
    log::info!("a listener joined this call (--listen-in)");
    if let Some(calls) = place.listeners.calls.upgrade()
        && let Some(call) = lock(&calls.log).live(&place.listeners.call)
    {
        call.handle_listener();
    }
    tasks::now()
}

#[cfg(test)]
mod tests;
