//! The bot's broadcast: its catalog, which is written once, its audio and its records.
//!
//! In: encoded packets, messages, and events of the connection. Out: frames of the tracks. The
//! broadcast outlives connections: its media clock and its log go on with the next one.

use std::collections::VecDeque;
use std::time::Instant;

use super::media_clock::MediaClock;
use super::uplink::Uplink;
use crate::audio::sender::EncodedPacket;
use crate::limits::{MESSAGE_BYTES_MAX, MESSAGES_OUT_BYTES_MAX, MESSAGES_OUT_MAX};
use crate::moq::catalog::{BOT_AUDIO_TRACK, BOT_CATALOG, CATALOG_TRACK};
use crate::moq::link::LinkEvent;
use crate::moq::media_frame::write_media_frame;
use crate::moq::peer::{MoqEvent, MoqPeer, MoqTrackId, MoqTrackKind};
use crate::moq::record_log::{RECORD_TRACK, RecordWriter, SESSION_ENDING};

/// This end of the MoQ session, with its tracks.
struct PublishingPeer {
    peer: MoqPeer,
    catalog: MoqTrackId,
    audio: MoqTrackId,
    records: MoqTrackId,
}

/// The bot's broadcast.
pub struct BotBroadcast {
    /// `None` before the caller of serve mode has arrived.
    publishing: Option<Box<PublishingPeer>>,
    clock: MediaClock,
    writer: RecordWriter,
    /// The epoch of `writer`.
    epoch: u64,
    /// Messages that wait for `publishing`.
    messages: VecDeque<String>,
    message_bytes: usize,
    dropped: u64,
    /// The log says that messages were dropped because too many waited.
    is_overflow_logged: bool,
    /// The frame that is being written; kept for its capacity.
    frame: Vec<u8>,
}

impl BotBroadcast {
    pub fn new(epoch: u64) -> Self {
        BotBroadcast {
            publishing: None,
            clock: MediaClock::default(),
            writer: RecordWriter::new(epoch),
            epoch,
            messages: VecDeque::new(),
            message_bytes: 0,
            dropped: 0,
            is_overflow_logged: false,
            frame: Vec::new(),
        }
    }

    /// Takes the peer that publishes the broadcast.
    pub fn begin(&mut self, mut peer: MoqPeer, now: Instant) {
        let catalog = peer.add_track(CATALOG_TRACK, MoqTrackKind::Snapshot);
        let audio = peer.add_track(BOT_AUDIO_TRACK, MoqTrackKind::Live);
        let records = peer.add_track(RECORD_TRACK, MoqTrackKind::Log);
        // Nothing is sent before the broadcast is published.
        peer.write(catalog, BOT_CATALOG.as_bytes(), now, &mut Uplink::default());
        self.publishing = Some(Box::new(PublishingPeer {
            peer,
            catalog,
            audio,
            records,
        }));
    }

    /// Announces the broadcast.
    pub fn publish(&mut self, path: &str, uplink: &mut Uplink) {
        if let Some(publishing) = &mut self.publishing {
            publishing.peer.publish(path, uplink);
        }
    }

    /// Begins again on the next connection. A log that lost its start cannot be replayed: it begins
    /// again, under a new epoch.
    pub fn reconnect(&mut self, origin: u64) {
        let Some(publishing) = &mut self.publishing else {
            return;
        };
        publishing.peer.reconnect(origin);
        self.clock.reconnect();
        if publishing.peer.is_truncated(publishing.records) {
            log::info!("the log of records is too long to be replayed; it begins again");
            publishing.peer.restart(publishing.records);
            self.epoch = self.epoch.wrapping_add(1);
            self.writer = RecordWriter::new(self.epoch);
        }
    }

    /// Returns this end of the MoQ session.
    pub fn peer(&mut self) -> Option<&mut MoqPeer> {
        self.publishing.as_mut().map(|publishing| &mut publishing.peer)
    }

    pub fn handle_event(&mut self, event: LinkEvent, uplink: &mut Uplink) {
        if let Some(publishing) = &mut self.publishing {
            publishing.peer.handle_event(event, uplink);
        }
    }

