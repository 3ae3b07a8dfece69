//! Reorders the caller's audio packets without delaying packets that arrive in order.
//!
//! In: RTP packets of one codec (extended sequence number, extended timestamp, payload) with their
//! arrival time. Out, by [`JitterBuffer::poll_output`]: the steps of the decoder, in order. The
//! next packet in order is released at once, since a bot needs speech early and no even playout.
//! While one is missing, later packets wait for a time that follows the arrival jitter. Then the
//! gap is filled (in-band FEC of the next packet for the last lost one, concealment for up to
//! `CONCEALED_FRAMES_MAX`) or reported as [`JitterOutput::Gap`]. Late packets, duplicates and
//! oversized payloads are dropped and counted. A sender that restarts is followed. Source: RFC 3550
//! (jitter: section 6.4.1; sequence numbers: appendix A.1), RFC 7587.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::audio::codec::Codec;
use crate::limits::{CONCEALED_FRAMES_MAX, JITTER_WAIT_MAX, OPUS_RECEIVED_BYTES_MAX};

/// Packets held while an earlier one is missing; more in one gap are a burst, not a reordering.
const JITTER_HELD_MAX: usize = 16;
/// Shortest wait for a missing packet: the duration of one packet, so that swapped neighbours are
/// put in order.
const JITTER_WAIT_MIN: Duration = Duration::from_millis(20);
/// Distance by which a sequence number may lag before it indicates a restarted sender (RFC 3550
/// appendix A.1).
const RTP_MISORDER_MAX: u64 = 100;
/// Distance by which a sequence number may be ahead; one further ahead is of a restarted sender
/// (MAX_DROPOUT of RFC 3550 appendix A.1), and nothing is lost.
const RTP_DROPOUT_MAX: u64 = 3_000;
/// The index of a packet has 48 bits (RFC 3711 section 3.3.1). What str0m extends to a greater
/// number lies before the first packet.
const SEQUENCE_END: u64 = 1 << 48;

/// The next step of the decoder.
#[derive(Debug, PartialEq, Eq)]
pub enum JitterOutput<'a> {
    /// Decode this packet.
    Decode(&'a [u8]),
    /// Recover the lost packet before this one from its FEC copy; the packet itself follows.
    DecodeFec(&'a [u8]),
    /// Conceal one packet.
    Conceal,
    /// The RTP clock advances by this many ticks without audio; nothing is concealed.
    Gap { ticks: u32 },
}

/// Counters since the session began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct JitterStats {
    /// Packets that arrived, late and duplicate ones included.
    pub received: u64,
    /// Packets declared lost, including those that arrive later.
    pub lost: u64,
    /// Packets concealed.
    pub concealed: u64,
    /// Lost packets recovered from the next packet.
    pub recovered: u64,
    /// Packets that arrived after they were declared lost.
    pub late: u64,
    pub duplicate: u64,
    /// Packets whose payload exceeds the limit.
    pub refused: u64,
    /// Interarrival jitter of RFC 3550.
    pub jitter: Duration,
}

struct HeldPacket {
    sequence: u64,
    timestamp: u64,
    arrived: Instant,
    payload: Vec<u8>,
}

/// The steps before the front packet: concealment, then a gap, then recovery.
#[derive(Default)]
struct Fill {
    conceal: u32,
    gap_ticks: u32,
    fec: bool,
}

/// The packet that follows the last released one.
#[derive(Clone, Copy)]
struct ExpectedPacket {
    sequence: u64,
    timestamp: u64,
    /// Duration of the packet before it.
    packet_ticks: u32,
}

/// Reorders the packets of one caller.
pub struct JitterBuffer {
    codec: Codec,
    expected: Option<ExpectedPacket>,
    /// Packets not yet released, by ascending sequence number.
    held: VecDeque<HeldPacket>,
    fill: Fill,
    /// The packet last returned, and buffers of earlier ones for reuse.
    lent: Vec<u8>,
    spare: Vec<Vec<u8>>,
    /// Bit n is set if the packet n + 1 before the expected one was released.
    released: u64,
    /// Sequence number that would confirm a restarted sender.
    restart: Option<u64>,
    now: Option<Instant>,
    last_arrival: Option<(Instant, u64)>,
    /// Minimum wait for a missing packet. Grows with late packets, and shrinks with the others.
    reorder_wait: Duration,
    counters: JitterStats,
}

