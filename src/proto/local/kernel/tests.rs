//! Cards of QEMU, of boards and of arrays: what each has, what it is set to, and how its frames are
//! converted.

use super::frames::{PlayedFrames, RecordedFrames};
use super::negotiation::{CardForm, CardFormat, negotiate};
use super::params::{ACCESS_INTERLEAVED, CardInterval, CardMask, HwParams};
use super::*;
use crate::local::listing::cards;

/// A card as the kernel describes it.
struct VirtualCard {
    /// Numbers of formats.
    formats: Vec<u32>,
    channels: (u32, u32),
    /// In Hz; a range, or single ones.
    rates: (u32, u32),
    single_rates: Vec<u32>,
    period: (u32, u32),
    /// A period is a multiple of this.
    period_step: u32,
    buffer: (u32, u32),
}

impl VirtualCard {
    /// Of QEMU: USB audio.
    fn usb() -> Self {
        VirtualCard {
            formats: vec![2],
            channels: (2, 2),
            rates: (48_000, 48_000),
            single_rates: Vec::new(),
            period: (48, 131_072),
            period_step: 1,
            buffer: (96, 262_144),
        }
    }

    /// A card with everything: `snd-aloop`.
    fn aloop() -> Self {
        VirtualCard {
            formats: (0..64).collect(),
            channels: (1, 32),
            rates: (8_000, 192_000),
            ..VirtualCard::usb()
        }
    }

    fn refine(&self, params: &mut HwParams) -> bool {
        let formats = || {
            self.formats
                .iter()
                .copied()
                .filter(|format| params.has(CardMask::Format, *format))
        };
        let Some(format) = formats().next() else { return false };
        if !params.has(CardMask::Access, ACCESS_INTERLEAVED) {
            return false;
        }
        if formats().count() == 1 {
            params.set_only(CardMask::Format, format);
        }
        let step = self.period_step;
        [
            (CardInterval::Channels, self.channels, 1),
            (CardInterval::Rate, self.rates, 1),
            (CardInterval::Period, self.period, step),
            (CardInterval::Buffer, self.buffer, 1),
        ]
        .into_iter()
        .all(|(interval, (least, most), step)| {
            let wanted = params.range(interval);
            let (least, most) = (least.max(*wanted.start()), most.min(*wanted.end()));
            let (mut least, mut most) = (least.next_multiple_of(step), most / step * step);
            if interval == CardInterval::Rate && !self.single_rates.is_empty() {
                let in_range = |rate: &&u32| (least..=most).contains(*rate);
                let rates = || self.single_rates.iter().filter(in_range);
                let (Some(first), Some(last)) = (rates().min(), rates().max()) else {
                    return false;
                };
                (least, most) = (*first, *last);
            }
            params.set_range(interval, least..=most);
            least <= most
        })
    }

    fn form(&self, wanted_hz: u32) -> Result<CardForm, CardError> {
        let params = negotiate(wanted_hz, &mut |params| Ok(self.refine(params)))?;
        CardForm::of(&params)
    }
}

fn form(format: CardFormat, channels: u32, rate_hz: u32) -> CardForm {
    CardForm {
        format,
        channels,
        rate_hz,
        period_frames: rate_hz / 100,
        buffer_frames: rate_hz / 25,
    }
}

#[test]
fn a_card_is_set_to_the_nearest_that_it_has() {
    assert_eq!(VirtualCard::aloop().form(16_000), Ok(form(CardFormat::S16, 1, 16_000)));
    assert_eq!(VirtualCard::aloop().form(24_000), Ok(form(CardFormat::S16, 1, 24_000)));
    assert_eq!(VirtualCard::usb().form(16_000), Ok(form(CardFormat::S16, 2, 48_000)));
    let i2s = VirtualCard {
        formats: vec![6, 10, 32],
        rates: (8_000, 192_000),
        ..VirtualCard::usb()
    };
    assert_eq!(i2s.form(16_000), Ok(form(CardFormat::S32, 2, 16_000)));
    let packed = VirtualCard {
        formats: vec![32],
        rates: (32_000, 44_100),
        single_rates: vec![32_000, 44_100],
        ..VirtualCard::usb()
    };
    assert_eq!(packed.form(16_000), Ok(form(CardFormat::S24In3, 2, 44_100)));
    let array = VirtualCard {
        channels: (6, 8),
        rates: (16_000, 16_000),
        ..VirtualCard::usb()
    };
    assert_eq!(array.form(48_000), Ok(form(CardFormat::S16, 6, 16_000)));
}

#[test]
fn a_card_that_cannot_be_converted_is_refused_with_what_it_has() {
    let float = VirtualCard {
        formats: vec![14],
        ..VirtualCard::usb()
    };
    assert_eq!(float.form(16_000), Err(CardError::Format));
    let slow = VirtualCard {
        rates: (5_512, 11_025),
        single_rates: vec![5_512, 11_025],
        ..VirtualCard::usb()
    };
    assert_eq!(slow.form(16_000), Err(CardError::Rate(5_512, 11_025)));
    assert_eq!(slow.form(11_025).map(|form| form.rate_hz), Ok(11_025));
    let none = negotiate(16_000, &mut |_| Ok(false)).expect_err("no access");
    assert!(none.to_string().contains("interleaved"), "{none}");
    let gone = negotiate(16_000, &mut |_| Err(CardError::Unplugged));
    assert_eq!(gone.err(), Some(CardError::Unplugged), "a failure is no answer");
}

