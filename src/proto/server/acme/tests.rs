//! Tests of when certificates are ordered.

use super::*;

const DAY_S: u64 = 86_400;
const NOW_S: u64 = 1_800_000_000;

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn refused() -> OrderFailure {
    OrderFailure::refused("no".into())
}

/// A directory chooses every text of an error: none breaks a line of the log or is repeated at
/// length.
#[test]
fn the_text_of_a_failure_is_one_bounded_line() {
    let long = "a\u{1b}[2J\n".repeat(20_000);
    for kind in ["dns", "tls", "caa", "rejectedIdentifier", "malformed", &*long] {
        let problem = Problem {
            kind,
            detail: &long,
            status: 400,
            name: Some(&long),
        };
        let failures = [
            OrderFailure::of_problem(&problem, 443),
            OrderFailure::unreachable(long.clone()),
            OrderFailure::refused(long.clone()),
        ];
        for OrderFailure { text, .. } in failures {
            assert!(text.chars().count() <= ACME_FAILURE_CHARS_MAX && !text.contains(char::is_control));
        }
    }
    // The advice has room behind the longest of everything else.
    let problem = Problem {
        kind: "dns",
        detail: &long,
        status: 400,
        name: Some(&long),
    };
    let text = OrderFailure::of_problem(&problem, 443).text;
    assert!(text.ends_with("whose address does not answer"), "{text}");
}

/// Without a certificate, or with one that lacks a name, an order is due at once; else after
/// two thirds of its validity, and up to 3 of 90 days earlier.
#[test]
fn a_certificate_is_renewed_after_two_thirds() {
    let ninety = Validity {
        from_s: NOW_S,
        until_s: NOW_S + 90 * DAY_S,
    };
    let kept = Certificate::example(&["a.example.net", "b.example.net"], ninety);
    let both = names(&["a.example.net", "b.example.net"]);
    let on_time = OrderClock::new(0, Failures::default());
    assert_eq!(on_time.poll_timeout(None, &both, NOW_S), 0);
    assert_eq!(on_time.poll_timeout(Some(&kept), &both, NOW_S), NOW_S + 60 * DAY_S);
    let early = OrderClock::new(u16::MAX, Failures::default());
    assert_eq!(early.poll_timeout(Some(&kept), &both, NOW_S), NOW_S + 57 * DAY_S);
    let more = names(&["a.example.net", "c.example.net"]);
    assert_eq!(on_time.poll_timeout(Some(&kept), &more, NOW_S), 0);
    let fewer = names(&["b.example.net"]);
    assert_eq!(on_time.poll_timeout(Some(&kept), &fewer, NOW_S), NOW_S + 60 * DAY_S);
    // A minute, as test servers issue it.
    let minute = Validity {
        from_s: NOW_S,
        until_s: NOW_S + 60,
    };
    assert_eq!(early.renewal_s(minute), NOW_S + 38);
}

/// Refused orders: at most 4 in any hour, with all jitters, and the pause stops to grow.
#[test]
fn refused_orders_stay_within_the_rate_limits() {
    for jitter in [0, 1, u16::MAX / 2, u16::MAX] {
        let mut clock = OrderClock::new(jitter, Failures::default());
        let (mut now_s, mut orders_s) = (NOW_S, Vec::new());
        for _ in 0..40 {
            orders_s.push(now_s);
            let pause = clock.handle_failure(&refused(), now_s);
            assert!(pause <= ACME_REFUSED_PAUSE_MAX + ACME_REFUSED_PAUSE_MAX / 4);
            let next_s = clock.poll_timeout(None, &names(&["a"]), now_s);
            assert_eq!(next_s, now_s + pause.as_secs());
            now_s = next_s;
        }
        let most = orders_s.iter().map(|from_s| {
            orders_s
                .iter()
                .filter(|at_s| (*from_s..from_s + 3600).contains(at_s))
                .count()
        });
        assert!(most.max().expect("orders") <= 4, "{orders_s:?}");
        assert_eq!(clock.failures().refused, 40);
    }
}

