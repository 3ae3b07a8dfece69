//! The command of a microphone or a loudspeaker: its words, and the default ones.
//!
//! In: the text of an option. Out: the program and its arguments, or a card of the kernel. Words
//! are separated by spaces; quotes and backslashes work as in a POSIX shell, but nothing is
//! expanded. A single word without a slash is a device of ALSA, which `arecord` or `aplay` opens;
//! one that begins with `kernel:` is a card that the runner opens itself.

use std::fmt;

use super::config::AudioBackEnd;
use super::direction::AudioDirection;
use super::kernel::KernelCard;
use super::listing::KERNEL_PREFIX;

/// Bytes of a command.
const COMMAND_BYTES_MAX: usize = 4096;
/// Devices of ALSA that are cards or sound servers, and cards of the kernel.
const SOUND_CARDS: [&str; 8] = [
    "default",
    "hw",
    "jack",
    "kernel",
    "pipewire",
    "plughw",
    "pulse",
    "sysdefault",
];

/// Why the text of a command has no words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandTextError {
    Empty,
    TooLong,
    OpenQuote,
    /// It begins as a card of the kernel does.
    Card,
    /// It is a card of the kernel, and this system is not Linux.
    NotLinux,
}

impl fmt::Display for CommandTextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CommandTextError::Empty => f.write_str("a command, or a device of ALSA such as plughw:CARD=Jabra"),
            CommandTextError::TooLong => write!(f, "a command of at most {COMMAND_BYTES_MAX} bytes"),
            CommandTextError::OpenQuote => f.write_str("a command whose quotes are closed"),
            CommandTextError::Card => f.write_str("kernel:CARD=ID,DEV=N, where `--local-list` shows ID and N"),
            CommandTextError::NotLinux => f.write_str("a command: only Linux has cards of `kernel:`"),
        }
    }
}

/// Returns what an option names; without one, the command for the default device.
///
/// # Errors
/// [`CommandTextError`] says what the option takes.
pub fn back_end(
    text: Option<&str>,
    direction: AudioDirection,
    rate_hz: u32,
    channels: u16,
) -> Result<AudioBackEnd, CommandTextError> {
    let alsa = |device: &str| alsa_command(direction, device, rate_hz, channels);
    let Some(text) = text else {
        return Ok(AudioBackEnd::Command(alsa("default")));
    };
    let words = words(text)?;
    let [device] = &words[..] else {
        return Ok(AudioBackEnd::Command(words));
    };
    if let Some(card) = device.strip_prefix(KERNEL_PREFIX) {
        if !cfg!(target_os = "linux") {
            return Err(CommandTextError::NotLinux);
        }
        let card = KernelCard::parse(card).ok_or(CommandTextError::Card)?;
        return Ok(AudioBackEnd::Kernel(card));
    }
    Ok(AudioBackEnd::Command(match device.contains('/') {
        true => words,
        false => alsa(device),
    }))
}

/// Returns whether a text names a sound card or a sound server: no command, and no other device of
/// ALSA, which may be a plug-in of its library that starts a program or writes a file.
pub fn is_sound_card(text: &str) -> bool {
    let text = text.trim();
    let (device, place) = text.split_once(':').unwrap_or((text, ""));
    let is_place = |byte: u8| byte.is_ascii_alphanumeric() || b"=,_-".contains(&byte);
    SOUND_CARDS.contains(&device) && place.bytes().all(is_place)
}

/// Returns the command for a device of ALSA. Periods of 10 ms and buffers of 40 ms decide the
/// latency: without them, the programs choose half a second.
pub fn alsa_command(direction: AudioDirection, device: &str, rate_hz: u32, channels: u16) -> Vec<String> {
    let (rate, channels) = (rate_hz.to_string(), channels.to_string());
    let words = [
        direction.alsa_program(),
        "-q",
        "-D",
        device,
        "-t",
        "raw",
        "-f",
        "S16_LE",
        "-r",
        &rate,
        "-c",
        &channels,
        "--period-time=10000",
        "--buffer-time=40000",
    ];
    words.map(str::to_owned).to_vec()
}

