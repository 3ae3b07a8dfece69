//! The form of the setup page, and the settings that it stands for.
//!
//! In: the JSON of the page. Out: lines `name = value` as `edge-runner.txt` has them. Names outside
//! the lists here are rejected: a form sets no option that starts programs or reads files.
//! `boards/image.d/files/usr/local/lib/edge-board/finish` checks the lines again as root.

use std::collections::BTreeMap;
use std::fmt;

use data_encoding::BASE64;

use super::fields::{self, FieldGroup};

/// Bytes of one value.
pub(super) const VALUE_BYTES_MAX: usize = 4096;

/// Characters of a password for ssh. bcrypt and yescrypt read at least 72 bytes.
const PASSWORD_CHARS: std::ops::RangeInclusive<usize> = 10..=72;

/// Characters of a host name, which is one DNS label.
const NAME_CHARS_MAX: usize = 63;

/// Kinds of public keys that sshd accepts.
const KEY_KINDS: [&str; 7] = [
    "ssh-ed25519",
    "ssh-rsa",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "sk-ssh-ed25519@openssh.com",
    "sk-ecdsa-sha2-nistp256@openssh.com",
];

/// The body of `POST /settings`.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetupForm {
    name: String,
    access: Access,
    ssh: Login,
    /// The public key or the password.
    #[serde(default)]
    ssh_value: String,
    bot: SetupBot,
    /// Whether the sound card of the board is a caller.
    #[serde(default)]
    local: bool,
    /// Variables of the bot. Empty values count as absent.
    variables: BTreeMap<String, String>,
}

#[derive(Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
enum Access {
    /// Callers need a key, which the board makes.
    Key,
    /// All callers of the network are admitted.
    Open,
}

#[derive(Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
enum Login {
    None,
    Key,
    Password,
}

#[derive(Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
enum SetupBot {
    Parrot,
    Realtime,
    Cascade,
}

/// A rejected form. The texts contain no value, except that of [`FormError::Runner`], which is the
/// runner's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FormError {
    Name,
    PublicKey,
    Password,
    /// A variable that the form may not set.
    Variable,
    /// A value with control characters, or a long one.
    Value(&'static str),
    /// The runner's own check of the variables.
    Runner(String),
}

