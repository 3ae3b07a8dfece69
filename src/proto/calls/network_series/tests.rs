//! The network of a call over its time: points, and what a long call keeps.

use super::*;

fn sample(series: &mut NetworkSeries, counts: &mut Counts, lost: u64, network: NetworkTimes) {
    counts.add(Count::PacketsIn, 50 - lost);
    counts.add(Count::PacketsLost, lost);
    series.handle_sample(counts, network);
}

fn times(jitter_ms: u64, round_trip_ms: u64) -> NetworkTimes {
    NetworkTimes {
        jitter: Some(Duration::from_millis(jitter_ms)),
        round_trip: Some(Duration::from_millis(round_trip_ms)),
        playout_delay: None,
    }
}

#[test]
fn each_second_is_a_point() {
    let (mut series, mut counts) = (NetworkSeries::default(), Counts::default());
    for (lost, jitter_ms) in [(0, 3), (5, 4), (1, 80_000)] {
        sample(&mut series, &mut counts, lost, times(jitter_ms, 40));
    }
    assert_eq!(
        series.describe(),
        Some(json!({
            "every_s": 1,
            "lost_percent": [0.0, 10.0, 2.0],
            "jitter_ms": [3, 4, 65_534],
            "round_trip_ms": [40, 40, 40],
        }))
    );
}

/// The counters follow a peer's numbers, and any of them has a share.
#[test]
fn the_largest_counters_are_a_point() {
    let (mut series, mut counts) = (NetworkSeries::default(), Counts::default());
    counts.set(Count::PacketsIn, u64::MAX);
    counts.set(Count::PacketsLost, u64::MAX);
    series.handle_sample(&counts, times(1, 1));
    let described = series.describe().expect("a network");
    assert_eq!(described["lost_percent"], json!([50.0]));
}

/// A call of an hour has as many points as one of a minute, and its worst second is in one.
#[test]
fn a_long_call_keeps_its_worst_second() {
    let (mut series, mut counts) = (NetworkSeries::default(), Counts::default());
    for second in 0..3_600 {
        let outage = second == 1_801;
        let lost = if outage { 25 } else { 0 };
        let network = times(if outage { 90 } else { 2 }, 40);
        sample(&mut series, &mut counts, lost, network);
    }
    let described = series.describe().expect("a network");
    let points = described["jitter_ms"].as_array().expect("a list");
    let every_s = described["every_s"].as_u64().expect("seconds");
    assert!(
        (POINTS_MAX / 2..=POINTS_MAX).contains(&points.len()),
        "{}",
        points.len()
    );
    assert!((57..=64).contains(&(every_s)), "{every_s}");
    let worst = usize::try_from(1_801 / every_s).expect("a small number");
    let (jitter, lost) = (&described["jitter_ms"], &described["lost_percent"]);
    assert_eq!((&jitter[worst], &lost[worst]), (&json!(90), &json!(50.0)));
    assert_eq!(points.iter().filter(|value| **value == 90).count(), 1);
    assert!(series.bytes() <= 2 * POINTS_MAX * size_of::<NetworkPoint>());
}

/// A stream loses nothing, and a transport that tells nothing has no series.
#[test]
fn what_is_not_known_is_left_out() {
    let (mut series, mut counts) = (NetworkSeries::default(), Counts::default());
    sample(&mut series, &mut counts, 0, NetworkTimes::default());
    assert_eq!(series.describe(), None);
    let network = NetworkTimes {
        jitter: None,
        ..times(0, 30)
    };
    sample(&mut series, &mut counts, 0, network);
    let described = series.describe().expect("a round trip");
    let unknown = json!([null, null]);
    assert_eq!(
        (
            &described["round_trip_ms"],
            &described["jitter_ms"],
            &described["lost_percent"]
        ),
        (&json!([null, 30]), &unknown, &unknown)
    );
}