/// Names another device in the words of [`alsa_command`].
pub fn set_device(words: &mut [String], device: String) {
    if let Some(at) = words.iter().position(|word| word == "-D")
        && let Some(word) = words.get_mut(at + 1)
    {
        *word = device;
    }
}

/// Whether a microphone and a loudspeaker are certainly two cards: two names, or two numbers. A
/// card has both a name and a number, and other devices do not show their card.
pub fn are_two_cards(input: &AudioBackEnd, output: &AudioBackEnd) -> bool {
    match (card_of(input), card_of(output)) {
        (Some(one), Some(other)) => {
            let is_number = |card: &str| card.bytes().all(|byte| byte.is_ascii_digit());
            is_number(one) == is_number(other) && one != other
        }
        _ => false,
    }
}

/// Returns the card of a back end: for a command of ALSA that in its device, which is `1` in
/// `arecord -D plughw:1,0`, and `Jabra` in `aplay -D plughw:CARD=Jabra,DEV=0`.
fn card_of(back_end: &AudioBackEnd) -> Option<&str> {
    let words = match back_end {
        AudioBackEnd::Command(words) => words,
        AudioBackEnd::Kernel(card) => return Some(&card.id),
    };
    let program = words.first()?.rsplit('/').next()?;
    if !matches!(program, "arecord" | "aplay") {
        return None;
    }
    let mut words = words.iter().skip_while(|word| !matches!(&***word, "-D" | "--device"));
    let (_, place) = words.nth(1)?.split_once(':')?;
    let card = place.split(',').next()?;
    let card = card.strip_prefix("CARD=").unwrap_or(card);
    (!card.is_empty()).then_some(card)
}