/// A directory that cannot be reached is tried again soon, and at least hourly.
#[test]
fn an_unreachable_directory_is_tried_hourly() {
    let mut clock = OrderClock::new(0, Failures::default());
    let lost = OrderFailure::unreachable("no network");
    let pauses: Vec<u64> = (0..12).map(|_| clock.handle_failure(&lost, NOW_S).as_secs()).collect();
    assert_eq!(pauses[..4], [10, 20, 40, 80]);
    assert_eq!(pauses[11], 3600);
    let ninety = Validity {
        from_s: NOW_S,
        until_s: NOW_S + 90 * DAY_S,
    };
    assert_eq!(clock.handle_success(ninety, NOW_S), None);
    assert_eq!(clock.failures(), Failures::default());
    assert_eq!(clock.handle_failure(&lost, NOW_S).as_secs(), 10);
}

/// With a clock far ahead each certificate is due for renewal when it comes.
#[test]
fn a_certificate_that_is_due_already_is_not_ordered_again_at_once() {
    let mut clock = OrderClock::new(0, Failures::default());
    let validity = Validity {
        from_s: NOW_S - 70 * DAY_S,
        until_s: NOW_S + 20 * DAY_S,
    };
    let kept = Certificate::example(&["a.example.net"], validity);
    let mut now_s = NOW_S;
    for expected in [1, 2, 4].map(|times| ACME_REFUSED_PAUSE_FIRST * times) {
        assert_eq!(clock.handle_success(validity, now_s), Some(expected));
        let next_s = clock.poll_timeout(Some(&kept), &names(&["a.example.net"]), now_s);
        assert_eq!(next_s, now_s + expected.as_secs());
        now_s = next_s;
    }
}

/// An outage of the network and refused orders have pauses of their own.
#[test]
fn an_outage_does_not_lengthen_the_pause_of_a_refusal() {
    let mut clock = OrderClock::new(0, Failures::default());
    let lost = OrderFailure::unreachable("no network");
    for _ in 0..12 {
        clock.handle_failure(&lost, NOW_S);
    }
    assert_eq!(clock.handle_failure(&refused(), NOW_S), ACME_REFUSED_PAUSE_FIRST);
    assert_eq!(clock.handle_failure(&lost, NOW_S), ACME_UNREACHABLE_PAUSE_FIRST);
    assert_eq!(clock.handle_failure(&refused(), NOW_S), 2 * ACME_REFUSED_PAUSE_FIRST);
}

/// `Retry-After` wins over a shorter pause and over the operator, up to its cap.
#[test]
fn the_directory_decides_how_long_to_wait() {
    let mut clock = OrderClock::new(0, Failures::default());
    let asks = |seconds| OrderFailure {
        retry_after: Some(Duration::from_secs(seconds)),
        ..refused()
    };
    assert_eq!(clock.handle_failure(&asks(7200), NOW_S).as_secs(), 7200);
    assert_eq!(clock.handle_retry(NOW_S + 1), Some(NOW_S + 7200));
    assert_eq!(clock.handle_retry(NOW_S + 7200), None);
    let mut clock = OrderClock::new(0, Failures::default());
    assert_eq!(clock.handle_failure(&asks(u64::MAX), NOW_S), ACME_RETRY_AFTER_MAX);
    let mut clock = OrderClock::new(0, Failures::default());
    assert_eq!(clock.handle_failure(&asks(1), NOW_S), ACME_REFUSED_PAUSE_FIRST);
    assert_eq!(clock.handle_retry(NOW_S + 1), None);
    assert_eq!(clock.poll_timeout(None, &[], NOW_S + 1), 0);
}

