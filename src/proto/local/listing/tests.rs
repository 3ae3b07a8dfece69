//! Listings of a laptop with a sound server, of boards, and of users without rights.

use super::*;

const CARDS: &str = "\
 0 [PCH            ]: HDA-Intel - HDA Intel PCH
                      HDA Intel PCH at 0xf7f10000 irq 31
 1 [USB            ]: USB-Audio - Jabra SPEAK 510 USB
                      Jabra SPEAK 510 USB at usb-0000:00:14.0-1, full speed
";
const PCM: &str = "\
00-00: ALC269VC Analog : ALC269VC Analog : playback 1 : capture 1
00-03: HDMI 0 : HDMI 0 : playback 1
01-00: USB Audio : USB Audio : playback 1 : capture 1
";
/// Part of what `arecord -L` of alsa-utils 1.2.8 prints, on that machine.
const RECORDERS: &str = "\
null
    Discard all samples (playback) or generate zero samples (capture)
samplerate
    Rate Converter Plugin Using Samplerate Library
default
    Default ALSA Output (currently PipeWire Media Server)
sysdefault:CARD=USB
    Jabra SPEAK 510 USB, USB Audio
    Default Audio Device
hw:CARD=USB,DEV=0
    Jabra SPEAK 510 USB, USB Audio
    Direct hardware device without any conversions
plughw:CARD=USB,DEV=0
    Jabra SPEAK 510 USB, USB Audio
    Hardware device with all software conversions
";

fn system(named: NamedDevices, access: CardAccess) -> SoundSystem {
    SoundSystem {
        is_linux: true,
        has_server: false,
        microphones: named.clone(),
        loudspeakers: named,
        cards: cards(CARDS, PCM, |_| access),
        owners: Vec::new(),
    }
}

#[test]
fn each_device_is_listed_once_with_what_has_it_open() {
    let mut laptop = system(NamedDevices::Listed(RECORDERS.into()), CardAccess::Allowed);
    laptop.owners.push(DeviceOwner {
        card: 1,
        device: 0,
        direction: AudioDirection::Out,
        program: "pipewire (812)".into(),
    });
    let text = laptop.text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines,
        [
            "Microphones:",
            "  --local-in default                       Default ALSA Output (currently PipeWire Media Server)",
            "  --local-in plughw:CARD=USB,DEV=0         Jabra SPEAK 510 USB, USB Audio",
            "  --local-in plughw:CARD=PCH,DEV=0         HDA Intel PCH, ALC269VC Analog",
            "Loudspeakers:",
            "  --local-out default                      Default ALSA Output (currently PipeWire Media Server)",
            "  --local-out plughw:CARD=USB,DEV=0        Jabra SPEAK 510 USB, USB Audio; open in pipewire (812)",
            "  --local-out plughw:CARD=PCH,DEV=0        HDA Intel PCH, ALC269VC Analog",
            "  --local-out plughw:CARD=PCH,DEV=3        HDA Intel PCH, HDMI 0",
        ]
    );
    assert_eq!(laptop.problems(), Vec::<String>::new());
}

/// The page has the same devices, without what they are typed with.
#[test]
fn a_page_gets_the_same_devices() {
    let mut laptop = system(NamedDevices::Listed(RECORDERS.into()), CardAccess::Denied);
    laptop.cards[0].name = "HDA\u{7} Intel".into();
    let described = laptop.describe();
    assert_eq!(
        described["in"],
        json!([
            {"name": "default", "what": "Default ALSA Output (currently PipeWire Media Server)"},
            {"name": "plughw:CARD=USB,DEV=0", "what": "Jabra SPEAK 510 USB, USB Audio"},
            {"name": "plughw:CARD=PCH,DEV=0", "what": "HDA Intel, ALC269VC Analog"},
        ])
    );
    assert_eq!(described["out"].as_array().map(Vec::len), Some(4));
    assert_eq!(described["problems"], json!(laptop.problems()));
}

/// A board without alsa-utils has cards that the runner opens itself, and nothing is missing. Where
/// a sound server has them open, or there are none, the list says what to install.
#[test]
fn cards_of_the_kernel_are_listed_without_alsa() {
    let mut board = system(NamedDevices::NotInstalled, CardAccess::Allowed);
    let text = board.text();
    assert!(
        text.contains("  --local-in kernel:CARD=USB,DEV=0         Jabra SPEAK 510 USB, USB Audio\n"),
        "{text}"
    );
    assert_eq!(board.problems(), Vec::<String>::new());
    board.has_server = true;
    let served = board.problems();
    (board.has_server, board.cards) = (false, Vec::new());
    for problems in [served, board.problems()] {
        assert!(
            problems.len() == 2
                && problems[0].starts_with("`arecord` is not installed; install the package alsa-utils")
        );
    }
}

