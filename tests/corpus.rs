//! Replays the corpus through the entry functions of the fuzz targets, without a fuzzer.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

#[path = "fuzz/entries.rs"]
pub mod entries;

fn files(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(folder);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    assert!(files.len() >= 10, "{} has {} files", folder.display(), files.len());
    files
}

/// Runs an entry on each file, on truncations of it, and on copies with a changed byte.
fn replay(folder: &str, entry: fn(&[u8])) {
    replay_at(folder, entry, 20);
}

/// Like `replay`, with a number of places: a connection takes hundredths of a second.
fn replay_at(folder: &str, entry: fn(&[u8]), places: usize) {
    for path in files(folder) {
        let bytes = fs::read(&path).expect("a readable file");
        let step = (bytes.len() / places).max(1);
        let whole = |run: &dyn Fn()| {
            let outcome = catch_unwind(AssertUnwindSafe(run));
            assert!(outcome.is_ok(), "{} breaks a property, see above", path.display());
        };
        whole(&|| entry(&bytes));
        for at in (0..bytes.len()).step_by(step) {
            whole(&|| entry(&bytes[..at]));
            let mut changed = bytes.clone();
            changed[at] = changed[at].wrapping_add(1 + (at % 7) as u8);
            whole(&|| entry(&changed));
        }
    }
}

#[test]
fn whatsapp_webhooks() {
    replay("corpus/whatsapp_webhook", entries::whatsapp::webhook);
}

#[test]
fn offers() {
    replay("corpus/sdp_offer", entries::sdp_offer);
    replay("data/sdp", entries::sdp_offer);
}

/// Generated offers go through the offer path and the rewrite for devices: no panic, no answer
/// above its limit, and rewritten offers are stable. `OFFERS` sets their number; `tests/check.sh
/// fuzz-run` uses 100,000.
#[test]
fn generated_offers() {
    let count = std::env::var("OFFERS").map_or(1_500, |count| count.parse().expect("a number of offers"));
    let real: Vec<String> = files("data/sdp")
        .iter()
        .filter(|path| path.to_string_lossy().ends_with(".offer.sdp"))
        .map(|path| fs::read_to_string(path).expect("a readable file"))
        .collect();
    let mut answered = 0;
    for seed in 0..count {
        let offer = entries::offers::make(&real, seed);
        let outcome = catch_unwind(|| entries::offers::run(&offer));
        match outcome {
            Ok(was) => answered += u64::from(was),
            Err(_) => panic!("seed {seed} breaks a property, see above:\n{offer}"),
        }
    }
    // The generator is useless if every offer is rejected at its first line.
    assert!(
        (count / 5..count).contains(&answered),
        "{answered} of {count} were answered"
    );
}

#[test]
fn answers() {
    replay("corpus/sdp_answer", entries::sdp_answer);
    replay("data/sdp", entries::sdp_answer);
}

#[test]
fn candidates() {
    replay("corpus/candidate", entries::candidate);
}

#[test]
fn offer_bodies() {
    replay("corpus/offer_body", entries::offer_body);
}

/// The bodies of PATCH requests.
#[test]
fn fragments_of_whip() {
    replay("corpus/whip_fragment", entries::whip::fragment);
}

/// Offers, keys and events of clients of OpenAI's realtime calls.
#[test]
fn realtime_calls() {
    replay("corpus/realtime_calls", entries::whip::realtime_calls);
}

/// Webhooks of telephony providers and of LiveKit servers.
#[test]
fn webhooks() {
    replay("corpus/webhooks", entries::webhooks::webhooks);
}

#[test]
fn heads_of_requests() {
    replay("corpus/request", entries::http::request);
}

#[test]
fn configurations() {
    replay("corpus/configuration", entries::configuration::configuration);
}

/// Unauthenticated packets neither prevent, silence nor end a connection.
#[test]
fn checks_before_a_connection() {
    replay_at("corpus/stun", entries::media::stun, 3);
}

#[test]
fn records_of_a_handshake() {
    replay_at("corpus/dtls", entries::media::dtls, 3);
}

#[test]
fn packets_of_media() {
    replay_at("corpus/media", entries::media::media, 3);
}

#[test]
fn chunks_of_channels() {
    replay_at("corpus/channels", entries::media::channels, 3);
}

#[test]
fn whole_sessions() {
    replay_at("corpus/session", entries::media::session, 3);
}

#[test]
fn protobuf_frames() {
    replay("corpus/frames", entries::frames);
}

#[test]
fn tokens() {
    replay("corpus/token", entries::token);
}

/// D-23, D-24: session ids, tokens and connection ids of replicas.
#[test]
fn ids_of_replicas() {
    replay("corpus/sealed_id", entries::cluster::sealed_id);
}

#[test]
fn telephone_calls() {
    replay("corpus/telephony", entries::telephony);
}

#[test]
fn livekit_signalling() {
    replay("corpus/livekit_signal", entries::livekit_signal);
}

#[test]
fn livekit_jobs() {
    replay("corpus/livekit_worker", entries::worker::worker);
}