/// A stored pause holds after a restart, unless the clock was ahead when it was stored.
#[test]
fn a_stored_pause_holds_after_a_restart() {
    let stored = |not_before_s| Failures {
        refused: 2,
        unreachable: 0,
        not_before_s,
        asked_by_directory: false,
    };
    let due = |failures| OrderClock::new(0, failures).poll_timeout(None, &names(&["a"]), NOW_S);
    assert_eq!(due(stored(NOW_S + 1800)), NOW_S + 1800);
    assert_eq!(due(stored(NOW_S + 365 * DAY_S)), 0);
}

/// A clock that was ahead when an order failed, and is set back, does not lengthen the pause:
/// whatever the jitter and the kind of failure. A pause that the directory asked for has a cap.
#[test]
fn a_clock_that_is_set_back_does_not_lengthen_a_pause() {
    let lost = OrderFailure::unreachable("no network");
    let asked = OrderFailure {
        retry_after: Some(ACME_RETRY_AFTER_MAX),
        ..refused()
    };
    let kinds = [
        (vec![lost.clone()], ACME_UNREACHABLE_PAUSE_FIRST),
        (vec![lost.clone(); 12], ACME_UNREACHABLE_PAUSE_MAX),
        (vec![refused()], ACME_REFUSED_PAUSE_FIRST),
        (vec![refused(), refused(), lost], ACME_UNREACHABLE_PAUSE_FIRST),
        (vec![refused(); 20], ACME_REFUSED_PAUSE_MAX),
        (vec![asked], ACME_RETRY_AFTER_MAX),
    ];
    for (failures, least) in &kinds {
        for jitter in [0, u16::MAX] {
            let mut clock = OrderClock::new(jitter, Failures::default());
            let mut pause = Duration::ZERO;
            for failure in failures {
                pause = clock.handle_failure(failure, NOW_S);
            }
            assert!(pause >= *least);
            // The restarted runner has another jitter.
            let due = |now_s| OrderClock::new(0, clock.failures()).poll_timeout(None, &names(&["a"]), now_s);
            assert_eq!(due(NOW_S), NOW_S + pause.as_secs(), "{failures:?}");
            for behind_s in [least.as_secs() / 4 + 2, DAY_S.max(least.as_secs()), 365 * DAY_S] {
                let next_s = due(NOW_S - behind_s);
                assert!(
                    next_s <= NOW_S - behind_s + least.as_secs() * 5 / 4,
                    "{failures:?} {behind_s}"
                );
            }
        }
    }
}

/// Each error of the directory names what to do; text of the directory stays on one line.
#[test]
fn failures_say_what_to_do() {
    let text = |kind: &str, status| {
        let problem = Problem {
            kind: &format!("{ERRORS}{kind}"),
            detail: "a\nb",
            status,
            name: Some("bot.example.net"),
        };
        OrderFailure::of_problem(&problem, 7860)
    };
    let port = text("connection", 400);
    assert_eq!(port.kind, FailureKind::Refused);
    for words in ["bot.example.net: a b (connection)", "port 443", "port 7860"] {
        assert!(port.text.contains(words), "{words} in {}", port.text);
    }
    for (kind, words) in [
        ("dns", "A and AAAA"),
        ("caa", "CAA"),
        ("rateLimited", "--acme-staging"),
        ("invalidContact", "--acme-email"),
        ("externalAccountRequired", "--acme-directory"),
        ("somethingNew", "documents"),
    ] {
        let failure = text(kind, 403);
        assert!(failure.text.contains(words), "{words} in {failure}");
        assert_eq!(failure.kind, FailureKind::Refused);
    }
    for (kind, status) in [("badNonce", 400), ("serverInternal", 500), ("unavailable", 503)] {
        assert_eq!(text(kind, status).kind, FailureKind::Unreachable, "{kind}");
    }
    let long = "x".repeat(100_000);
    let problem = Problem {
        detail: &long,
        ..Problem::default()
    };
    assert!(OrderFailure::of_problem(&problem, 1).text.len() < 1000);
}
