//! One direction of a simulated network: delay, jitter, single and burst losses, duplicates, and an
//! MTU.
//!
//! In: the size of each datagram, and random numbers. Out: the delays of its copies; none if it is
//! lost. A link counts its traffic, so that a test knows the real loss. Bursts follow Gilbert's
//! model with two states, the bad one of which loses everything.

use std::time::Duration;

use super::pair::Rng;

/// Burst losses: how often they begin and end, per thousand datagrams.
#[derive(Clone, Copy)]
pub struct Bursts {
    pub begin_permille: usize,
    pub end_permille: usize,
}

/// Audio datagrams sent, and those lost.
#[derive(Clone, Copy, Default)]
pub struct Carried {
    pub audio: u64,
    pub audio_lost: u64,
}

/// One direction of a link.
#[derive(Clone, Copy)]
pub struct Link {
    pub delay: Duration,
    /// Added to a third of the datagrams, to reorder them.
    pub spread: Duration,
    /// The maximum of a random delay per datagram.
    pub jitter: Duration,
    pub loss_percent: usize,
    pub bursts: Option<Bursts>,
    /// The share of duplicates.
    pub twice_percent: usize,
    /// Longer datagrams are lost; counted without the UDP header.
    pub bytes_max: usize,
    pub cut: bool,
    pub carried: Carried,
    /// The bad state of [`Bursts`].
    pub in_burst: bool,
}

impl Link {
    pub fn new(delay: Duration) -> Self {
        Link {
            delay,
            spread: Duration::ZERO,
            jitter: Duration::ZERO,
            loss_percent: 0,
            bursts: None,
            twice_percent: 0,
            bytes_max: usize::MAX,
            cut: false,
            carried: Carried::default(),
            in_burst: false,
        }
    }

    /// Sends a datagram. Returns the delays of its copies.
    pub fn launch(&mut self, contents: &[u8], rng: &mut Rng) -> [Option<Duration>; 2] {
        let lost = self.cut || contents.len() > self.bytes_max || self.loses(rng);
        if is_audio(contents) {
            self.carried.audio += 1;
            self.carried.audio_lost += u64::from(lost);
        }
        if lost {
            return [None, None];
        }
        let first = self.time(rng);
        let second = (self.twice_percent > 0 && rng.below(100) < self.twice_percent).then(|| self.time(rng));
        [Some(first), second]
    }

    fn loses(&mut self, rng: &mut Rng) -> bool {
        if let Some(bursts) = self.bursts {
            let turn = if self.in_burst {
                bursts.end_permille
            } else {
                bursts.begin_permille
            };
            self.in_burst ^= rng.below(1_000) < turn;
        }
        rng.below(100) < self.loss_percent || self.in_burst
    }

    fn time(&self, rng: &mut Rng) -> Duration {
        let mut time = self.delay;
        if rng.below(3) == 0 {
            time += self.spread;
        }
        if !self.jitter.is_zero() {
            time += Duration::from_micros(rng.below(self.jitter.as_micros() as usize) as u64);
        }
        time
    }
}

/// RTP by its first byte (RFC 7983), and not RTCP by its second (RFC 5761 section 4).
fn is_audio(contents: &[u8]) -> bool {
    matches!(*contents, [128..=191, kind, ..] if !(192..224).contains(&kind))
}
