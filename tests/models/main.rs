//! Models: the code that threads of the runner share, run under a scheduler that chooses at each
//! lock, atomic and wake-up which thread goes on.
//!
//! The files of the runner are compiled as they are; [`sync`] takes the place of their locks. A
//! model fails when an assertion does, or when all threads wait, that is at a lost wake-up. In: a
//! part of a model's name, and `SEED`. Out: a line per model, and after a failure the seed that
//! repeats it.

#![allow(clippy::disallowed_methods, reason = "the clock is the seed, and tasks are included")]

use std::panic::catch_unwind;
use std::process::ExitCode;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

// The names by which the included files know each other.
extern crate self as edge_runner_http;
pub use edge_runner_proto as proto;
pub use proto::limits;

#[path = "../../src/http/lock.rs"]
pub mod lock;
#[allow(dead_code, reason = "a model uses a part of it")]
#[path = "../../src/http/log_output.rs"]
mod log_output;
#[allow(dead_code, reason = "a model uses a part of it")]
#[path = "../../src/http/permits.rs"]
mod permits;
pub mod sync;
#[path = "../../src/http/tasks.rs"]
pub mod tasks;

/// What the included files need of `edge_runner_http::common`.
pub mod common {
    pub use crate::lock::lock;

    /// The calendar plays no part in a model.
    pub fn unix_time_s() -> u64 {
        0
    }
}

#[path = "../../src/io"]
mod io {
    pub use crate::tasks;

    #[allow(dead_code, reason = "a model uses a part of it")]
    pub mod admission;
    pub mod inbox_queue;
}

#[path = "../../src/bot"]
mod bot {
    #[allow(dead_code, unused_imports, reason = "a model uses a part of it")]
    pub mod media;
}

mod check {
    pub mod admission;
    pub mod inbox;
    pub mod log;
    pub mod media;
    pub mod permits;
    pub mod tokens;
}

type Model = (&'static str, fn(), usize);

/// Each model with the number of its schedules.
const MODELS: [Model; 18] = [
    (
        "permits::none_is_lost_or_doubled",
        check::permits::none_is_lost_or_doubled,
        50_000,
    ),
    (
        "permits::shares_are_counted",
        check::permits::shares_are_counted,
        30_000,
    ),
    (
        "permits::a_cancelled_wait_costs_no_wake_up",
        check::permits::a_cancelled_wait_costs_no_wake_up,
        50_000,
    ),
    (
        "admission::each_place_is_released_once",
        check::admission::each_place_is_released_once,
        30_000,
    ),
    (
        "admission::one_offer_replaces_a_session",
        check::admission::one_offer_replaces_a_session,
        30_000,
    ),
    (
        "admission::a_drain_misses_no_newcomer",
        check::admission::a_drain_misses_no_newcomer,
        50_000,
    ),
    (
        "admission::a_job_evicts_no_one",
        check::admission::a_job_evicts_no_one,
        30_000,
    ),
    (
        "admission::a_place_of_a_job_is_used_or_returned",
        check::admission::a_place_of_a_job_is_used_or_returned,
        30_000,
    ),
    (
        "admission::the_next_end_is_not_missed",
        check::admission::the_next_end_is_not_missed,
        30_000,
    ),
    (
        "tokens::one_opens_one_socket",
        check::tokens::one_opens_one_socket,
        30_000,
    ),
    (
        "media::events_arrive_or_are_counted",
        check::media::events_arrive_or_are_counted,
        30_000,
    ),
    (
        "media::a_frame_and_its_answer_arrive",
        check::media::a_frame_and_its_answer_arrive,
        30_000,
    ),
    (
        "media::the_end_wakes_the_bot",
        check::media::the_end_wakes_the_bot,
        30_000,
    ),
    (
        "media::speech_arrives_whole",
        check::media::speech_arrives_whole,
        10_000,
    ),
    (
        "media::an_interruption_wakes_the_bot",
        check::media::an_interruption_wakes_the_bot,
        10_000,
    ),
    ("media::marks_are_bounded", check::media::marks_are_bounded, 1_000),
    (
        "inbox::each_value_arrives_or_is_refused",
        check::inbox::each_value_arrives_or_is_refused,
        30_000,
    ),
    (
        "log::each_line_is_written_or_reported",
        check::log::each_line_is_written_or_reported,
        10_000,
    ),
];

fn main() -> ExitCode {
    let part = std::env::args().nth(1).unwrap_or_default();
    let clock = || {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs())
    };
    let seed = match std::env::var("SEED") {
        Ok(seed) => seed.parse().expect("SEED is a number"),
        Err(_) => clock(),
    };
    let (mut passed, mut failed) = (0, 0);
    for (name, model, schedules) in MODELS.iter().filter(|(name, ..)| name.contains(&part)) {
        let began = Instant::now();
        let outcome = catch_unwind(|| shuttle::check_random_with_seed(model, seed, *schedules));
        let took_ms = began.elapsed().as_millis();
        match outcome {
            Ok(()) => {
                println!("{name}: {schedules} schedules in {took_ms} ms");
                passed += 1;
            }
            Err(_) => {
                println!("{name}: failed. To repeat it: SEED={seed} tests/check.sh models");
                failed += 1;
            }
        }
    }
    println!("{passed} passed, {failed} failed");
    match (passed, failed) {
        (1.., 0) => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}
