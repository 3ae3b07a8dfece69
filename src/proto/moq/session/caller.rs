//! The caller's broadcast: its catalog names the audio, its records are messages for the bot.
//!
//! In: events of the peer. Out: subscriptions, packets for the jitter buffer, and events for the
//! bot. The audio follows the catalog, whatever it is named. A track that is missing is asked for
//! again.

use std::time::{Duration, Instant};

use bytes::Bytes;

use super::diagnosis::MoqProgress;
use super::group_sequencer::GroupSequencer;
use super::uplink::Uplink;
use super::{AudioStart, MoqPhase, MoqSession, MoqSessionMode};
use crate::event::{LeaveReason, SessionEvent};
use crate::limits::CALL_DEAF_AFTER;
use crate::moq::catalog::{AudioRendition, CATALOG_TRACK, CatalogAudio, CatalogReader};
use crate::moq::media_frame::MediaFrame;
use crate::moq::peer::{MoqEvent, MoqPeer, MoqSubscribeOptions, MoqSubscriptionId, MoqTrackKind};
use crate::moq::record_log::{MoqRecord, RECORD_TRACK, RecordReader, SESSION_ENDING_TYPE};
use crate::session::Session;

/// Time that a publisher may delay audio behind newer audio: that of Pipecat. With less, a
/// publisher drops packets that the jitter buffer waits for.
const AUDIO_LATENCY_MAX: Duration = Duration::from_millis(500);
/// The catalog and the records are not dropped while they are late.
const LOSSLESS_LATENCY: Duration = Duration::from_secs(30);
/// Priorities of the subscriptions: what is needed first, and then audio before texts.
const CATALOG_PRIORITY: u8 = 100;
const AUDIO_PRIORITY: u8 = 80;
const RECORDS_PRIORITY: u8 = 60;
/// Time that a caller has to leave once it has said so. Some programs exit before they close their
/// connection, and a relay notices it after half a minute.
const LEAVE_WITHIN: Duration = Duration::from_secs(1);
/// Time until a track that ended or does not exist is asked for again.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Such requests of one track in a row: a caller that has no records is asked for half a minute.
const RETRIES_MAX: u32 = 30;

/// One track of the caller.
#[derive(Debug, Default)]
struct CallerTrack {
    subscription: Option<MoqSubscriptionId>,
    /// The publisher accepted the subscription.
    is_accepted: bool,
    retry_at: Option<Instant>,
    retries: u32,
}

impl CallerTrack {
    fn is(&self, subscription: MoqSubscriptionId) -> bool {
        self.subscription == Some(subscription)
    }

    fn begin(&mut self, subscription: MoqSubscriptionId) {
        self.subscription = Some(subscription);
        self.is_accepted = false;
        self.retry_at = None;
    }

    /// Handles the end of the subscription.
    fn handle_end(&mut self, now: Instant) {
        self.subscription = None;
        if self.retries < RETRIES_MAX {
            self.retries += 1;
            self.retry_at = Some(now + RETRY_AFTER);
        }
    }

    /// Returns whether it is time to subscribe again.
    fn take_retry(&mut self, now: Instant) -> bool {
        self.retry_at.take_if(|at| now >= *at).is_some()
    }
}

/// What is known of the caller's broadcast.
#[derive(Default)]
pub struct CallerBroadcast {
    pub is_announced: bool,
    /// When the caller, which has said that its session ends, is taken as gone.
    pub leaves_at: Option<Instant>,
    catalog: CallerTrack,
    records: CallerTrack,
    audio: CallerTrack,
    rendition: Option<AudioRendition>,
    catalog_reader: CatalogReader,
    record_reader: RecordReader,
    record_group: Option<u64>,
    sequencer: GroupSequencer,
    /// The unsupported audio that was logged.
    unsupported: Option<String>,
    /// Frames that could not be read.
    rejected: u64,
}

impl CallerBroadcast {
    pub fn poll_timeout(&self) -> Option<Instant> {
        let tracks = [&self.catalog, &self.records, &self.audio];
        let retries = tracks.into_iter().filter_map(|track| track.retry_at);
        retries.chain(self.leaves_at).min()
    }

    /// Forgets the subscriptions. What was read of the records is remembered.
    pub fn reset(&mut self) {
        *self = CallerBroadcast {
            record_reader: std::mem::take(&mut self.record_reader),
            rejected: self.rejected,
            ..CallerBroadcast::default()
        };
    }

    /// Ends the subscriptions.
    pub fn unsubscribe(&mut self, peer: &mut MoqPeer, uplink: &mut Uplink) {
        for track in [&mut self.catalog, &mut self.records, &mut self.audio] {
            if let Some(subscription) = track.subscription.take() {
                peer.unsubscribe(subscription, uplink);
            }
        }
    }

    /// Logs a frame that cannot be read. The intervals of the lines grow.
    fn reject(&mut self, what: &str, why: &dyn std::fmt::Display) {
        self.rejected += 1;
        if self.rejected.is_power_of_two() {
            log::warn!("{what} of the caller ignored: {why}");
        }
    }
}

