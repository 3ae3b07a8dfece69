//! How the network of a call was over its time, in few bytes.
//!
//! In: about once a second, the counters of a session and what it knows of its network. Out: JSON
//! with at most [`POINTS_MAX`] values of each kind. A longer call has coarser ones: each is the
//! worst of its time, so that a short outage stays visible.

use std::time::Duration;

use serde_json::{Value, json};

use crate::counts::{Count, Counts, NetworkTimes};

/// Points of one call, 6 bytes each.
const POINTS_MAX: usize = 60;
/// What is not known.
const UNKNOWN: u16 = u16::MAX;

/// The network of one call.
#[derive(Debug)]
pub(super) struct NetworkSeries {
    points: Vec<NetworkPoint>,
    /// Samples of one point.
    per_point: u32,
    /// The point that is not complete, and its samples so far.
    open: NetworkPoint,
    samples: u32,
    packets_in: u64,
    packets_lost: u64,
}

/// The worst of some seconds.
#[derive(Clone, Copy, Debug)]
struct NetworkPoint {
    /// Lost packets of all, in tenths of a per cent.
    lost: u16,
    jitter_ms: u16,
    round_trip_ms: u16,
}

impl NetworkPoint {
    const NONE: NetworkPoint = NetworkPoint {
        lost: UNKNOWN,
        jitter_ms: UNKNOWN,
        round_trip_ms: UNKNOWN,
    };

    fn worst(self, other: NetworkPoint) -> NetworkPoint {
        let worst = |one: u16, other: u16| match (one, other) {
            (UNKNOWN, known) | (known, UNKNOWN) => known,
            (one, other) => one.max(other),
        };
        NetworkPoint {
            lost: worst(self.lost, other.lost),
            jitter_ms: worst(self.jitter_ms, other.jitter_ms),
            round_trip_ms: worst(self.round_trip_ms, other.round_trip_ms),
        }
    }
}

impl Default for NetworkSeries {
    fn default() -> Self {
        NetworkSeries {
            points: Vec::new(),
            per_point: 1,
            open: NetworkPoint::NONE,
            samples: 0,
            packets_in: 0,
            packets_lost: 0,
        }
    }
}

impl NetworkSeries {
    /// Handles what a session knows about once a second. Packets count as lost where the transport
    /// has a jitter: what comes in a stream is never lost.
    pub fn handle_sample(&mut self, counts: &Counts, network: NetworkTimes) {
        let (packets_in, packets_lost) = (counts.get(Count::PacketsIn), counts.get(Count::PacketsLost));
        let came = packets_in.saturating_sub(self.packets_in);
        let lost = packets_lost.saturating_sub(self.packets_lost);
        (self.packets_in, self.packets_lost) = (packets_in, packets_lost);
        let millis = |time: Option<Duration>| time.map_or(UNKNOWN, |time| at_most(time.as_millis()));
        let share = (u128::from(lost) * 1000).checked_div(u128::from(came) + u128::from(lost));
        self.open = self.open.worst(NetworkPoint {
            lost: network.jitter.and(share).map_or(UNKNOWN, at_most),
            jitter_ms: millis(network.jitter),
            round_trip_ms: millis(network.round_trip),
        });
        self.samples += 1;
        if self.samples < self.per_point {
            return;
        }
        if self.points.len() == POINTS_MAX {
            self.points = self
                .points
                .chunks(2)
                .map(|pair| pair.iter().fold(NetworkPoint::NONE, |worst, point| worst.worst(*point)))
                .collect();
            self.per_point *= 2;
            return;
        }
        self.points.push(std::mem::replace(&mut self.open, NetworkPoint::NONE));
        self.samples = 0;
    }

    /// Returns the bytes of memory beside those of the structure.
    pub fn bytes(&self) -> usize {
        self.points.capacity() * size_of::<NetworkPoint>()
    }

    /// Returns the values with their seconds; `None` where nothing is known.
    pub fn describe(&self) -> Option<Value> {
        let of = |read: fn(&NetworkPoint) -> u16| {
            let values = self.points.iter().map(read);
            values
                .map(|value| (value != UNKNOWN).then_some(value))
                .collect::<Vec<_>>()
        };
        let (lost, jitter, round_trip) = (
            of(|point| point.lost),
            of(|point| point.jitter_ms),
            of(|point| point.round_trip_ms),
        );
        let all = jitter.iter().chain(&round_trip);
        all.flatten().next()?;
        let lost: Vec<_> = lost
            .into_iter()
            .map(|lost| lost.map(|lost| f64::from(lost) / 10.0))
            .collect();
        Some(json!({
            "every_s": self.per_point,
            "lost_percent": lost,
            "jitter_ms": jitter,
            "round_trip_ms": round_trip,
        }))
    }
}

/// Returns a known value, at most the largest one.
fn at_most(value: u128) -> u16 {
    u16::try_from(value).unwrap_or(UNKNOWN).min(UNKNOWN - 1)
}

#[cfg(test)]
mod tests;