    pub fn poll_event(&mut self, uplink: &mut Uplink) -> Option<MoqEvent> {
        self.publishing.as_mut()?.peer.poll_event(uplink)
    }

    pub fn poll_timeout(&self) -> Option<Instant> {
        self.publishing.as_ref()?.peer.poll_timeout()
    }

    pub fn handle_timeout(&mut self, now: Instant) {
        if let Some(publishing) = &mut self.publishing {
            publishing.peer.handle_timeout(now);
        }
    }

    pub fn is_audio(&self, track: MoqTrackId) -> bool {
        self.publishing.as_ref().is_some_and(|it| it.audio == track)
    }

    pub fn has_audio_subscriber(&self) -> bool {
        self.publishing
            .as_ref()
            .is_some_and(|it| it.peer.has_subscriber(it.audio))
    }

    /// Sends one packet of the bot's audio. Towards a relay it shares its group with others: see
    /// `MoqPeer::set_frames_per_group`.
    pub fn write_audio(&mut self, packet: &EncodedPacket<'_>, now: Instant, uplink: &mut Uplink) {
        let Some(publishing) = &mut self.publishing else {
            return;
        };
        self.frame.clear();
        write_media_frame(self.clock.timestamp_us(now), packet.payload, &mut self.frame);
        publishing.peer.write(publishing.audio, &self.frame, now, uplink);
    }

    /// Drops the audio that waits for the connection.
    pub fn drop_audio(&mut self) {
        if let Some(publishing) = &mut self.publishing {
            publishing.peer.drop_live();
        }
    }

    /// Queues a message until the next output, or until the caller of serve mode has arrived.
    /// Beyond the limits the oldest is dropped.
    pub fn push_message(&mut self, text: String) {
        if text.len() > MESSAGE_BYTES_MAX {
            log::warn!(
                "message dropped: {} bytes, a caller takes {MESSAGE_BYTES_MAX}",
                text.len()
            );
            self.dropped += 1;
            return;
        }
        self.message_bytes += text.len();
        self.messages.push_back(text);
        while self.messages.len() > MESSAGES_OUT_MAX || self.message_bytes > MESSAGES_OUT_BYTES_MAX {
            let oldest = self.messages.pop_front();
            self.message_bytes -= oldest.map_or(0, |text| text.len());
            self.dropped += 1;
            if !std::mem::replace(&mut self.is_overflow_logged, true) {
                log::warn!(
                    "the oldest messages are dropped: more than {MESSAGES_OUT_MAX} wait for the caller, or \
                     {MESSAGES_OUT_BYTES_MAX} bytes"
                );
            }
        }
    }

    /// Appends the queued messages to the log.
    pub fn send_messages(&mut self, now: Instant, uplink: &mut Uplink) {
        let Some(publishing) = &mut self.publishing else {
            return;
        };
        while let Some(text) = self.messages.pop_front() {
            self.message_bytes -= text.len();
            match self.writer.append(&text) {
                Some(frame) => publishing.peer.write(publishing.records, &frame, now, uplink),
                None => {
                    self.dropped += 1;
                    // The intervals of the lines grow, since a bot can send any number.
                    if self.dropped.is_power_of_two() {
                        log::warn!("message dropped: callers of Media over QUIC take JSON objects only");
                    }
                }
            }
        }
    }

    /// Appends the record that tells the caller about the end.
    pub fn announce_end(&mut self, now: Instant, uplink: &mut Uplink) {
        self.send_messages(now, uplink);
        if let (Some(publishing), Some(frame)) = (&mut self.publishing, self.writer.append(SESSION_ENDING)) {
            publishing.peer.write(publishing.records, &frame, now, uplink);
        }
    }

    /// Ends the tracks, then the broadcast.
    pub fn finish(&mut self, uplink: &mut Uplink) {
        if let Some(publishing) = &mut self.publishing {
            for track in [publishing.audio, publishing.records, publishing.catalog] {
                publishing.peer.finish(track, uplink);
            }
            publishing.peer.retract(uplink);
        }
    }

    pub fn messages_dropped(&self) -> u64 {
        self.dropped
    }
}
