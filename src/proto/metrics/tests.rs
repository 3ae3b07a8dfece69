//! Tests that metrics have the recorded values, under the right names.

use std::sync::Arc;
use std::time::Instant;

use super::*;
use crate::counts::{Count, Counts, QueueLevels};
use crate::limits::METRICS_INTERVAL;

fn value(text: &str, series: &str) -> f64 {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.and_then(|value| value.parse().ok())
        .unwrap_or_else(|| panic!("no {series} in:\n{text}"))
}

fn counts(of: &[(Count, u64)]) -> Counts {
    let mut counts = Counts::default();
    for (what, total) in of {
        counts.set(*what, *total);
    }
    counts
}

/// The order of the table must be that of the enum.
#[test]
fn every_count_has_its_own_name() {
    for (at, (what, name, ..)) in COUNTERS.iter().enumerate() {
        assert_eq!(*what as usize, at, "{name}");
        assert!(name.starts_with("edge_runner_") && name.ends_with("_total"), "{name}");
        assert_eq!(COUNTERS.iter().filter(|other| other.1 == *name).count(), 1, "{name}");
    }
}

/// A session is visible from its start with its flushed counts, and counted once after its end.
#[test]
fn counts_a_session_while_it_lives_and_when_it_ends() {
    let (metrics, now) = (Arc::new(RunnerMetrics::default()), Instant::now());
    let seen = |series: &str| value(&metrics.render(&MetricsSnapshot::default(), |_| ()), series);
    let mut share = SessionMetrics::begin(metrics.clone(), Transport::WebRtc, now);
    assert_eq!(seen(r#"edge_runner_sessions{transport="webrtc"}"#), 1.0);
    assert_eq!(seen(r#"edge_runner_sessions{transport="websocket"}"#), 0.0);
    assert_eq!(seen(r#"edge_runner_sessions_started_total{transport="webrtc"}"#), 1.0);
    let waiting = QueueLevels {
        frames: 3,
        speech: Duration::from_millis(250),
    };
    share.flush(
        &counts(&[(Count::PacketsIn, 10), (Count::BytesIn, 1_000)]),
        waiting,
        now,
    );
    let mut other = SessionMetrics::begin(metrics.clone(), Transport::WebRtc, now);
    other.flush(&counts(&[(Count::PacketsIn, 1)]), waiting, now);
    share.flush(
        &counts(&[(Count::PacketsIn, 15), (Count::BytesIn, 1_500)]),
        waiting,
        now,
    );
    assert_eq!(seen(r#"edge_runner_packets_received_total{transport="webrtc"}"#), 16.0);
    assert_eq!(seen(r#"edge_runner_received_bytes_total{transport="webrtc"}"#), 1_500.0);
    assert_eq!(seen(r#"edge_runner_bot_queue_frames{transport="webrtc"}"#), 6.0);
    assert_eq!(seen(r#"edge_runner_speech_queue_seconds{transport="webrtc"}"#), 0.5);
    let ended = r#"edge_runner_sessions_ended_total{transport="webrtc",outcome="left"}"#;
    assert_eq!(seen(ended), 0.0);
    share.end(&counts(&[(Count::PacketsIn, 20)]), LeaveReason::Left);
    assert_eq!(seen(ended), 1.0);
    assert_eq!(seen(r#"edge_runner_packets_received_total{transport="webrtc"}"#), 21.0);
    assert_eq!(seen(r#"edge_runner_bot_queue_frames{transport="webrtc"}"#), 3.0);
    // A task that panics drops its metrics.
    drop(other);
    assert_eq!(seen(r#"edge_runner_sessions{transport="webrtc"}"#), 0.0);
    assert_eq!(seen(r#"edge_runner_bot_queue_frames{transport="webrtc"}"#), 0.0);
    assert_eq!(
        seen(r#"edge_runner_sessions_ended_total{transport="webrtc",outcome="failed"}"#),
        1.0
    );
}

/// Callers are counted by the names of their codecs.
#[test]
fn counts_callers_by_codec() {
    let metrics = Arc::new(RunnerMetrics::default());
    let share = SessionMetrics::begin(metrics.clone(), Transport::WebRtc, Instant::now());
    for codec in ["PCMA", "Opus", "PCMA", "speex"] {
        share.connected(codec, Duration::ZERO);
    }
    let other = SessionMetrics::begin(metrics.clone(), Transport::Moq, Instant::now());
    other.connected("Opus", Duration::ZERO);
    let text = metrics.render(&MetricsSnapshot::default(), |_| ());
    for (codec, callers) in [("Opus", 1.0), ("PCMU", 0.0), ("PCMA", 2.0)] {
        let series = format!(r#"edge_runner_webrtc_callers_total{{codec="{codec}"}}"#);
        assert_eq!(value(&text, &series), callers, "{codec}");
    }
}

/// A session flushes at most once per interval.
#[test]
fn a_flush_is_due_one_interval_after_the_last() {
    let now = Instant::now();
    let mut share = SessionMetrics::begin(Arc::default(), Transport::WebSocket, now);
    assert_eq!(share.next_flush(), now + METRICS_INTERVAL);
    share.flush(&Counts::default(), QueueLevels::default(), now + METRICS_INTERVAL);
    assert_eq!(share.next_flush(), now + 2 * METRICS_INTERVAL);
}

/// A delay at the bound of a bucket belongs to it, a longer one to the next.
#[test]
fn delays_are_counted_in_their_buckets() {
    let metrics = Arc::new(RunnerMetrics::default());
    metrics.offer_answered(Duration::from_millis(5));
    metrics.offer_answered(Duration::from_micros(5_001));
    metrics.offer_answered(Duration::from_secs(60));
    metrics.connected(Duration::from_millis(120));
    let mut share = SessionMetrics::begin(metrics.clone(), Transport::WebRtc, Instant::now());
    share.record_lateness(Duration::ZERO);
    share.record_lateness(Duration::from_millis(15));
    share.end(&Counts::default(), LeaveReason::Left);
    let text = metrics.render(&MetricsSnapshot::default(), |_| ());
    for (series, expected) in [
        (r#"edge_runner_offer_to_answer_seconds_bucket{le="0.002"}"#, 0.0),
        (r#"edge_runner_offer_to_answer_seconds_bucket{le="0.005"}"#, 1.0),
        (r#"edge_runner_offer_to_answer_seconds_bucket{le="0.01"}"#, 2.0),
        (r#"edge_runner_offer_to_answer_seconds_bucket{le="1"}"#, 2.0),
        (r#"edge_runner_offer_to_answer_seconds_bucket{le="+Inf"}"#, 3.0),
        ("edge_runner_offer_to_answer_seconds_count", 3.0),
        ("edge_runner_offer_to_answer_seconds_sum", 60.010_001),
        (r#"edge_runner_answer_to_connected_seconds_bucket{le="0.2"}"#, 1.0),
        (r#"edge_runner_timer_lateness_seconds_bucket{le="0.001"}"#, 1.0),
        (r#"edge_runner_timer_lateness_seconds_bucket{le="0.02"}"#, 2.0),
        ("edge_runner_timer_lateness_seconds_sum", 0.015),
    ] {
        assert_eq!(value(&text, series), expected, "{series}");
    }
}

#[test]
fn counts_rejections_and_responses_by_kind() {
    let metrics = RunnerMetrics::default();
    for refusal in [
        SessionRefusal::BadSdp("x".into()),
        SessionRefusal::UnknownConnection,
        SessionRefusal::Full,
        SessionRefusal::Full,
        SessionRefusal::Stopping,
        SessionRefusal::NoCandidate("x".into()),
        SessionRefusal::AnswerTooLong("x".into()),
        SessionRefusal::Internal("x".into()),
        SessionRefusal::SourceQuota,
    ] {
        metrics.offer_refused(&refusal);
    }
    for status in [101, 200, 204, 307, 404, 503, 99, 600, 0] {
        metrics.responded(status);
    }
    let text = metrics.render(&MetricsSnapshot::default(), |_| ());
    for (reason, count) in REFUSALS.iter().zip([1.0, 1.0, 2.0, 1.0, 1.0, 1.0]) {
        let series = format!(r#"edge_runner_offers_refused_total{{reason="{reason}"}}"#);
        assert_eq!(value(&text, &series), count, "{reason}");
    }
    for (class, count) in CLASSES.iter().zip([1.0, 2.0, 1.0, 1.0, 1.0]) {
        let series = format!(r#"edge_runner_http_responses_total{{class="{class}"}}"#);
        assert_eq!(value(&text, &series), count, "{class}");
    }
}

/// The rules of Prometheus: one head per family, followed by its samples only, no repeated series,
/// valid numbers, and names with unit and kind.
#[test]
fn the_text_follows_the_rules_of_the_format() {
    let seen = MetricsSnapshot {
        process: Some(ProcessStats {
            cpu: Some(Duration::from_millis(1_230)),
            start_s: Some(1),
            ..ProcessStats::default()
        }),
        ice_servers: vec![
            ServerState::Working,
            ServerState::Failed("no answer".into()),
            ServerState::Working,
            ServerState::Unused("not here"),
        ],
        tasks: 7,
        runtime_stalls: 1,
        task_stalls: 2,
        ..MetricsSnapshot::default()
    };
    let text = RunnerMetrics::default().render(&seen, |_| ());
    assert!(text.ends_with('\n'));
    let (mut families, mut series, mut family, mut kind) = (Vec::new(), Vec::new(), "", "");
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, words) = help.split_once(' ').expect("words");
            assert!(!words.is_empty() && !families.contains(&name), "{line}");
            let head = lines
                .next()
                .and_then(|line| line.strip_prefix("# TYPE "))
                .expect("a type");
            (family, kind) = head.split_once(' ').expect("a kind");
            assert_eq!(family, name);
            assert_eq!(name.ends_with("_total"), kind == "counter", "{name}");
            families.push(name);
            continue;
        }
        let (name, number) = line.rsplit_once(' ').expect("a number");
        assert!(number.parse::<f64>().is_ok_and(|number| number >= 0.0), "{line}");
        let suffix = name.split('{').next().and_then(|name| name.strip_prefix(family));
        match kind {
            "histogram" => assert!(matches!(suffix, Some("_bucket" | "_sum" | "_count")), "{line}"),
            _ => assert_eq!(suffix, Some(""), "{line}"),
        }
        assert!(!series.contains(&name), "{name} stands there twice");
        series.push(name);
    }
    for (state, count) in [("up", 2.0), ("down", 1.0), ("trying", 0.0), ("unused", 1.0)] {
        let series = format!(r#"edge_runner_ice_servers{{state="{state}"}}"#);
        assert_eq!(value(&text, &series), count, "{state}");
    }
    assert_eq!(value(&text, "edge_runner_tasks"), 7.0);
    assert_eq!(value(&text, r#"edge_runner_stalls_total{of="runtime"}"#), 1.0);
    assert_eq!(value(&text, r#"edge_runner_stalls_total{of="task"}"#), 2.0);
    assert!(
        !RunnerMetrics::default()
            .render(&MetricsSnapshot::default(), |_| ())
            .contains("ice_servers")
    );
    assert!(families.contains(&"edge_runner_ice_servers") && families.contains(&"process_cpu_seconds_total"));
    assert!(!families.contains(&"process_open_fds"), "what is not known is not told");
}

/// Local means this machine, without clients of a proxy on it.
#[test]
fn restricts_access_to_the_metrics() {
    use MetricsAccess::{Any, Key, Local, Off};
    for (access, loopback, forwarded, expected) in [
        (Off, true, false, Err(MetricsDenied::Off)),
        (Local, true, false, Ok(())),
        (Local, true, true, Err(MetricsDenied::Forwarded)),
        (Local, false, false, Err(MetricsDenied::Remote)),
        (Local, false, true, Err(MetricsDenied::Remote)),
        (Any, false, true, Ok(())),
        (Key, false, true, Ok(())),
    ] {
        assert_eq!(
            check_access(access, loopback, forwarded),
            expected,
            "{access:?} {loopback} {forwarded}"
        );
    }
    for header in ["forwarded", "x-forwarded-for", "x-forwarded-proto", "x-real-ip", "via"] {
        assert!(is_forwarding(header), "{header}");
    }
    for header in ["host", "accept", "user-agent", "x-forward", "origin"] {
        assert!(!is_forwarding(header), "{header}");
    }
}