impl JitterBuffer {
    pub fn new(codec: Codec) -> Self {
        Self {
            codec,
            expected: None,
            held: VecDeque::new(),
            fill: Fill::default(),
            lent: Vec::new(),
            spare: Vec::new(),
            released: 0,
            restart: None,
            now: None,
            last_arrival: None,
            reorder_wait: Duration::ZERO,
            counters: JitterStats::default(),
        }
    }

    /// Sets the codec, and resets the order for the new sender.
    pub fn set_codec(&mut self, codec: Codec) {
        self.codec = codec;
        self.handle_restart();
    }

    pub fn counters(&self) -> &JitterStats {
        &self.counters
    }

    /// Resets the order for a new sender. The counters continue.
    pub fn handle_restart(&mut self) {
        while let Some(packet) = self.held.pop_front() {
            self.spare.push(packet.payload);
        }
        self.expected = None;
        self.fill = Fill::default();
        self.released = 0;
        self.restart = None;
        self.last_arrival = None;
    }

    /// Accepts a packet with its extended sequence number and timestamp. The caller then drains
    /// [`Self::poll_output`].
    pub fn handle_packet(&mut self, sequence: u64, timestamp: u64, payload: &[u8], now: Instant) {
        self.now = Some(now);
        self.counters.received += 1;
        if sequence >= SEQUENCE_END {
            self.counters.late += 1;
            return;
        }
        let expected = self.expected.map_or(sequence, |expected| expected.sequence);
        if sequence < expected && !self.follow_restart(sequence) {
            return;
        }
        if sequence.saturating_sub(expected) > RTP_DROPOUT_MAX {
            self.handle_restart();
        }
        self.restart = None;
        let place = self.held.partition_point(|packet| packet.sequence < sequence);
        if self.held.get(place).is_some_and(|packet| packet.sequence == sequence) {
            self.counters.duplicate += 1;
            return;
        }
        self.measure(timestamp, now);
        if self.held.len() >= JITTER_HELD_MAX {
            // Only reached by a caller that does not drain: a full queue releases at least one
            // packet.
            self.counters.refused += 1;
            return;
        }
        let mut memory = self.spare.pop().unwrap_or_default();
        memory.clear();
        if payload.len() <= OPUS_RECEIVED_BYTES_MAX {
            memory.extend_from_slice(payload);
        } else {
            // The packet keeps its place in the order; an empty payload is skipped in its turn.
            self.counters.refused += 1;
        }
        self.held.insert(
            place,
            HeldPacket {
                sequence,
                timestamp,
                arrived: now,
                payload: memory,
            },
        );
    }

    /// Ends a wait that is due. The caller then drains [`Self::poll_output`].
    pub fn handle_timeout(&mut self, now: Instant) {
        self.now = Some(now);
    }

