#!/usr/bin/env bash
# Runs the release binary for a board under qemu-user, against peers on this machine.
#   tests/arm.sh TARGET [BINARY]      e.g. aarch64-unknown-linux-gnu; cross/README.md lists the targets
#
# In: BINARY, or the output of `cross/build TARGET`. Out: at least one line per check; exits with 1 when one
# failed. Without aiortc or coturn their checks are skipped, which is a failure with CI=true.
#
# This tests the code: every instruction of a call, from the handshake to the codec, is the board's, with its
# word size and its C library. It cannot test the board's kernel (system calls are translated), speed and
# memory; tests of those are left out. Process bots run natively.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${1:?which target? See cross/README.md}
binary=${2:-}
qemu=$PWD/cross/qemu
. tests/check/common.sh
find_python

if [ -z "$binary" ]; then
    # A target folder of its own, because cargo locks the folder during a build.
    cross/build "$target" --quiet --target-dir target/cross
    binary=target/cross/$target/release/edge-runner
fi
binary=$(realpath "$binary")
"$qemu" "$binary" --version
"$qemu" "$binary" --help | diff - tests/data/help.txt

# Calls over WebRTC, telephony, WebSockets and rooms with the codec in both directions; hang-up at the
# provider; programs; TLS; systemd, drain and shutdown; metrics; doctor.
#
# Left out, because an emulator is not a board: tests of memory, of pacing and of the time to kill a program;
# devices that share an address, where one that is silent for a second counts as gone; and tests that count
# warnings, because the emulator's own threads cause one.
tests='
    device::a_tone_comes_back_and_every_packet_is_one_the_device_can_play
    device::the_parrot_answers_and_ends_in_silence_that_opens_the_microphone
    device::the_data_channel_opens_at_once_and_carries_speaking_events
    device::the_end_of_the_runner_reaches_the_device
    telephony::a_recorded_call_of_each_provider_is_served_as_its_own
    telephony::no_audio_is_lost_at_the_start_of_a_call
    telephony::the_webhook_names_a_socket_that_opens_once
    hangup::a_stopping_runner_hangs_up_its_calls
    hangup::retries_a_failed_hang_up_but_not_for_an_unknown_call
    sockets::client_ready_is_answered_and_messages_are_carried
    sockets::speech_of_every_rate_comes_back_at_the_rate_that_a_client_plays
    processes::a_program_finds_the_connection_in_its_arguments
    processes::caller_and_program_hear_each_other
    processes::the_end_of_the_program_ends_its_session
    processes::a_plain_client_talks_to_the_program_alone
    processes::a_command_that_cannot_be_run_is_refused_at_start
    tls::https_and_http_share_a_port
    tls::a_call_over_wss_has_sound
    tls::the_authority_persists
    tls::files_are_read_again_during_a_call
    livekit::a_participant_talks_with_the_bot
    livekit::a_program_joins_the_room_once_it_connects
    daily::start_makes_a_room_and_runs_a_bot_in_it
    shutdown::a_supervisor_is_notified_of_each_state
    shutdown::a_drain_lasts_until_its_sessions_end
    metrics::a_websocket_session_is_counted_while_it_is_live
    metrics::a_connection_is_counted_with_its_delays
    doctor::a_machine_that_serves_gets_a_line_per_check
    untrusted::only_requests_with_the_key_start_sessions
'
if needs 'apt-get install coturn' turnserver; then
    tests+=turn::a_caller_behind_a_relay_talks
fi
read -ra tests -d '' <<<"$tests" || true
export EDGE_RUNNER_BINARY="$qemu $binary"
# A renamed test must not count as passed.
found=$(linted cargo test --quiet --workspace --test main -- --exact --list "${tests[@]}" | grep -c ': test$' || true)
if [ "$found" != ${#tests[@]} ]; then
    printf '%s names %s tests, and %s of them exist\n' "$0" ${#tests[@]} "$found" >&2
    exit 1
fi
linted cargo test --quiet --workspace --test main -- --exact "${tests[@]}"

if needs_python aiortc; then
    $python tests/peers/aiortc/run.py --binary "$binary" --under "$qemu" tone rtvi restart farewell metrics
fi