/// Splits a command into words.
///
/// # Errors
/// [`CommandTextError`] says what the option takes.
pub fn words(text: &str) -> Result<Vec<String>, CommandTextError> {
    if text.len() > COMMAND_BYTES_MAX {
        return Err(CommandTextError::TooLong);
    }
    let mut words = Vec::new();
    // `None` between two words.
    let mut word: Option<String> = None;
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\'' | '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match letters.next().ok_or(CommandTextError::OpenQuote)? {
                        end if end == letter => break,
                        '\\' if letter == '"' => match letters.next().ok_or(CommandTextError::OpenQuote)? {
                            escaped @ ('"' | '\\') => word.push(escaped),
                            other => word.extend(['\\', other]),
                        },
                        inside => word.push(inside),
                    }
                }
            }
            '\\' => {
                let escaped = letters.next().ok_or(CommandTextError::OpenQuote)?;
                word.get_or_insert_default().push(escaped);
            }
            space if space.is_whitespace() => words.extend(word.take()),
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    match words.first() {
        Some(program) if !program.is_empty() => Ok(words),
        _ => Err(CommandTextError::Empty),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words_of(
        text: Option<&str>,
        direction: AudioDirection,
        rate_hz: u32,
        channels: u16,
    ) -> Result<Vec<String>, CommandTextError> {
        match back_end(text, direction, rate_hz, channels)? {
            AudioBackEnd::Command(words) => Ok(words),
            AudioBackEnd::Kernel(card) => panic!("{card}"),
        }
    }

    fn of(text: &str) -> Result<Vec<String>, CommandTextError> {
        words_of(Some(text), AudioDirection::In, 16_000, 1)
    }

    #[test]
    fn splits_a_command_as_a_shell_does() {
        let split = |text| of(text).expect("a command").join("|");
        assert_eq!(split("pw-record  --rate 16000 -"), "pw-record|--rate|16000|-");
        assert_eq!(split(r#"sh -c 'exec "$MIC" -'"#), r#"sh|-c|exec "$MIC" -"#);
        assert_eq!(split(r#"a "b \"c\" \d" e\ f ''"#), r#"a|b "c" \d|e f|"#);
        assert_eq!(split("/opt/mic"), "/opt/mic");
    }

    #[test]
    fn rejects_a_command_without_a_program_or_with_an_open_quote() {
        assert_eq!(of(""), Err(CommandTextError::Empty));
        assert_eq!(of("  "), Err(CommandTextError::Empty));
        assert_eq!(of("'' -x"), Err(CommandTextError::Empty));
        for open in ["a 'b", "a \"b", "a \\", "a \"b\\"] {
            assert_eq!(of(open), Err(CommandTextError::OpenQuote), "{open}");
        }
        assert!(of(&format!("/{}", "x".repeat(COMMAND_BYTES_MAX - 1))).is_ok());
        assert_eq!(of(&"x".repeat(COMMAND_BYTES_MAX + 1)), Err(CommandTextError::TooLong));
    }

    #[test]
    fn a_device_of_alsa_is_opened_with_small_buffers() {
        let out = words_of(Some("plughw:CARD=Jabra"), AudioDirection::Out, 48_000, 2).expect("a device");
        assert_eq!(
            out.join(" "),
            "aplay -q -D plughw:CARD=Jabra -t raw -f S16_LE -r 48000 -c 2 --period-time=10000 --buffer-time=40000"
        );
        let input = words_of(None, AudioDirection::In, 16_000, 1).expect("a command");
        assert_eq!(input[..4].join(" "), "arecord -q -D default");
        let mut stand_in = input.clone();
        set_device(&mut stand_in, "plughw:CARD=USB,DEV=0".to_owned());
        assert_eq!(stand_in[..4].join(" "), "arecord -q -D plughw:CARD=USB,DEV=0");
        assert_eq!(stand_in[4..], input[4..]);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_card_of_the_kernel_needs_no_command() {
        let kernel = |text| back_end(Some(text), AudioDirection::In, 16_000, 1);
        let named = kernel("kernel:CARD=USB").map(|back_end| back_end.name());
        assert_eq!(named.as_deref(), Ok("kernel:CARD=USB,DEV=0"));
        for wrong in ["kernel:", "kernel:CARD=", "kernel:/dev/snd/pcmC0D0c"] {
            assert_eq!(kernel(wrong), Err(CommandTextError::Card), "{wrong}");
        }
        let program = kernel("kernel: -x").map(|back_end| back_end.name());
        assert_eq!(program.as_deref(), Ok("kernel:"), "a command of several words");
    }

    #[test]
    fn two_cards_are_known_by_names_or_by_numbers() {
        let are_two = |input, output| {
            let of = |text, direction| back_end(Some(text), direction, 16_000, 1).expect("a back end");
            are_two_cards(&of(input, AudioDirection::In), &of(output, AudioDirection::Out))
        };
        assert!(are_two("plughw:CARD=Webcam,DEV=0", "plughw:CARD=Headphones"));
        assert!(are_two("hw:1,0", "plughw:0"));
        #[cfg(target_os = "linux")]
        assert!(are_two("kernel:CARD=Webcam", "kernel:CARD=USB") && !are_two("kernel:USB", "plughw:CARD=USB"));
        assert!(are_two("/usr/bin/arecord -t raw -D hw:1 -r 16000", "hw:0"));
        for (input, output) in [
            ("plughw:CARD=Jabra,DEV=0", "hw:CARD=Jabra"),
            ("hw:1,0", "hw:1,3"),
            ("hw:1", "plughw:CARD=Jabra"),
            ("default", "plughw:CARD=Jabra"),
            ("pw-record -", "hw:1"),
            ("arecord -D", "hw:1"),
            ("hw:", "hw:1"),
        ] {
            assert!(!are_two(input, output), "{input} {output}");
        }
    }
}