/// Cards have periods of whole bursts, and some cannot have short ones.
#[test]
fn periods_and_buffers_are_near_10_and_40_ms() {
    let bursts = VirtualCard {
        period_step: 64,
        ..VirtualCard::usb()
    };
    let chosen = bursts.form(16_000).expect("a form");
    assert_eq!((chosen.period_frames, chosen.buffer_frames), (512, 1_920));
    let long = VirtualCard {
        period: (4_800, 9_600),
        buffer: (9_600, 96_000),
        ..VirtualCard::usb()
    };
    let chosen = long.form(16_000).expect("a form");
    assert_eq!((chosen.period_frames, chosen.buffer_frames), (4_800, 9_600));
    assert_eq!(
        chosen.length(chosen.buffer_frames),
        std::time::Duration::from_millis(200)
    );
    let short = VirtualCard {
        period: (16, 256),
        buffer: (32, 1_024),
        ..VirtualCard::usb()
    };
    let chosen = short.form(16_000).expect("a form");
    assert_eq!((chosen.period_frames, chosen.buffer_frames), (256, 1_024));
}

#[test]
fn a_card_that_sets_itself_to_nothing_is_refused() {
    let mut params = HwParams::any();
    params.set_only(CardMask::Format, 2);
    assert!(matches!(CardForm::of(&params), Err(CardError::Other(_))));
    params.set_only(CardMask::Format, 14);
    assert_eq!(CardForm::of(&params), Err(CardError::Format));
}

#[test]
fn the_first_channel_is_recorded() {
    let samples = [1_000_i16, -1_000, i16::MIN];
    let frames = |form: CardForm| -> Vec<u8> {
        let one = |value: i16, low: u8| {
            let mut sample = vec![low; form.format.bytes() - 2];
            sample.extend(value.to_le_bytes());
            sample
        };
        let frame = |value: &i16| [one(*value, 0xff), one(77, 0)].concat();
        samples.iter().flat_map(frame).collect()
    };
    let expected: Vec<u8> = samples.iter().flat_map(|sample| sample.to_le_bytes()).collect();
    for format in [CardFormat::S16, CardFormat::S32, CardFormat::S24In3] {
        let form = form(format, 2, 16_000);
        let mut recorded = RecordedFrames::new(form, 16_000);
        let mut bytes = frames(form);
        bytes.push(0);
        assert_eq!(recorded.convert(&bytes), expected, "{format:?}");
    }
}

#[test]
fn all_channels_are_played_to() {
    let pcm: Vec<u8> = [1_000_i16, -2].iter().flat_map(|sample| sample.to_le_bytes()).collect();
    for (format, expected) in [
        (CardFormat::S16, vec![0xe8, 3, 0xe8, 3, 0xfe, 0xff, 0xfe, 0xff]),
        (
            CardFormat::S32,
            vec![0, 0, 0xe8, 3, 0, 0, 0xe8, 3, 0, 0, 0xfe, 0xff, 0, 0, 0xfe, 0xff],
        ),
        (
            CardFormat::S24In3,
            vec![0, 0xe8, 3, 0, 0xe8, 3, 0, 0xfe, 0xff, 0, 0xfe, 0xff],
        ),
    ] {
        let mut played = PlayedFrames::new(form(format, 2, 16_000), 16_000);
        assert_eq!(played.convert(&pcm), expected, "{format:?}");
    }
}

/// A card of 48 kHz gets three frames per sample, and what waits for it is counted in samples.
#[test]
fn rates_are_converted() {
    let usb = form(CardFormat::S16, 2, 48_000);
    let mut played = PlayedFrames::new(usb, 16_000);
    let bytes: usize = (0..50).map(|_| played.convert(&[1; 640]).len()).sum();
    assert!((188_000..=192_000).contains(&bytes), "{bytes}");
    assert_eq!(played.pcm_bytes(192_000), 32_000);
    let mut recorded = RecordedFrames::new(usb, 16_000);
    let bytes: usize = (0..100).map(|_| recorded.convert(&[1; 1_920]).len()).sum();
    assert!((31_000..=32_000).contains(&bytes), "{bytes}");
    recorded.handle_restart();
    assert!(recorded.convert(&[]).is_empty());
}

#[test]
fn a_card_is_named_by_its_id_or_number() {
    let card = |id: &str, device| {
        Some(KernelCard {
            id: id.to_owned(),
            device,
        })
    };
    assert_eq!(KernelCard::parse("CARD=USB,DEV=2"), card("USB", 2));
    assert_eq!(KernelCard::parse("CARD=USB"), card("USB", 0));
    assert_eq!(KernelCard::parse("1,0"), card("1", 0));
    assert_eq!(KernelCard::parse("vc4-hdmi_0"), card("vc4-hdmi_0", 0));
    for wrong in [
        "",
        "CARD=",
        "CARD=../x",
        "a b",
        "USB,",
        "USB,DEV=-1",
        "USB,DEV=0,1",
        &"x".repeat(33),
    ] {
        assert_eq!(KernelCard::parse(wrong), None, "{wrong}");
    }
    let shown = card("USB", 2).map(|card| card.to_string());
    assert_eq!(shown.as_deref(), Some("kernel:CARD=USB,DEV=2"));
}

#[test]
fn the_file_of_a_card_has_its_number() {
    let text = " 0 [PCH            ]: HDA-Intel - HDA Intel PCH\n 3 [USB            ]: USB-Audio - Jabra\n";
    let cards = cards(text, "", |_| crate::local::listing::CardAccess::Allowed);
    let path = |text: &str, direction| KernelCard::parse(text).and_then(|card| card.path(&cards, direction));
    let file = path("CARD=USB", AudioDirection::In);
    assert_eq!(file.as_deref(), Some("/dev/snd/pcmC3D0c"));
    let file = path("3,1", AudioDirection::Out);
    assert_eq!(file.as_deref(), Some("/dev/snd/pcmC3D1p"));
    assert_eq!(path("CARD=Gone", AudioDirection::In), None);
    assert_eq!(path("1", AudioDirection::In), None);
}