#[test]
fn livekit_data_packets() {
    replay("corpus/livekit_data", entries::livekit_data);
}

#[test]
fn peers_of_media_over_quic() {
    replay_at("corpus/moq_peer", entries::moq::peer, 60);
}

/// Catalogs, records and audio frames.
#[test]
fn formats_of_media_over_quic() {
    replay("corpus/moq_formats", entries::moq::formats);
}

#[test]
fn parsers_of_webtransport() {
    replay("corpus/webtransport", entries::moq::webtransport);
}

#[test]
fn forms_of_uploads() {
    replay("corpus/multipart", entries::multipart);
}

#[test]
fn policies_of_grants() {
    replay("corpus/policy", entries::policy);
}

/// I-17, I-18: valid and hostile archives, each cut and changed at many places.
#[test]
fn entries_of_build_contexts() {
    replay("corpus/tar_entries", entries::tar_entries);
}

#[test]
fn wyoming_events() {
    replay("corpus/wyoming_event", entries::assistants::wyoming);
}

/// Answers of chat models and recognisers.
#[test]
fn server_sent_events() {
    replay("corpus/sse", entries::assistants::sse);
}

#[test]
fn audio_of_voices() {
    replay("corpus/wav_header", entries::assistants::wav_header);
}

#[test]
fn events_of_a_speech_to_speech_service() {
    replay("corpus/realtime_event", entries::assistants::realtime_event);
}

#[test]
fn bodies_of_start() {
    replay("corpus/start_body", entries::start::body);
}

/// Programs and endpoints of `--tools`.
#[test]
fn functions_of_the_operator() {
    replay("corpus/tools", entries::tools::tools);
}

/// Forms of the setup page, of several devices.
#[test]
fn forms_of_the_setup_page() {
    replay("corpus/setup", entries::setup::setup);
}

#[test]
fn answers_of_acme_directories() {
    replay("corpus/acme", entries::acme::acme);
}

#[test]
fn messages_of_turn_servers() {
    replay("corpus/turn", entries::turn::turn);
}

#[test]
fn files_of_settings() {
    replay("corpus/settings", entries::settings::settings);
}

/// Messages and responses of a runner to `edge-runner call`.
#[test]
fn answers_to_a_caller() {
    replay("corpus/call_messages", entries::caller::messages);
    replay("corpus/call_response", entries::caller::response);
    replay("data/sdp", entries::caller::response);
}

/// Headers, queries, names of files and cut recordings.
#[test]
fn records_of_calls() {
    replay("corpus/records", entries::records::records);
}

/// Messages of RTVI clients.
#[test]
fn messages_of_clients() {
    replay("corpus/rtvi", entries::rtvi::message);
}

#[test]
fn files_of_scenarios() {
    replay("corpus/scenario", entries::scenario::scenario);
}

/// Records of keys, services for wake words, and lists of devices.
#[test]
fn inputs_of_the_sound_card() {
    replay("corpus/local", entries::local::local);
}

/// What services of numbers and rooms answer.
#[test]
fn answers_of_providers() {
    replay("corpus/provider_answers", entries::providers::answers);
}

#[test]
fn answers_of_object_stores() {
    replay("corpus/store_answers", entries::cloud::store);
}

#[test]
fn ignore_files() {
    replay("corpus/ignore_file", entries::cloud::ignore_file);
}

#[test]
fn requests_of_the_cloud_service() {
    replay("corpus/cloud_requests", entries::cloud::requests);
}

#[test]
fn files_of_a_release() {
    replay("corpus/update", entries::update::update);
}

#[test]
fn messages_of_a_program() {
    replay("corpus/process_messages", entries::process::messages);
}

/// Strangers keep no client from Media over QUIC.
#[test]
fn datagrams_of_media_over_quic() {
    replay_at("corpus/moq_datagrams", entries::quic::datagrams, 5);
}

/// The gate compiles no target: each calls an entry that is compiled here, and is a program of its
/// package.
#[test]
fn each_fuzz_target_has_an_entry() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz");
    let manifest = fs::read_to_string(folder.join("Cargo.toml")).expect("the manifest");
    let mut targets = 0;
    for file in fs::read_dir(&folder).expect("the folder") {
        let path = file.expect("an entry").path();
        let text = fs::read_to_string(&path).unwrap_or_default();
        let Some((_, call)) = text.split_once("fuzz_target!(|bytes: &[u8]| ") else {
            continue;
        };
        targets += 1;
        let entry = call
            .strip_prefix("oracle::run(")
            .and_then(|call| call.strip_suffix(", bytes));\n"));
        let entry = entry.unwrap_or_else(|| panic!("{}: more than a call of its entry", path.display()));
        let replayed = include_str!("corpus.rs").contains(&format!("\", {entry}"));
        assert!(replayed, "{}: {entry} is not replayed", path.display());
        let name = path.file_name().and_then(|name| name.to_str()).expect("a name");
        let declared = manifest.contains(&format!("path = \"{name}\""));
        assert!(declared, "{name} is no program of the package");
    }
    assert_eq!(targets, manifest.matches("[[bin]]").count());
}