impl MoqSession {
    /// Handles an event of the peer.
    pub(super) fn handle_peer_event(&mut self, event: MoqEvent, now: Instant) {
        match event {
            MoqEvent::Announced { path } if path == self.setup.caller_path() => self.handle_announced(now),
            MoqEvent::Retracted { path } if path == self.setup.caller_path() => self.handle_retracted(now),
            MoqEvent::Subscribed { track } if self.bot.is_audio(track) => self.start_audio(now),
            MoqEvent::Frame {
                subscription,
                group,
                payload,
            } => self.handle_frame(subscription, group, &payload, now),
            MoqEvent::GroupEnded {
                subscription,
                group,
                is_reset,
            } => {
                if self.caller.audio.is(subscription) {
                    self.caller.sequencer.handle_group_ended(group, is_reset);
                }
            }
            MoqEvent::Accepted { subscription } => {
                let caller = &mut self.caller;
                for track in [&mut caller.catalog, &mut caller.records, &mut caller.audio] {
                    track.is_accepted |= track.is(subscription);
                }
            }
            MoqEvent::Ended { subscription, code } => self.handle_track_end(subscription, code, now),
            MoqEvent::Violation(reason) => self.handle_violation(&reason, now),
            // It serves until it closes the connection, and its successor may not be there yet.
            MoqEvent::GoingAway => log::info!("the other end of the connection shuts down soon"),
            MoqEvent::Announced { .. } | MoqEvent::Retracted { .. } | MoqEvent::Subscribed { .. } => {}
        }
    }

    /// Handles the announcement of the caller's broadcast.
    pub(super) fn handle_announced(&mut self, now: Instant) {
        if self.is_ending() || std::mem::replace(&mut self.caller.is_announced, true) {
            return;
        }
        self.progress.advance(MoqProgress::Announced);
        self.subscribe_to_catalog();
        self.subscribe_to_records();
        if let MoqPhase::Waiting { .. } | MoqPhase::Lost { .. } = self.phase {
            self.phase = MoqPhase::Live;
        }
        if std::mem::replace(&mut self.has_joined, true) {
            log::info!("the caller is back");
            self.push_event(SessionEvent::Restored);
        } else {
            log::info!("connected");
            self.push_event(SessionEvent::Joined);
            self.deaf_at = Some(now + CALL_DEAF_AFTER);
        }
        self.audio_start = AudioStart::Due(now + super::AUDIO_START_WITHIN);
        if self.bot.has_audio_subscriber() {
            self.start_audio(now);
        }
        if let Some(reason) = self.early_end.take() {
            self.handle_bot_end(reason, now);
        }
    }

    /// Handles the end of the caller's broadcast. Behind a relay it may come back.
    fn handle_retracted(&mut self, now: Instant) {
        if !std::mem::take(&mut self.caller.is_announced) || self.is_ending() {
            return;
        }
        if self.setup.mode == MoqSessionMode::Serve || self.caller.leaves_at.is_some() {
            return self.handle_caller_gone(LeaveReason::Left, now);
        }
        if let Some(peer) = self.bot.peer() {
            self.caller.unsubscribe(peer, &mut self.uplink);
        }
        self.handle_outage(now);
    }

    fn subscribe(&mut self, track: &str, kind: MoqTrackKind) -> Option<MoqSubscriptionId> {
        let (priority, max_latency) = match kind {
            MoqTrackKind::Snapshot => (CATALOG_PRIORITY, LOSSLESS_LATENCY),
            MoqTrackKind::Live => (AUDIO_PRIORITY, AUDIO_LATENCY_MAX),
            MoqTrackKind::Log => (RECORDS_PRIORITY, LOSSLESS_LATENCY),
        };
        let options = MoqSubscribeOptions {
            kind,
            priority,
            max_latency,
        };
        let path = self.setup.caller_path();
        let peer = self.bot.peer()?;
        Some(peer.subscribe(&path, track, options, &mut self.uplink))
    }

    fn subscribe_to_catalog(&mut self) {
        if let Some(subscription) = self.subscribe(CATALOG_TRACK, MoqTrackKind::Snapshot) {
            self.caller.catalog.begin(subscription);
            self.caller.catalog_reader = CatalogReader::default();
        }
    }

    fn subscribe_to_records(&mut self) {
        if let Some(subscription) = self.subscribe(RECORD_TRACK, MoqTrackKind::Log) {
            self.caller.records.begin(subscription);
            self.caller.record_reader.restart();
            self.caller.record_group = None;
        }
    }

    fn subscribe_to_audio(&mut self) {
        let Some(name) = self.caller.rendition.as_ref().map(|it| it.name.clone()) else {
            return;
        };
        if let Some(subscription) = self.subscribe(&name, MoqTrackKind::Live) {
            self.caller.audio.begin(subscription);
            self.caller.sequencer = GroupSequencer::default();
            self.audio_receiver.handle_restart();
        }
    }

    /// Returns what the caller's audio is, if it cannot be received.
    pub(super) fn unsupported_audio(&self) -> Option<&str> {
        self.caller.unsupported.as_deref()
    }

