//! A microcontroller and a runner with `--embedded`, through the strict device of `support`.
//!
//! The test fails with the rule's name at anything the device would misread, lose, decode wrongly
//! or crash at.

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use crate::support::device::certificate::{CertificateForm, Identity};
use crate::support::device::offer::{Candidate, Codec, Shape};
use crate::support::device::{Device, Options, Report, offer_only, post_offer, post_offer_with};
use crate::support::runner::{PATIENCE, TestRunner};
use crate::support::sound::{FRAME, Speech, tone_share};

const HOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const A4: f64 = 440.0;

fn embedded(bot: &str) -> TestRunner {
    TestRunner::start(&["--embedded", "--host", "127.0.0.1", "--bot", bot])
}

/// A device that plays and records at once, so that its own half-duplex rule does not cut an echo.
fn full_duplex(speech: Speech) -> Options {
    Options {
        mutes_itself: false,
        ..Options::new(speech)
    }
}

/// Waits until a second of playback is mostly the tone. Returns the report of that moment.
pub fn hears(device: &Device, hz: f64) -> Report {
    // Evaluated every 200 ms of audio, because the device waits meanwhile.
    let due = |report: &Report| report.audio.len() >= 50 && report.audio.len().is_multiple_of(10);
    device.wait("its tone", |report| {
        due(report) && tone_share(last_second(report), hz) > 0.9
    })
}

fn last_second(report: &Report) -> &[i16] {
    let second = 50 * FRAME;
    &report.pcm[report.pcm.len().saturating_sub(second)..]
}

/// R-082: the firmware's offer and its known variants get answers that the device accepts.
#[test]
fn every_known_offer_gets_an_answer_that_fits_the_device() {
    let runner = embedded("echo");
    let firmware = Shape::FIRMWARE;
    let variants = [
        ("the firmware's", firmware),
        (
            "no data channel",
            Shape {
                data_channel: false,
                ..firmware
            },
        ),
        (
            "address 0.0.0.0",
            Shape {
                candidate: Candidate::Unspecified,
                ..firmware
            },
        ),
        (
            "port 0",
            Shape {
                candidate: Candidate::PortZero,
                ..firmware
            },
        ),
        (
            "no candidate",
            Shape {
                candidate: Candidate::Absent,
                ..firmware
            },
        ),
        (
            "mids as numbers",
            Shape {
                mids_are_words: false,
                ..firmware
            },
        ),
        (
            "credentials in sections",
            Shape {
                credentials_in_sections: true,
                ..firmware
            },
        ),
        (
            "SAVPF",
            Shape {
                profile: "UDP/TLS/RTP/SAVPF",
                ..firmware
            },
        ),
        (
            "LF line ends",
            Shape {
                line_end: "\n",
                ..firmware
            },
        ),
        (
            "no final line end",
            Shape {
                ends_with_line_end: false,
                ..firmware
            },
        ),
    ];
    for (name, shape) in variants {
        let (answer, violations) = offer_only(runner.addr, shape, HOST);
        assert!(violations.is_empty(), "{name}: {violations:#?}");
        assert!(answer.is_some(), "{name}");
    }
}

/// R-082: no device needs `--embedded`. Without it, a device is offered the address that its
/// request reached.
#[test]
fn a_device_talks_without_the_option() {
    for host in ["localhost", "127.0.0.1", "0.0.0.0"] {
        let runner = TestRunner::start(&["--host", host, "--bot", "echo"]);
        // The runner may listen on 0.0.0.0.
        let addr = (HOST, runner.addr.port()).into();
        let mut device = Device::join(addr, full_duplex(Speech::Tone { hz: A4 }));
        hears(&device, A4);
        device.wait("the channel", |report| report.channel_open);
        device.vanish().assert_clean();
        runner.wait_for_log("session started: webrtc, embedded");
        assert!(!runner.log().contains("--embedded"), "{}", runner.log());
    }
}

/// Behind a proxy the reachable address is unknown. One log line names the client and the option.
#[test]
fn warns_about_a_device_that_may_not_reach_the_runner() {
    let runner = TestRunner::start(&["--host", "0.0.0.0", "--bot", "echo"]);
    let options = Options::new(Speech::Silence);
    let local = (Ipv4Addr::LOCALHOST, 49_152).into();
    let addr = (HOST, runner.addr.port()).into();
    let reply = post_offer_with(addr, &options, local, &["X-Forwarded-For: 198.51.100.7"]);
    assert_eq!(reply.status, 200, "{}", reply.text());
    let said = runner.wait_for_log("this client is a microcontroller");
    assert!(
        said.contains("WARN") && said.contains("--embedded --host ADDRESS"),
        "{said}"
    );
}

