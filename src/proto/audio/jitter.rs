//! Puts the caller's audio packets in order, without delaying those that are.
//!
//! In: RTP packets (extended sequence number, extended timestamp, payload) of one codec with their
//! arrival. Out, by
//! [`JitterBuffer::poll_output`]: what to do with the decoder, in order. The packet that is next is released at once: a bot wants
//! speech early, and evens out nothing. When one is missing, those behind it wait for it, for a
//! time that follows the arrival jitter; then the gap is filled (in-band FEC of the next packet for
//! the last lost one, concealment for up to `CONCEALED_FRAMES_MAX`) or named as
//! [`JitterOutput::Gap`]. Refused and counted: late packets, duplicates, payloads beyond the cap. A
//! sender that restarts is followed. Source: RFC 3550 (jitter: section 6.4.1; sequence numbers:
//! appendix A.1), RFC 7587.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::audio::codec::Codec;
use crate::limits::{
    CONCEALED_FRAMES_MAX, JITTER_HELD_MAX, JITTER_WAIT_MAX, JITTER_WAIT_MIN, OPUS_RECEIVED_BYTES_MAX, RTP_MISORDER_MAX,
};

/// What the decoder has to do next.
#[derive(Debug, PartialEq, Eq)]
pub enum JitterOutput<'a> {
    /// Decode this packet.
    Decode(&'a [u8]),
    /// Recover the lost packet before this one from the copy inside it; the packet itself follows.
    DecodeFec(&'a [u8]),
    /// Make up one packet's worth of audio.
    Conceal,
    /// The caller's time goes on by so many ticks of the RTP clock without audio; nothing is to be
    /// made up.
    Gap { ticks: u32 },
}

/// What happened since the session began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct JitterStats {
    /// Packets that arrived, late and duplicate ones included.
    pub received: u64,
    /// Packets given up; some of them may still have come late.
    pub lost: u64,
    /// Packets made up.
    pub concealed: u64,
    /// Lost packets recovered from the packet behind them.
    pub recovered: u64,
    /// Packets that came after they were given up.
    pub late: u64,
    pub duplicate: u64,
    /// Packets whose payload is beyond the cap.
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

/// What is due before the packet in front: concealment, then a jump, then recovery.
#[derive(Default)]
struct Fill {
    conceal: u32,
    gap_ticks: u32,
    fec: bool,
}

/// The packet that continues what was released.
#[derive(Clone, Copy)]
struct ExpectedPacket {
    sequence: u64,
    timestamp: u64,
    /// Duration of the packet before it.
    packet_ticks: u32,
}

/// The order of one caller's packets.
pub struct JitterBuffer {
    codec: Codec,
    expected: Option<ExpectedPacket>,
    /// Packets not released yet, by ascending sequence number.
    held: VecDeque<HeldPacket>,
    fill: Fill,
    /// The packet last lent out, and memory of earlier ones.
    lent: Vec<u8>,
    spare: Vec<Vec<u8>>,
    /// Bit n: the packet n + 1 before the expected one was released.
    released: u64,
    /// Sequence number that would confirm a restarted sender.
    restart: Option<u64>,
    now: Option<Instant>,
    last_arrival: Option<(Instant, u64)>,
    /// Grows when a packet comes too late, and shrinks with time.
    playout_delay: Duration,
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
            playout_delay: Duration::ZERO,
            counters: JitterStats::default(),
        }
    }

    /// Takes packets of another codec from here on, hence of another sender.
    pub fn set_codec(&mut self, codec: Codec) {
        self.codec = codec;
        self.handle_restart();
    }

    pub fn counters(&self) -> &JitterStats {
        &self.counters
    }

    /// Forgets the order, since another sender speaks from here on. The counters go on.
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

    /// Takes a packet: extended sequence number, extended timestamp, payload. Then drain
    /// [`Self::poll_output`].
    pub fn handle_packet(&mut self, sequence: u64, timestamp: u64, payload: &[u8], now: Instant) {
        self.now = Some(now);
        self.counters.received += 1;
        if self.expected.is_some_and(|expected| sequence < expected.sequence) && !self.follow_restart(sequence) {
            return;
        }
        self.restart = None;
        let place = self.held.partition_point(|packet| packet.sequence < sequence);
        if self.held.get(place).is_some_and(|packet| packet.sequence == sequence) {
            self.counters.duplicate += 1;
            return;
        }
        self.measure(timestamp, now);
        if self.held.len() >= JITTER_HELD_MAX {
            // Only a caller that does not drain comes here: a full queue releases at least one
            // packet.
            self.counters.refused += 1;
            return;
        }
        let mut memory = self.spare.pop().unwrap_or_default();
        memory.clear();
        if payload.len() <= OPUS_RECEIVED_BYTES_MAX {
            memory.extend_from_slice(payload);
        } else {
            // Its place in the order counts; an empty payload is skipped when its turn comes.
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

    /// Lets a wait end. Then drain [`Self::poll_output`].
    pub fn handle_timeout(&mut self, now: Instant) {
        self.now = Some(now);
    }

    /// Returns when the wait for a missing packet ends, if there is one.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let front = self.held.front()?;
        let missing = self.expected.is_some_and(|expected| front.sequence > expected.sequence);
        missing.then(|| self.gives_up_at()).flatten()
    }

    /// Returns the next step for the decoder.
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
                // The sender paused, was muted or started anew: its clock jumped though no packet
                // is missing.
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

    /// Makes the packet in front the one that is lent out.
    fn release(&mut self, packet: HeldPacket, expected: ExpectedPacket) {
        self.spare.push(std::mem::replace(&mut self.lent, packet.payload));
        self.playout_delay = self.playout_delay.saturating_sub(self.playout_delay / 256);
        let mut next = ExpectedPacket {
            sequence: packet.sequence.saturating_add(1),
            ..expected
        };
        // Padding takes a number and no time; a packet that does not parse is taken for one like
        // the last.
        if !self.lent.is_empty() {
            next.packet_ticks = self.codec.packet_ticks(&self.lent).unwrap_or(expected.packet_ticks);
            next.timestamp = packet.timestamp.wrapping_add(next.packet_ticks.into());
        }
        self.expect(next, true);
    }

    /// Moves on to `next`, and notes which of the packets before it were there.
    fn expect(&mut self, next: ExpectedPacket, released: bool) {
        let steps = self.expected.map_or(0, |old| next.sequence - old.sequence);
        self.released = u32::try_from(steps)
            .ok()
            .and_then(|steps| self.released.checked_shl(steps))
            .unwrap_or(0);
        self.released |= u64::from(released);
        self.expected = Some(next);
    }

    /// Decides what stands in for `lost` packets that cover `ahead` ticks.
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

    /// Tells whether the missing packet is not worth waiting for any longer.
    fn gives_up(&self) -> bool {
        let over = self.now.zip(self.gives_up_at()).is_some_and(|(now, at)| now >= at);
        over || self.held.len() >= JITTER_HELD_MAX
    }

    fn gives_up_at(&self) -> Option<Instant> {
        let wait = (self.counters.jitter * 3)
            .max(self.playout_delay)
            .clamp(JITTER_WAIT_MIN, JITTER_WAIT_MAX);
        // The gap is as old as the packet that showed it, which need not be the one in front.
        self.held.iter().map(|packet| packet.arrived + wait).min()
    }

    /// Judges a packet from before the expected one: late, a duplicate, or the second of a
    /// restarted sender.
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
            self.playout_delay = (self.playout_delay.max(JITTER_WAIT_MIN) + JITTER_WAIT_MIN).min(JITTER_WAIT_MAX);
        }
        false
    }

    /// Follows the interarrival jitter (RFC 3550 section 6.4.1).
    fn measure(&mut self, timestamp: u64, now: Instant) {
        if let Some((arrival, earlier)) = self.last_arrival.replace((now, timestamp)) {
            let sent = timestamp.wrapping_sub(earlier).cast_signed();
            let sent_us = sent.saturating_mul(1_000) / i64::from(self.codec.clock_hz() / 1_000);
            let arrived_us = i64::try_from(now.saturating_duration_since(arrival).as_micros()).unwrap_or(i64::MAX);
            let off = Duration::from_micros(arrived_us.saturating_sub(sent_us).unsigned_abs());
            // A second is a pause of the sender or a jump of its clock, not jitter of the network.
            if off < Duration::from_secs(1) {
                let jitter = self.counters.jitter;
                self.counters.jitter = jitter - jitter / 16 + off / 16;
            }
        }
    }
}

#[cfg(test)]
mod tests;
