//! A microcontroller talks to the runner: `--embedded` as its clients need it, with the strict device of `support`.
//!
//! Whatever the device would misread, lose, decode wrongly or crash at fails the test by the rule's name.

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use crate::support::device::certificate::{CertificateForm, Identity};
use crate::support::device::offer::{Candidate, Codec, Shape};
use crate::support::device::{Device, Options, Report, offer_only, post_offer, post_offer_with};
use crate::support::runner::TestRunner;
use crate::support::sound::{FRAME, Speech, tone_share};

const HOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const A4: f64 = 440.0;

fn embedded(bot: &str) -> TestRunner {
    TestRunner::start(&["--embedded", "--host", "127.0.0.1", "--bot", bot])
}

/// A device that plays and records at once, so that an echo is not cut by its own half-duplex rule.
fn full_duplex(speech: Speech) -> Options {
    Options {
        mutes_itself: false,
        ..Options::new(speech)
    }
}

/// Waits until a second of what is played is the tone and little else, and gives the report of that moment.
fn hears(device: &Device, hz: f64) -> Report {
    // Looked at every 200 ms of audio: the device waits while the test computes.
    let due = |report: &Report| report.audio.len() >= 50 && report.audio.len().is_multiple_of(10);
    device.wait("its tone", |report| {
        due(report) && tone_share(last_second(report), hz) > 0.9
    })
}

fn last_second(report: &Report) -> &[i16] {
    let second = 50 * FRAME;
    &report.pcm[report.pcm.len().saturating_sub(second)..]
}

/// R-082: the offer of the voice firmware and its variants from the field each get an answer that the device can take.
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

/// D6, R-082: `--embedded` is needed by no device. Without it, a device is told the address at which its offer has reached
/// the runner, and plays and sends as on a runner for devices.
#[test]
fn a_device_talks_without_the_option() {
    for host in ["localhost", "127.0.0.1", "0.0.0.0"] {
        let runner = TestRunner::start(&["--host", host, "--bot", "echo"]);
        // The address at which it listens may be 0.0.0.0.
        let addr = (HOST, runner.addr.port()).into();
        let mut device = Device::join(addr, full_duplex(Speech::Tone { hz: A4 }));
        hears(&device, A4);
        device.wait("the channel", |report| report.channel_open);
        device.vanish().assert_clean();
        runner.wait_for_log("session started: webrtc, embedded");
        assert!(!runner.log().contains("--embedded"), "{}", runner.log());
    }
}