/// Offers of other builds and older firmware are answered, and their audio is heard.
#[test]
fn accepts_offers_of_other_firmware() {
    let runner = TestRunner::start(&["--host", "127.0.0.1", "--bot", "echo"]);
    let firmware = Shape::FIRMWARE;
    for shape in [
        Shape {
            profile: "UDP/TLS/RTP/SAVPF",
            semantic: None,
            ..firmware
        },
        Shape {
            opus: "opus/16000/1",
            ..firmware
        },
        Shape { ssrc: None, ..firmware },
        Shape {
            ssrc: Some(7),
            ..firmware
        },
    ] {
        let options = Options {
            shape,
            ..full_duplex(Speech::Tone { hz: A4 })
        };
        let mut device = Device::join(runner.addr, options);
        hears(&device, A4);
        device.vanish().assert_clean();
    }
}

/// A microphone is accepted, and a device that wants to start the handshake may.
#[test]
fn a_microphone_and_a_client_of_the_handshake_are_answered() {
    let runner = embedded("echo");
    let firmware = Shape::FIRMWARE;
    for (shape, lines) in [
        (
            Shape {
                direction: "sendonly",
                ..firmware
            },
            ["a=recvonly", "a=setup:active"],
        ),
        (
            Shape {
                setup: "active",
                ..firmware
            },
            ["a=sendrecv", "a=setup:passive"],
        ),
        (
            Shape {
                semantic: Some("esp-webrtc"),
                setup: "actpass",
                ..firmware
            },
            ["a=sendrecv", "a=setup:passive"],
        ),
    ] {
        let options = Options {
            shape,
            ..Options::new(Speech::Silence)
        };
        let reply = post_offer(runner.addr, &options, (Ipv4Addr::LOCALHOST, 49_152).into());
        assert_eq!(reply.status, 200, "{}", reply.text());
        let answer = reply.json()["sdp"].as_str().expect("an answer").to_owned();
        for line in lines {
            assert!(answer.contains(&format!("{line}\r\n")), "{line}: {answer}");
        }
        let has_source = answer.contains("a=ssrc:");
        assert_eq!(has_source, shape.direction != "sendonly", "{answer}");
    }
}

/// An unsupported codec is an error with the reason, instead of an answer without audio.
#[test]
fn rejects_an_offer_of_other_codecs_with_a_reason() {
    let runner = embedded("echo");
    let (answer, violations) = offer_only(
        runner.addr,
        Shape {
            codec: Codec::G722,
            ..Shape::FIRMWARE
        },
        HOST,
    );
    assert_eq!(answer, None);
    assert!(violations[0].contains("status 400"), "{violations:?}");
    assert!(violations[0].contains("opus/48000/2, PCMU/8000"), "{violations:?}");
}

/// Header extensions of both forms of RFC 8285 and of others (0xabac is ONVIF's) are ignored, and
/// the sound behind them is heard.
#[test]
fn a_device_with_a_header_extension_of_any_profile_is_decoded() {
    let runner = embedded("echo");
    for profile in [0xbede_u16, 0x1000, 0xabac, 0x9999, 0] {
        let options = Options {
            extension: [&profile.to_be_bytes()[..], &[0, 3], &[0; 12]].concat(),
            ..full_duplex(Speech::Tone { hz: A4 })
        };
        let mut device = Device::join(runner.addr, options);
        hears(&device, A4);
        device.vanish().assert_clean();
    }
}

/// G.711 firmware hears its echo, correctly paced and labelled, and has a data channel.
#[test]
fn a_device_with_g711_firmware_talks() {
    let runner = embedded("echo");
    for codec in [Codec::Pcmu, Codec::Pcma] {
        let shape = Shape {
            codec,
            ssrc: Some(codec.ssrc()),
            ..Shape::FIRMWARE
        };
        let options = Options {
            shape,
            ..full_duplex(Speech::Tone { hz: A4 })
        };
        let mut device = Device::join(runner.addr, options);
        hears(&device, A4);
        device.wait("the channel and three seconds of audio", |report| {
            report.channel_open && report.audio.len() >= 150
        });
        device.vanish().assert_clean();
    }
    for name in ["PCMU", "PCMA"] {
        let line = format!("session started: webrtc, embedded, {name}");
        assert!(runner.log().contains(&line), "{}", runner.log());
    }
}

