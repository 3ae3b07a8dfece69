//! The tracks that this end publishes, with what each keeps for later subscribers.

use crate::moq::varint::write_varint;

use super::MoqTrackKind;

/// Bytes that a log keeps: the records of about three hours of conversation, compressed. Later
/// subscribers are rejected once it had more.
pub const LOG_BYTES_MAX: usize = 2 * 1024 * 1024;

/// A track with the bytes of its kept group, as they are on the wire behind the group's header.
#[derive(Debug)]
pub struct PublishedTrack {
    pub name: String,
    pub kind: MoqTrackKind,
    pub is_finished: bool,
    /// The start of a log was dropped.
    pub is_truncated: bool,
    /// Frames in the open group of a live track; 0 without one.
    pub frames_in_group: usize,
    /// The sequence of the next group.
    next_sequence: u64,
    /// The kept group is without this many bytes at its start.
    dropped: u64,
    kept: Vec<u8>,
}

impl PublishedTrack {
    pub fn new(name: &str, kind: MoqTrackKind) -> Self {
        Self {
            name: name.to_owned(),
            kind,
            is_finished: false,
            is_truncated: false,
            frames_in_group: 0,
            next_sequence: 0,
            dropped: 0,
            kept: Vec::new(),
        }
    }

    /// Returns the sequence of the next group of a live track, or of a snapshot.
    pub fn take_sequence(&mut self) -> u64 {
        self.next_sequence += 1;
        self.next_sequence - 1
    }

    /// Adds a frame to what is kept, and returns the sequence of its group. A snapshot replaces
    /// the one before.
    pub fn keep(&mut self, frame: &[u8]) -> u64 {
        let sequence = match self.kind {
            MoqTrackKind::Log => {
                self.next_sequence = 1;
                0
            }
            MoqTrackKind::Live | MoqTrackKind::Snapshot => {
                self.kept.clear();
                self.take_sequence()
            }
        };
        write_varint(frame.len() as u64, &mut self.kept);
        self.kept.extend_from_slice(frame);
        sequence
    }

    pub fn next_sequence(&self) -> u64 {
        self.next_sequence
    }

    /// The sequence of the kept group.
    pub fn kept_sequence(&self) -> Option<u64> {
        match self.kind {
            MoqTrackKind::Live => None,
            MoqTrackKind::Snapshot | MoqTrackKind::Log => self.next_sequence.checked_sub(1),
        }
    }

    /// What follows `position` bytes of the kept group's stream, which begins with `header`.
    /// `None` if nothing follows yet.
    pub fn unsent<'a>(&'a self, header: &'a [u8], position: u64) -> Option<&'a [u8]> {
        let length = header.len() as u64;
        let rest = match position.checked_sub(length) {
            None => header.get(position as usize..)?,
            Some(of_group) => self.kept.get(of_group.checked_sub(self.dropped)? as usize..)?,
        };
        (!rest.is_empty()).then_some(rest)
    }

    /// Whether a log keeps more than its limit.
    pub fn is_over_its_limit(&self) -> bool {
        self.kind == MoqTrackKind::Log && self.kept.len() > LOG_BYTES_MAX
    }

    /// Drops the bytes of a log below `sent`, the least that a subscriber has; without a
    /// subscriber all of them.
    pub fn drop_until(&mut self, sent: Option<u64>) {
        let kept = self.kept.len() as u64;
        let count = sent.map_or(kept, |sent| sent.saturating_sub(self.dropped).min(kept));
        self.kept.drain(..count as usize);
        self.kept.shrink_to_fit();
        self.dropped += count;
        self.is_truncated |= count > 0;
    }

    /// Forgets the frames of a log, whose group then begins again.
    pub fn restart(&mut self) {
        self.kept = Vec::new();
        self.dropped = 0;
        self.is_truncated = false;
        self.next_sequence = 0;
    }
}