    /// Returns the end of the wait for a missing packet.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let front = self.held.front()?;
        let missing = self.expected.is_some_and(|expected| front.sequence > expected.sequence);
        missing.then(|| self.gives_up_at()).flatten()
    }

    /// Returns the next step of the decoder.
    pub fn poll_output(&mut self) -> Option<JitterOutput<'_>> {
        loop {
            if self.fill.conceal > 0 {
                self.fill.conceal -= 1;
                self.counters.concealed += 1;
                return Some(JitterOutput::Conceal);
            }
            if self.fill.gap_ticks > 0 {
                return Some(JitterOutput::Gap {
                    ticks: std::mem::take(&mut self.fill.gap_ticks),
                });
            }
            let front = self.held.front()?;
            let (sequence, timestamp, padding) = (front.sequence, front.timestamp, front.payload.is_empty());
            if std::mem::take(&mut self.fill.fec) {
                self.counters.recovered += 1;
                return Some(JitterOutput::DecodeFec(&self.held.front()?.payload));
            }
            let expected = *self.expected.get_or_insert(ExpectedPacket {
                sequence,
                timestamp,
                packet_ticks: self.codec.clock_hz() / 50,
            });
            let ahead = timestamp.wrapping_sub(expected.timestamp).cast_signed();
            if sequence > expected.sequence {
                if !self.gives_up() {
                    return None;
                }
                self.plan_fill(sequence - expected.sequence, ahead, expected.packet_ticks);
                self.expect(
                    ExpectedPacket {
                        sequence,
                        timestamp,
                        ..expected
                    },
                    false,
                );
            } else if ahead != 0 && !padding {
                // The sender paused, was muted or restarted: its clock jumped and no packet is
                // missing.
                self.expected = Some(ExpectedPacket { timestamp, ..expected });
                self.fill.gap_ticks = u32::try_from(ahead).unwrap_or(0);
            } else if let Some(packet) = self.held.pop_front() {
                self.release(packet, expected);
                if !self.lent.is_empty() {
                    return Some(JitterOutput::Decode(&self.lent));
                }
            }
        }
    }

    /// Makes the front packet the current one.
    fn release(&mut self, packet: HeldPacket, expected: ExpectedPacket) {
        self.spare.push(std::mem::replace(&mut self.lent, packet.payload));
        self.reorder_wait = self.reorder_wait.saturating_sub(self.reorder_wait / 256);
        let mut next = ExpectedPacket {
            sequence: packet.sequence.saturating_add(1),
            ..expected
        };
        // Padding has a sequence number and no duration; an invalid packet counts as long as the
        // last.
        if !self.lent.is_empty() {
            next.packet_ticks = self.codec.packet_ticks(&self.lent).unwrap_or(expected.packet_ticks);
            next.timestamp = packet.timestamp.wrapping_add(next.packet_ticks.into());
        }
        self.expect(next, true);
    }

    /// Advances to `next`, and records which of the packets before it were released.
    fn expect(&mut self, next: ExpectedPacket, released: bool) {
        let steps = self.expected.map_or(0, |old| next.sequence - old.sequence);
        self.released = u32::try_from(steps)
            .ok()
            .and_then(|steps| self.released.checked_shl(steps))
            .unwrap_or(0);
        self.released |= u64::from(released);
        self.expected = Some(next);
    }

    /// Plans the replacement of `lost` packets that cover `ahead` ticks.
    fn plan_fill(&mut self, lost: u64, ahead: i64, packet_ticks: u32) {
        self.counters.lost = self.counters.lost.saturating_add(lost);
        let ahead = u32::try_from(ahead.max(0)).unwrap_or(u32::MAX);
        let frames = u32::try_from(lost).unwrap_or(u32::MAX).min(ahead / packet_ticks);
        let filled = frames.min(CONCEALED_FRAMES_MAX);
        let fec = filled > 0
            && self
                .held
                .front()
                .is_some_and(|packet| self.codec.has_fec(&packet.payload));
        self.fill = Fill {
            conceal: filled - u32::from(fec),
            gap_ticks: ahead - filled * packet_ticks,
            fec,
        };
    }

    /// Returns whether the wait for the missing packet is over.
    fn gives_up(&self) -> bool {
        let over = self.now.zip(self.gives_up_at()).is_some_and(|(now, at)| now >= at);
        over || self.held.len() >= JITTER_HELD_MAX
    }

    fn gives_up_at(&self) -> Option<Instant> {
        let wait = (self.counters.jitter * 3)
            .max(self.reorder_wait)
            .clamp(JITTER_WAIT_MIN, JITTER_WAIT_MAX);
        // The gap is as old as the earliest arrival behind it, which may not be the front packet.
        self.held.iter().map(|packet| packet.arrived + wait).min()
    }

    /// Handles a packet from before the expected one: late, duplicate, or of a restarted sender.
    /// Two consecutive ones confirm a restart.
    fn follow_restart(&mut self, sequence: u64) -> bool {
        let behind = self.expected.map_or(0, |expected| expected.sequence - sequence);
        if behind > RTP_MISORDER_MAX && self.restart == Some(sequence) {
            self.handle_restart();
            return true;
        }
        self.restart = Some(sequence.saturating_add(1));
        if behind <= 64 && self.released >> (behind - 1) & 1 == 1 {
            self.counters.duplicate += 1;
        } else {
            self.counters.late += 1;
            self.reorder_wait = (self.reorder_wait.max(JITTER_WAIT_MIN) + JITTER_WAIT_MIN).min(JITTER_WAIT_MAX);
        }
        false
    }

    /// Updates the interarrival jitter (RFC 3550 section 6.4.1).
    fn measure(&mut self, timestamp: u64, now: Instant) {
        if let Some((arrival, earlier)) = self.last_arrival.replace((now, timestamp)) {
            let sent = timestamp.wrapping_sub(earlier).cast_signed();
            let sent_us = sent.saturating_mul(1_000) / i64::from(self.codec.clock_hz() / 1_000);
            let arrived_us = i64::try_from(now.saturating_duration_since(arrival).as_micros()).unwrap_or(i64::MAX);
            let off = Duration::from_micros(arrived_us.saturating_sub(sent_us).unsigned_abs());
            // A difference of a second is a pause or a clock jump of the sender, not network
            // jitter.
            if off < Duration::from_secs(1) {
                let jitter = self.counters.jitter;
                self.counters.jitter = jitter - jitter / 16 + off / 16;
            }
        }
    }
}

#[cfg(test)]
mod tests;