/// esp_peer follows the answer's DTLS role, and the DTLS client starts SCTP: audio and messages
/// pass both ways in each role, with Opus and PCMU.
#[test]
fn an_esp_peer_talks_in_the_role_it_is_given() {
    let runner = embedded("echo");
    for codec in [Codec::Opus, Codec::Pcmu] {
        for (setup, is_active) in [("actpass", false), ("active", false), ("passive", true)] {
            let shape = Shape {
                codec,
                setup,
                ssrc: Some(codec.ssrc()),
                ..Shape::ESP_PEER
            };
            let (answer, violations) = offer_only(runner.addr, shape, HOST);
            assert!(violations.is_empty(), "{setup}: {violations:#?}");
            assert_eq!(answer.map(|answer| answer.is_active), Some(is_active), "{setup}");
            let ready = r#"{"label":"rtvi-ai","type":"client-ready","id":"0"}"#;
            let options = Options {
                shape,
                says: vec![ready.into()],
                ..full_duplex(Speech::Tone { hz: A4 })
            };
            let mut device = Device::join(runner.addr, options);
            hears(&device, A4);
            device.wait("the channel and its answer", |report| {
                report.channel_open && report.has_message("bot-ready")
            });
            device.vanish().assert_clean();
        }
    }
}

/// Silence after speech reopens the microphone. In mu-law it is zero; A-law has no zero, so
/// firmware must accept its two smallest values.
#[test]
fn g711_devices_hear_silence_after_the_bot() {
    let runner = embedded("parrot");
    let speech = Speech::Voice {
        from_ms: 500,
        to_ms: 2_000,
    };
    for (codec, smallest) in [(Codec::Pcmu, 0), (Codec::Pcma, 8)] {
        let shape = Shape {
            codec,
            ssrc: Some(codec.ssrc()),
            ..Shape::FIRMWARE
        };
        // The A-law firmware's rule for silence is unknown, so this device is full-duplex.
        let options = Options {
            shape,
            mutes_itself: codec == Codec::Pcmu,
            ..Options::new(speech)
        };
        let silent = |report: &Report| {
            let frames = report.pcm.chunks_exact(FRAME).rev();
            let is_silent = |frame: &&[i16]| frame.iter().all(|sample| sample.unsigned_abs() <= smallest);
            frames.take_while(is_silent).count()
        };
        let mut device = Device::join(runner.addr, options);
        device.wait("sound of the bot", |report| {
            !report.pcm.is_empty() && silent(report) == 0
        });
        device.wait("35 silent frames after it", |report| silent(report) >= 35);
        device.vanish().assert_clean();
    }
}

/// The device hears its echo: every packet is decoded from byte 12, correctly labelled and paced.
#[test]
fn a_tone_comes_back_and_every_packet_is_one_the_device_can_play() {
    let runner = embedded("echo");
    let mut device = Device::join(runner.addr, full_duplex(Speech::Tone { hz: A4 }));
    hears(&device, A4);
    device.wait("five seconds of audio", |report| report.audio.len() >= 250);
    let report = device.vanish();
    report.assert_clean();
    assert_paced(&report);
}

/// Packets are never faster than real time, but for a few that a busy machine delays, and
/// everything but audio takes less than ten datagrams per second.
fn assert_paced(report: &Report) {
    let seconds = report.audio.last().expect("there was audio").at.as_secs_f64();
    let audio = report.audio.len();
    assert!((audio as f64) < 50.0 * seconds + 15.0, "{audio} packets in {seconds} s");
    let rest = report.datagrams.len() - audio;
    // The last flight and the channel setup are in the first second.
    assert!(
        (rest as f64) < 10.0 * seconds + 15.0,
        "{rest} datagrams beside audio in {seconds} s"
    );
    let burst = report
        .audio
        .windows(21)
        .filter(|w| w[20].at - w[0].at < Duration::from_millis(100))
        .count();
    assert_eq!(burst, 0, "20 packets within 100 ms: the device's stack holds six");
}