#[test]
fn what_is_missing_is_named() {
    let named = |text: &str| NamedDevices::Listed(text.into());
    let denied = system(named("null\n    Discard\n"), CardAccess::Denied).problems();
    assert!(
        denied.len() == 1 && denied[0].contains("may not open PCH, USB; add it to the group audio"),
        "{denied:?}"
    );
    let hidden = system(named(RECORDERS), CardAccess::Hidden).problems();
    assert!(hidden[0].starts_with("PCH, USB has no file in /dev/snd"), "{hidden:?}");
    let mut bare = system(named("null\n    Discard\n"), CardAccess::Allowed);
    bare.cards.clear();
    assert_eq!(bare.text(), "Microphones:\n  none\nLoudspeakers:\n  none\n");
    let problems = bare.problems();
    assert!(
        problems.len() == 2 && problems[1].starts_with("there is no loudspeaker: "),
        "{problems:?}"
    );
    // Ways to a sound server that does not run lead nowhere.
    let mut servers = system(named("default\n    Default\npulse\n    Pulse\n"), CardAccess::Allowed);
    servers.cards.clear();
    assert_eq!(servers.problems(), problems);
    servers.has_server = true;
    assert_eq!(servers.problems(), Vec::<String>::new());
    let failed = system(NamedDevices::Failed("timed out".into()), CardAccess::Allowed).problems();
    assert_eq!(failed[0], "`arecord -L` has failed: timed out");
    let mac = SoundSystem {
        is_linux: false,
        has_server: false,
        microphones: NamedDevices::NotInstalled,
        loudspeakers: NamedDevices::NotInstalled,
        cards: Vec::new(),
        owners: Vec::new(),
    };
    assert!(mac.problems()[0].contains("has no ALSA; name a command"));
}

#[test]
fn owners_are_read_and_odd_files_are_no_cards() {
    let status = "state: RUNNING\nowner_pid   : 812\ntrigger_time: 1.2\n";
    assert_eq!(
        (owner_of(status), owner_of("closed\n"), owner_of("owner_pid : x")),
        (Some(812), None, None)
    );
    for odd in ["--- no soundcards ---\n", "", "[]", "x [A]: B - C", " 1 ]A[: B"] {
        assert_eq!(cards(odd, PCM, |_| CardAccess::Allowed), Vec::new(), "{odd}");
    }
    let bare = cards(" 2 [A]", "02\n02-x: a\n02-01\n", |_| CardAccess::Allowed);
    assert_eq!((&*bare[0].id, bare[0].devices.len()), ("A", 1));
    assert!(!bare[0].devices[0].records && !bare[0].devices[0].plays);
}

/// A board's own cards only play; a laptop's own card does both.
#[test]
fn a_speakerphone_is_before_other_cards() {
    let of = |cards_text: &str, pcm: &str| {
        let cards = cards(cards_text, pcm, |_| CardAccess::Allowed);
        [AudioDirection::In, AudioDirection::Out].map(|direction| {
            let (card, device) = first_device(&cards, direction)?;
            Some((card.id.clone(), device))
        })
    };
    let board = " 0 [vc4hdmi0       ]: vc4-hdmi - vc4-hdmi-0\n 1 [Headphones     ]: bcm2835 - Headphones\n";
    let phones = "00-00: MAI : MAI : playback 1\n01-00: bcm2835 : bcm2835 : playback 8\n";
    let named = |id: &str| Some((id.to_owned(), 0));
    assert_eq!(of("", ""), [None, None]);
    assert_eq!(of(board, phones), [None, named("vc4hdmi0")]);
    let board = format!("{board} 2 [Webcam         ]: USB-Audio - Webcam\n");
    let phones = format!("{phones}02-00: USB Audio : USB Audio : capture 1\n");
    assert_eq!(of(&board, &phones), [named("Webcam"), named("vc4hdmi0")]);
    let board = format!("{board} 3 [USB            ]: USB-Audio - Jabra SPEAK 510 USB\n");
    let phones = format!("{phones}03-00: USB Audio : USB Audio : playback 1 : capture 1\n");
    assert_eq!(of(&board, &phones), ["USB"; 2].map(named));
    assert_eq!(of(CARDS, PCM), ["PCH"; 2].map(named));
}