impl fmt::Display for FormError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FormError::Name => f.write_str("the name takes letters, digits and -, at most 63 of them"),
            FormError::PublicKey => f.write_str(
                "the public key is one whole line of a file such as id_ed25519.pub, and not the private key",
            ),
            FormError::Password => write!(
                f,
                "the password takes {} to {} letters, digits and signs of a US keyboard",
                PASSWORD_CHARS.start(),
                PASSWORD_CHARS.end()
            ),
            FormError::Variable => f.write_str("the form sets a variable that is not one of the chosen bot"),
            FormError::Value(name) => write!(f, "{name} takes one line of at most {VALUE_BYTES_MAX} bytes"),
            FormError::Runner(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for FormError {}

/// A valid form.
pub(super) struct ValidForm {
    pub(super) name: String,
    /// The line of ssh: its name and value.
    ssh: Option<(&'static str, String)>,
    is_open: bool,
    /// The variables of the runner.
    pub(super) variables: Vec<(String, String)>,
}

impl SetupForm {
    /// Returns whether the board needs a new API key.
    pub(super) fn wants_key(&self) -> bool {
        self.access == Access::Key
    }

    /// Checks every field.
    pub(super) fn validate(self) -> Result<ValidForm, FormError> {
        let name = self.name.trim().to_ascii_lowercase();
        if !is_host_name(&name) {
            return Err(FormError::Name);
        }
        let ssh = match self.ssh {
            Login::None => None,
            Login::Key => Some(("ssh_key", public_key(&self.ssh_value)?)),
            Login::Password => Some(("ssh_password", password(&self.ssh_value)?)),
        };
        let (bot, known): (_, &[FieldGroup]) = match self.bot {
            SetupBot::Parrot => ("parrot", &[]),
            SetupBot::Realtime => ("realtime", &[FieldGroup::Realtime]),
            SetupBot::Cascade => ("cascade", &[FieldGroup::Cascade]),
        };
        let mut variables = vec![("RUNNER_BOT".to_owned(), bot.to_owned())];
        if self.local {
            // It is the first card that records and plays: the form names no device or command.
            variables.push(("RUNNER_LOCAL".to_owned(), "voice".to_owned()));
        }
        for (name, value) in known_variables(&self.variables, &fields::variables(known))? {
            variables.push((name.to_owned(), value));
        }
        let is_open = self.access == Access::Open;
        Ok(ValidForm {
            name,
            ssh,
            is_open,
            variables,
        })
    }
}

impl ValidForm {
    /// Returns the settings as lines. `key` is the new API key.
    pub(super) fn text(&self, key: Option<&str>) -> String {
        let mut lines = vec![("hostname", &*self.name)];
        lines.extend(self.ssh.as_ref().map(|(name, value)| (*name, &**value)));
        lines.extend(key.map(|key| ("RUNNER_API_KEY", key)));
        if self.is_open {
            lines.extend([("RUNNER_API_KEY", ""), ("RUNNER_WS_AUTH", "none")]);
        }
        lines.extend(self.variables.iter().map(|(name, value)| (&**name, &**value)));
        lines
            .into_iter()
            .map(|(name, value)| match value.starts_with('"') {
                // One pair of quotes is taken off by the reader.
                true => format!("{name} = \"{value}\"\n"),
                false => format!("{name} = {value}").trim_end().to_owned() + "\n",
            })
            .collect()
    }
}

/// Returns the variables that have a value, each as one line.
///
/// # Errors
/// [`FormError::Variable`] for a name that is not `known`, [`FormError::Value`].
pub(super) fn known_variables(
    given: &BTreeMap<String, String>,
    known: &[&'static str],
) -> Result<Vec<(&'static str, String)>, FormError> {
    let mut variables = Vec::new();
    for (name, value) in given {
        let known = known.iter().find(|known| *known == name);
        let known = *known.ok_or(FormError::Variable)?;
        let value = one_line(value).ok_or(FormError::Value(known))?;
        if !value.is_empty() {
            variables.push((known, value));
        }
    }
    Ok(variables)
}

/// Returns whether a name is one DNS label: letters, digits and hyphens inside.
fn is_host_name(name: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let is_label = !name.starts_with('-') && !name.ends_with('-') && name.bytes().all(inner);
    (1..=NAME_CHARS_MAX).contains(&name.len()) && is_label && name != "localhost"
}

/// Returns a public key of ssh: its kind, base64, and a comment.
fn public_key(text: &str) -> Result<String, FormError> {
    let text = one_line(text).ok_or(FormError::PublicKey)?;
    let mut words = text.split(' ');
    let (kind, data) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    match KEY_KINDS.contains(&kind) && is_key_of(kind, data) {
        true => Ok(text),
        false => Err(FormError::PublicKey),
    }
}

/// Returns whether base64 has whole fields, each behind its length in 4 bytes, the first of which
/// is the kind, and at least one more: RFC 4253 6.6. A key that was cut while it was pasted has
/// not.
fn is_key_of(kind: &str, data: &str) -> bool {
    let Ok(data) = BASE64.decode(data.as_bytes()) else {
        return false;
    };
    let mut fields = Vec::new();
    let mut rest = &*data;
    while let Some((length, behind)) = rest.split_first_chunk::<4>() {
        let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
        let Some((field, behind)) = behind.split_at_checked(length) else {
            return false;
        };
        fields.push(field);
        rest = behind;
    }
    rest.is_empty() && fields.len() > 1 && fields.first() == Some(&kind.as_bytes())
}

fn password(text: &str) -> Result<String, FormError> {
    let is_plain = text.bytes().all(|b| matches!(b, b' '..=b'~')) && text.trim() == text;
    match PASSWORD_CHARS.contains(&text.len()) && is_plain {
        true => Ok(text.to_owned()),
        false => Err(FormError::Password),
    }
}

/// Returns a value as one line: line ends become spaces. `None` for other control characters, for
/// noncharacters, at which systemd ignores a whole file of variables, and for long texts.
pub(super) fn one_line(text: &str) -> Option<String> {
    let text = text.replace("\r\n", " ").replace(['\n', '\t'], " ");
    let text = text.trim();
    let is_noncharacter = |c: char| u32::from(c) & 0xfffe == 0xfffe || ('\u{fdd0}'..='\u{fdef}').contains(&c);
    let is_fit = text.len() <= VALUE_BYTES_MAX && !text.chars().any(|c| c.is_control() || is_noncharacter(c));
    is_fit.then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const PUBLIC_KEY: &str =
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDHEbHTFmGMNFyCmVBxFIMyzvSSLLOXxyWNZKj2JYVzP me@laptop";

    /// Returns the settings of a form, with these fields changed.
    fn settings(changes: &Value) -> Result<String, FormError> {
        let mut form = json!({"name": "Kitchen", "access": "key", "ssh": "none", "bot": "parrot", "variables": {}});
        let (form_fields, changes) = (
            form.as_object_mut().expect("fields"),
            changes.as_object().expect("fields"),
        );
        form_fields.extend(changes.clone());
        let form: SetupForm = serde_json::from_value(form).expect("a form");
        let key = form.wants_key().then_some("k");
        form.validate().map(|valid| valid.text(key))
    }

    #[test]
    fn a_form_becomes_lines_of_settings() {
        assert_eq!(
            settings(
                &json!({"ssh": "key", "ssh_value": format!(" {PUBLIC_KEY}\n"), "bot": "realtime",
                "variables": {"OPENAI_API_KEY": " sk-1 ", "REALTIME_URL": "", "REALTIME_INSTRUCTIONS": "Be brief.\r\nBe kind."}})
            ),
            Ok(format!(
                "hostname = kitchen\nssh_key = {PUBLIC_KEY}\nRUNNER_API_KEY = k\nRUNNER_BOT = realtime\n\
                 OPENAI_API_KEY = sk-1\nREALTIME_INSTRUCTIONS = Be brief. Be kind.\n"
            ))
        );
        assert_eq!(
            settings(&json!({"access": "open", "ssh": "password", "ssh_value": "correct:horse\"1"})),
            Ok(
                "hostname = kitchen\nssh_password = correct:horse\"1\nRUNNER_API_KEY =\nRUNNER_WS_AUTH = none\n\
                RUNNER_BOT = parrot\n"
                    .to_owned()
            )
        );
        let local = settings(&json!({"access": "open", "local": true})).expect("valid");
        assert!(
            local.ends_with("\nRUNNER_BOT = parrot\nRUNNER_LOCAL = voice\n"),
            "{local}"
        );
        let quoted = settings(&json!({"bot": "cascade", "variables": {"CASCADE_INSTRUCTIONS": "\"Hi\""}}));
        assert!(
            quoted
                .expect("valid")
                .ends_with("\nCASCADE_INSTRUCTIONS = \"\"Hi\"\"\n")
        );
    }

    #[test]
    fn values_that_could_add_a_line_or_an_option_are_rejected() {
        for (changes, error) in [
            (json!({"name": ""}), FormError::Name),
            (json!({"name": "-a"}), FormError::Name),
            (json!({"name": "a.local"}), FormError::Name),
            (json!({"name": "localhost"}), FormError::Name),
            (json!({"name": "a\nRUNNER_ARGS = -- sh"}), FormError::Name),
            (json!({"name": "a".repeat(64)}), FormError::Name),
            (
                json!({"ssh": "key", "ssh_value": "-----BEGIN OPENSSH PRIVATE KEY-----"}),
                FormError::PublicKey,
            ),
            (
                json!({"ssh": "key", "ssh_value": "ssh-ed25519 AAAA"}),
                FormError::PublicKey,
            ),
            (
                json!({"ssh": "key", "ssh_value": PUBLIC_KEY.get(..64)}),
                FormError::PublicKey,
            ),
            (
                json!({"ssh": "key", "ssh_value": PUBLIC_KEY.replacen("ssh-ed25519", "ssh-rsa", 1)}),
                FormError::PublicKey,
            ),
            (
                json!({"ssh": "key", "ssh_value": format!("{PUBLIC_KEY}\u{1b}")}),
                FormError::PublicKey,
            ),
            (
                json!({"ssh": "password", "ssh_value": "too short"}),
                FormError::Password,
            ),
            (
                json!({"ssh": "password", "ssh_value": "long enough\nroot:x"}),
                FormError::Password,
            ),
            (
                json!({"ssh": "password", "ssh_value": " long enough"}),
                FormError::Password,
            ),
            (
                json!({"ssh": "password", "ssh_value": "a".repeat(73)}),
                FormError::Password,
            ),
            (json!({"variables": {"OPENAI_API_KEY": "sk-1"}}), FormError::Variable),
            (
                json!({"bot": "realtime", "variables": {"RUNNER_ARGS": "-- sh"}}),
                FormError::Variable,
            ),
            (
                json!({"bot": "cascade", "variables": {"CASCADE_FUNCTIONS_FILE": "/etc/shadow"}}),
                FormError::Variable,
            ),
            (
                json!({"bot": "realtime", "variables": {"REALTIME_MODEL": "a\u{0}b"}}),
                FormError::Value("REALTIME_MODEL"),
            ),
            (
                json!({"bot": "realtime", "variables": {"REALTIME_MODEL": "\u{fffe}"}}),
                FormError::Value("REALTIME_MODEL"),
            ),
            (
                json!({"bot": "realtime", "variables": {"REALTIME_MODEL": "a".repeat(4097)}}),
                FormError::Value("REALTIME_MODEL"),
            ),
        ] {
            assert_eq!(settings(&changes), Err(error), "{changes}");
        }
    }

    #[test]
    fn unknown_fields_are_rejected() {
        let form = r#"{"name":"a","access":"key","ssh":"none","bot":"parrot","variables":{},"more":1}"#;
        assert!(serde_json::from_str::<SetupForm>(form).is_err());
        assert!(serde_json::from_str::<SetupForm>(&form.replace(r#","more":1"#, "")).is_ok());
    }
}