/// The bot answers the device and then sends silence that reopens its microphone.
#[test]
fn the_parrot_answers_and_ends_in_silence_that_opens_the_microphone() {
    let runner = embedded("parrot");
    let speech = Speech::Voice {
        from_ms: 500,
        to_ms: 2_000,
    };
    let mut device = Device::join(runner.addr, Options::new(speech));
    device.wait("sound of the bot", |report| {
        !report.pcm.is_empty() && report.silent_frames_at_end() == 0
    });
    device.wait("35 silent frames after it", |report| {
        report.silent_frames_at_end() >= 35
    });
    device.vanish().assert_clean();
}

/// The channel opens without an INIT of the runner or a repeated step, and speaking events arrive
/// as single small chunks.
#[test]
fn the_data_channel_opens_at_once_and_carries_speaking_events() {
    let runner = embedded("parrot");
    let speech = Speech::Voice {
        from_ms: 500,
        to_ms: 2_000,
    };
    let mut device = Device::join(runner.addr, Options::new(speech));
    device.wait("the channel", |report| report.channel_open);
    device.wait("both speaking events", |report| {
        report.has_message("bot-started-speaking") && report.has_message("bot-stopped-speaking")
    });
    let report = device.vanish();
    report.assert_clean();
    let seconds = report.messages.last().expect("there were two").0.as_secs_f64();
    assert!(
        (report.messages.len() as f64) < 5.0 * seconds + 5.0,
        "{:?}",
        report.messages
    );
}

/// A `client-ready` without data and version is answered with its id; the shipped firmware never
/// sends it.
#[test]
fn a_bare_client_ready_is_answered() {
    let runner = embedded("parrot");
    let ready = r#"{"label":"rtvi-ai","type":"client-ready","id":"0"}"#;
    let options = Options {
        says: vec![ready.into()],
        ..Options::new(Speech::Silence)
    };
    let mut device = Device::join(runner.addr, options);
    let report = device.wait("bot-ready", |report| report.has_message("bot-ready"));
    let answered = report.messages.iter().any(|(_, text)| {
        let json: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
        json["type"] == "bot-ready" && json["id"] == "0"
    });
    assert!(answered, "{:?}", report.messages);
    device.vanish().assert_clean();
}

/// Devices booted in the same second share their ICE credentials and SSRC 6, but get two sessions.
#[test]
fn two_devices_with_equal_credentials_are_two_sessions() {
    let runner = embedded("echo");
    let first = full_duplex(Speech::Tone { hz: A4 });
    let second = Options {
        credentials: first.credentials.clone(),
        ..full_duplex(Speech::Tone { hz: 1_000.0 })
    };
    let mut first = Device::join(runner.addr, first);
    let mut second = Device::join(runner.addr, second);
    let received = [hears(&first, A4), hears(&second, 1_000.0)];
    assert_eq!(runner.sessions(), 2);
    for (report, other) in received.iter().zip([1_000.0, A4]) {
        let share = tone_share(last_second(report), other);
        assert!(share < 0.05, "the other's tone has {share} of the energy");
    }
    first.vanish().assert_clean();
    second.vanish().assert_clean();
}

/// Certificates of Mbed TLS before 3.5.0 have a NULL parameter that strict parsers reject.
#[test]
fn a_malformed_certificate_with_the_right_fingerprint_connects() {
    let runner = embedded("echo");
    let identity = Identity::generate(CertificateForm::NullParameters);
    let options = Options {
        identity,
        ..full_duplex(Speech::Tone { hz: A4 })
    };
    let mut device = Device::join(runner.addr, options);
    device.wait("audio", |report| report.audio.len() >= 50);
    device.vanish().assert_clean();
}

/// A useless or missing candidate does not matter: the device's checks reveal its address.
#[test]
fn a_device_without_a_usable_candidate_connects() {
    let runner = embedded("echo");
    for candidate in [Candidate::Unspecified, Candidate::PortZero, Candidate::Absent] {
        let shape = Shape {
            candidate,
            ..Shape::FIRMWARE
        };
        let mut device = Device::join(
            runner.addr,
            Options {
                shape,
                ..full_duplex(Speech::Tone { hz: A4 })
            },
        );
        device.wait("audio", |report| report.audio.len() >= 25);
        device.vanish().assert_clean();
    }
}

/// Audio works without a data channel.
#[test]
fn a_device_without_a_data_channel_talks() {
    let runner = embedded("echo");
    let shape = Shape {
        data_channel: false,
        ..Shape::FIRMWARE
    };
    let mut device = Device::join(
        runner.addr,
        Options {
            shape,
            ..full_duplex(Speech::Tone { hz: A4 })
        },
    );
    hears(&device, A4);
    device.vanish().assert_clean();
}