/// D6: behind a proxy nobody knows where a device reaches the runner. One line names the client and the option.
#[test]
fn a_device_that_may_not_find_the_runner_is_named_in_the_log() {
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

/// D7, D9, D10: what other builds and older firmware write, each heard and answered.
#[test]
fn offers_of_other_firmware_are_understood() {
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

/// D8: a microphone is taken, and a device that wants to begin the handshake is answered that it may.
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

/// A codec that is not spoken is an error that says so, in place of an answer that would never carry sound.
#[test]
fn an_offer_of_other_codecs_is_refused_in_words() {
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
    assert!(
        violations[0].contains("Opus (opus/48000/2), PCMU or PCMA"),
        "{violations:?}"
    );
}

/// Firmware that is built for G.711 has its tone back, paced and labelled as it must be, and a data channel.
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

/// Firmware on esp_peer takes the DTLS role that the answer gives it, and of both ends only the client of the handshake begins
/// SCTP: audio and messages pass both ways in either role, in Opus and in PCMU.
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

/// After speech comes the code of silence, which opens the microphone again: in mu-law it is zero. A-law has no zero, so there
/// the firmware of such a build must take its two smallest steps for silence, whoever speaks.
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
        // What a build for A-law takes for silence is not known: this one plays and records at once.
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

/// The tone that the device sends comes back: every packet decoded from byte 12, tagged, paced and labelled as it must be.
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

/// No more than its budget, however late the test itself runs: packets never come faster than they are spoken, up to the
/// few that a busy machine delivers late, and everything but audio stays below ten datagrams a second.
fn assert_paced(report: &Report) {
    let seconds = report.audio.last().expect("there was audio").at.as_secs_f64();
    let audio = report.audio.len();
    assert!((audio as f64) < 50.0 * seconds + 15.0, "{audio} packets in {seconds} s");
    let rest = report.datagrams.len() - audio;
    // The handshake's last flight and the opening of the channel fall into the first second.
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

/// The bot hears the device, answers after it, and then sends silence that opens the device's microphone again.
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

/// The channel opens without the bot's own INIT or a repeated step, and speaking events arrive as single small chunks.
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

/// `client-ready` without data or version is answered with its own id; the shipped firmware never sends it.
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

/// Devices booted in the same second have the same user fragment and password, and all have SSRC 6: still two sessions.
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
    let heard = [hears(&first, A4), hears(&second, 1_000.0)];
    assert_eq!(runner.sessions(), 2);
    for (report, other) in heard.iter().zip([1_000.0, A4]) {
        let share = tone_share(last_second(report), other);
        assert!(share < 0.05, "the other's tone has {share} of the energy");
    }
    first.vanish().assert_clean();
    second.vanish().assert_clean();
}

/// The certificate of Mbed TLS before 3.5.0 has a NULL parameter that a strict parser refuses.
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

/// An address that cannot be used, or none, does not matter: the checks of the device show where it is.
#[test]
fn a_device_whose_candidate_is_useless_connects_all_the_same() {
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

/// Audio is all there is without a channel, and it is there.
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

/// R-082: the last packets of the device's handshake are lost. It takes itself for connected, and sends them again only
/// when it is asked in a datagram that it reads.
#[test]
fn a_device_whose_finished_was_lost_has_sound_all_the_same() {
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

/// Builds with the library's keep-alive close 10 s after the last binding request; the runner sends one in time, always.
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

/// A device without power says nothing. When it is back, its new session takes the place of the old one; when it stays
/// away, the session is freed all the same.
#[test]
fn a_rebooted_device_takes_over_and_a_vanished_one_is_freed() {
    let runner = embedded("echo");
    let options = full_duplex(Speech::Tone { hz: A4 });
    let mut lost = Device::join(runner.addr, options.clone());
    lost.wait("audio", |report| report.audio.len() >= 25);
    lost.vanish().assert_clean();
    // Reset and start of the firmware.
    std::thread::sleep(Duration::from_secs(2));
    // Same credentials, a new key, another port.
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

/// A device without a clock has the same credentials at every boot, and the same port: each boot connects, a life of half a
/// second before it notwithstanding, and one session is left.
#[test]
fn a_device_that_boots_again_and_again_at_one_port_connects_each_time() {
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

/// A runner whose only place is held by the session of a device without power gives it to that device, when it is back: at
/// another port, and at the same port with the same credentials. It is refused at no time.
#[test]
fn a_rebooted_device_gets_its_place_back_from_a_full_runner() {
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
    assert_eq!(log.matches("8 checks got no answer").count(), 2, "{log}");
}

/// A device that pushes to talk says nothing, and answers: no offer takes its place, not even one that names its own address,
/// and it is refused at once.
#[test]
fn a_quiet_device_keeps_its_place_in_a_full_runner() {
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
    let heard = device.report().audio.len();
    device.wait("more audio", |report| report.audio.len() >= heard + 100);
    device.vanish().assert_clean();
    assert!(!runner.log().contains("replaced"), "{}", runner.log());
}

/// Offers of devices that die before their first check fill the runner for a moment only: a device that restarts at each
/// refusal, as the firmware does, has its place before they are given up.
#[test]
fn offers_that_die_leave_room_for_a_device() {
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

/// A device on another host than the runner. `tests/check.sh net` starts both in namespaces, and says where the runner is.
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

/// The same for one that stays while the stage does something to its network, which is done when the input ends a line. The
/// rules of the strict device know no lost packets, so they are not looked at.
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
        assert!(
            began.elapsed() < Duration::from_secs(10),
            "the runner sends it nothing any more"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(device.report().closed, None);
}

/// When the runner is told to end, a device sees the only thing it can see, and the runner ends in order.
#[test]
fn the_end_of_the_runner_reaches_the_device() {
    let mut runner = TestRunner::start(&["--embedded", "--host", "127.0.0.1", "--bot", "echo"]);
    let device = Device::join(runner.addr, Options::new(Speech::Silence));
    device.wait("the channel", |report| report.channel_open);
    runner.signal("TERM");
    assert_eq!(runner.wait().code(), Some(0), "{}", runner.log());
}

/// R-083: without an address that a device on the network can reach there is no point in starting.
#[test]
fn embedded_without_a_usable_host_is_refused_at_start() {
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