    /// Asks again for tracks that ended or did not exist.
    pub(super) fn resubscribe(&mut self, now: Instant) {
        if !self.caller.is_announced || self.is_ending() {
            return;
        }
        if self.caller.catalog.take_retry(now) {
            self.subscribe_to_catalog();
        }
        if self.caller.records.take_retry(now) {
            self.subscribe_to_records();
        }
        if self.caller.audio.take_retry(now) {
            self.subscribe_to_audio();
        }
    }

    /// Handles the end of a track. The records end with the caller's session; the others may come
    /// back.
    fn handle_track_end(&mut self, subscription: MoqSubscriptionId, code: Option<u32>, now: Instant) {
        let caller = &mut self.caller;
        if caller.records.is(subscription) {
            let (was_accepted, is_serving) = (caller.records.is_accepted, self.setup.mode == MoqSessionMode::Serve);
            caller.records.handle_end(now);
            if was_accepted && is_serving && !self.is_ending() {
                self.handle_caller_gone(LeaveReason::Left, now);
            }
        } else if caller.catalog.is(subscription) {
            // A finished catalog is the last one.
            match code {
                None => caller.catalog.subscription = None,
                Some(_) => caller.catalog.handle_end(now),
            }
        } else if caller.audio.is(subscription) {
            caller.audio.handle_end(now);
        } else {
            return;
        }
        log::debug!("a track of the caller ended: {code:?}");
    }

    fn handle_frame(&mut self, subscription: MoqSubscriptionId, group: u64, payload: &Bytes, now: Instant) {
        if self.is_ending() {
            return;
        }
        if self.caller.audio.is(subscription) {
            self.handle_audio_frame(group, payload, now);
        } else if self.caller.records.is(subscription) {
            self.handle_record(group, payload, now);
        } else if self.caller.catalog.is(subscription) {
            self.handle_catalog(group, payload, now);
        }
    }

    fn handle_audio_frame(&mut self, group: u64, payload: &Bytes, now: Instant) {
        // `moq-rs` 0.5 ends a track with a frame that has only a timestamp.
        let Some(frame) = MediaFrame::read(payload) else {
            return log::debug!("audio frame without a payload");
        };
        self.progress.advance(MoqProgress::Audio);
        self.caller.audio.retries = 0;
        if let Some(sequence) = self.caller.sequencer.next(group) {
            self.audio_receiver
                .handle_payload(sequence, frame.ticks(), &frame.payload, now);
        }
    }

    fn handle_catalog(&mut self, group: u64, payload: &[u8], now: Instant) {
        match self.caller.catalog_reader.read(group, payload) {
            Ok(()) => {}
            Err(error) if error.is_fatal() => return self.handle_violation(&format!("catalog: {error}"), now),
            Err(error) => return self.caller.reject("catalog", &error),
        }
        self.progress.advance(MoqProgress::Catalog);
        self.deaf_at = None;
        self.caller.catalog.retries = 0;
        let wanted = match self.caller.catalog_reader.audio() {
            CatalogAudio::Absent => None,
            CatalogAudio::Opus(rendition) => Some(rendition.clone()),
            CatalogAudio::Unsupported(names) => {
                if self.caller.unsupported.as_ref() != Some(names) {
                    log::warn!("the caller's audio cannot be received: {names}; it must be Opus in `legacy`");
                    self.caller.unsupported = Some(names.clone());
                }
                None
            }
        };
        let is_same = wanted.as_ref().map(|it| &it.name) == self.caller.rendition.as_ref().map(|it| &it.name);
        self.caller.rendition = wanted;
        if is_same && self.caller.audio.subscription.is_some() {
            return;
        }
        let former = self.caller.audio.subscription.take();
        self.caller.audio = Default::default();
        if let (Some(former), Some(peer)) = (former, self.bot.peer()) {
            peer.unsubscribe(former, &mut self.uplink);
        }
        if let Some(rendition) = &self.caller.rendition {
            log::debug!("receiving audio with {} channels", rendition.channels);
        }
        self.subscribe_to_audio();
    }

    fn handle_record(&mut self, group: u64, payload: &[u8], now: Instant) {
        match self.caller.record_group {
            Some(current) if group < current => return,
            Some(current) if group > current => self.caller.record_reader.start_group(),
            _ => {}
        }
        self.caller.record_group = Some(group);
        self.caller.records.retries = 0;
        match self.caller.record_reader.read(payload) {
            Ok(Some(MoqRecord::Message(text))) => self.push_event(SessionEvent::Message(text)),
            Ok(Some(MoqRecord::Control(kind))) => {
                log::debug!("record for the transport: {:.40}", kind);
                if kind == SESSION_ENDING_TYPE {
                    self.caller.leaves_at.get_or_insert(now + LEAVE_WITHIN);
                }
            }
            Ok(None) => {}
            Err(error) if error.is_fatal() => self.handle_violation(&format!("record: {error}"), now),
            Err(error) => self.caller.reject("record", &error),
        }
    }
}