/// R-082: the last packets of the device's handshake are lost. It counts as connected, and repeats
/// them only on a request that it reads.
#[test]
fn a_device_whose_finished_was_lost_has_audio() {
    let runner = embedded("echo");
    let options = Options {
        loses_finished: true,
        ..full_duplex(Speech::Tone { hz: A4 })
    };
    let mut device = Device::join(runner.addr, options);
    hears(&device, A4);
    device.wait("its channel", |report| report.channel_open);
    device.vanish().assert_clean();
}

/// Builds with keep-alive close 10 s after the last check; the runner always sends one in time.
#[test]
fn a_build_with_keep_alive_stays_connected() {
    let runner = embedded("echo");
    let options = Options {
        keep_alive: Some(Duration::from_secs(10)),
        ..Options::new(Speech::Silence)
    };
    let mut device = Device::join(runner.addr, options);
    device.wait("25 seconds of audio", |report| report.audio.len() >= 1_250);
    let report = device.vanish();
    report.assert_clean();
    assert!(report.binding_requests.len() >= 2, "{:?}", report.binding_requests);
}

/// A device without power sends nothing. When it returns, its new session replaces the old one;
/// otherwise that one ends by its timeout.
#[test]
fn a_rebooted_device_takes_over_and_a_vanished_one_is_freed() {
    let runner = embedded("echo");
    let options = full_duplex(Speech::Tone { hz: A4 });
    let mut lost = Device::join(runner.addr, options.clone());
    lost.wait("audio", |report| report.audio.len() >= 25);
    lost.vanish().assert_clean();
    // Reset and start of the firmware.
    std::thread::sleep(Duration::from_secs(2));
    // The same credentials, a new key, another port.
    let again = Options {
        credentials: options.credentials.clone(),
        ..full_duplex(Speech::Tone { hz: A4 })
    };
    let mut back = Device::join(runner.addr, again);
    hears(&back, A4);
    runner.wait_for_sessions(1);
    assert!(
        runner.log().contains("replaced"),
        "the old session ended in another way: {}",
        runner.log()
    );
    back.vanish().assert_clean();
    runner.wait_for_sessions(0);
}

/// A device without a clock has the same credentials and port at every boot: each boot connects,
/// even half a second after the last, and one session remains.
#[test]
fn a_device_that_reboots_repeatedly_at_one_port_connects_each_time() {
    let runner = embedded("echo");
    let options = full_duplex(Speech::Tone { hz: A4 });
    let mut device = Device::join(runner.addr, options.clone());
    for _ in 0..6 {
        device.wait("audio", |report| report.audio.len() >= 25);
        device.vanish().assert_clean();
        let again = device.boot_again(runner.addr, options.clone());
        device = again.expect("a place for the device");
    }
    hears(&device, A4);
    device.wait("the channel", |report| report.channel_open);
    device.vanish().assert_clean();
    runner.wait_for_sessions(0);
}

/// A full runner gives the place of a dead device to its next boot, at the same port or another,
/// without rejecting it.
#[test]
fn a_rebooted_device_replaces_its_session_in_a_full_runner() {
    let runner = TestRunner::start(&[
        "--embedded",
        "--host",
        "127.0.0.1",
        "--bot",
        "echo",
        "--max-sessions",
        "1",
    ]);
    let options = full_duplex(Speech::Tone { hz: A4 });
    let mut lost = Device::join(runner.addr, options.clone());
    lost.wait("audio", |report| report.audio.len() >= 25);
    lost.vanish().assert_clean();
    let mut back = Device::join(runner.addr, options.clone());
    hears(&back, A4);
    back.vanish().assert_clean();
    let mut again = back.boot_again(runner.addr, options).expect("its place");
    hears(&again, A4);
    again.vanish().assert_clean();
    let log = runner.log();
    assert_eq!(
        log.matches("replaced by a new session of the same device").count(),
        2,
        "{log}"
    );
    assert_eq!(log.matches("8 connectivity checks got no answer").count(), 2, "{log}");
}

/// A silent push-to-talk device answers checks: no offer takes its place, even one that names its
/// address, and that offer is rejected at once.
#[test]
fn a_quiet_device_keeps_its_session_in_a_full_runner() {
    let runner = TestRunner::start(&[
        "--embedded",
        "--host",
        "127.0.0.1",
        "--bot",
        "echo",
        "--max-sessions",
        "1",
    ]);
    let options = Options {
        mute: true,
        ..Options::new(Speech::Silence)
    };
    let mut device = Device::join(runner.addr, options);
    device.wait("three seconds of audio", |report| report.audio.len() >= 150);
    for _ in 0..3 {
        assert!(Device::try_join(runner.addr, full_duplex(Speech::Silence)).is_err());
    }
    let received = device.report().audio.len();
    device.wait("more audio", |report| report.audio.len() >= received + 100);
    device.vanish().assert_clean();
    assert!(!runner.log().contains("replaced"), "{}", runner.log());
}

/// Offers of devices that die before their first check fill the runner only briefly: a device that
/// restarts at each rejection is admitted before they time out.
#[test]
fn abandoned_offers_leave_room_for_a_device() {
    let runner = embedded("echo");
    for _ in 0..24 {
        offer_only(runner.addr, Shape::FIRMWARE, HOST);
    }
    let mut device = loop {
        match Device::try_join(runner.addr, full_duplex(Speech::Tone { hz: A4 })) {
            Ok(device) => break device,
            Err(_) => std::thread::sleep(Duration::from_millis(100)),
        }
    };
    hears(&device, A4);
    device.vanish().assert_clean();
}

/// A device on another host. `tests/check.sh net` starts both in network namespaces and passes the
/// runner's address.
#[test]
#[ignore = "the stage `net` runs this"]
fn a_device_on_another_host_talks() {
    let at = std::env::var("EDGE_RUNNER_AT").expect("EDGE_RUNNER_AT is the runner's address and port");
    let began = Instant::now();
    let options = full_duplex(Speech::Tone { hz: A4 });
    let mut device = Device::join(at.parse().expect("an address and a port"), options);
    device.wait("the handshake", |report| report.connected);
    println!("connected after {} ms", began.elapsed().as_millis());
    hears(&device, A4);
    device.vanish().assert_clean();
}

/// The same for a device that stays connected while the stage changes its network; the end of each
/// change is a line of input. Losses break the device's rules, so these are not checked.
#[test]
#[ignore = "the stage `net` runs this"]
fn a_device_on_another_host_stays() {
    let at = std::env::var("EDGE_RUNNER_AT").expect("EDGE_RUNNER_AT is the runner's address and port");
    let began = Instant::now();
    let options = Options {
        mute: std::env::var_os("EDGE_RUNNER_MUTE").is_some(),
        ..full_duplex(Speech::Tone { hz: A4 })
    };
    let device = Device::join(at.parse().expect("an address and a port"), options);
    device.wait("the handshake", |report| report.connected);
    println!("connected after {} ms", began.elapsed().as_millis());
    std::io::stdin().read_line(&mut String::new()).expect("an input");
    let before = device.report();
    let still_there = || {
        let report = device.report();
        report.audio.len() > before.audio.len() + 150 && report.binding_requests.len() > before.binding_requests.len()
    };
    let began = Instant::now();
    while !still_there() {
        assert!(began.elapsed() < PATIENCE, "the runner sends it nothing any more");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(device.report().closed, None);
}

/// When the runner stops, the device sees an SCTP abort, and the runner ends in order.
#[test]
fn the_end_of_the_runner_reaches_the_device() {
    let mut runner = TestRunner::start(&["--embedded", "--host", "127.0.0.1", "--bot", "echo"]);
    let device = Device::join(runner.addr, Options::new(Speech::Silence));
    device.wait("the channel", |report| report.channel_open);
    runner.signal("TERM");
    assert_eq!(runner.wait().code(), Some(0), "{}", runner.log());
}

/// R-083: the runner does not start without an address that devices can reach.
#[test]
fn rejects_embedded_without_a_usable_host_at_startup() {
    let hosts: [&[&str]; 8] = [
        &[],
        &["--host", "localhost"],
        &["--host", "voice.example"],
        &["--host", "0.0.0.0"],
        &["--host", "::"],
        &["--host", "::1"],
        // Documentation addresses, which no interface has.
        &["--host", "192.0.2.7"],
        &["--host", "2001:db8::7"],
    ];
    for host in hosts {
        let ended = TestRunner::run(&[&["--embedded", "--port", "0"], host].concat());
        assert_eq!(ended.code, Some(2), "{host:?}: {ended:?}");
        assert!(ended.stderr.contains("--host"), "{host:?}: {ended:?}");
        assert!(!ended.stdout.contains("listening"), "{host:?}: {ended:?}");
    }
}
