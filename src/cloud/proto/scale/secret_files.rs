//! Files with a secret of their own: the password of the database, the credentials of the store.
//!
//! In: the text of a file. Out: the secret, or `None`. A password is the first line. Credentials
//! are the profile `default` of the file that AWS's own programs read; other profiles, other names
//! and comments are skipped. Source: AWS SDKs and Tools Reference Guide, "Shared config and
//! credentials files".

use crate::proto::scale::sigv4::StoreCredentials;
use edge_runner_proto::config::{Secret, SecretBytes};

/// What the files have to look like.
pub const PASSWORD_WANTS: &str = "a file whose first line is the password";
pub const CREDENTIALS_WANTS: &str =
    "a file with the lines `[default]`, `aws_access_key_id = ID` and `aws_secret_access_key = SECRET`";

/// Returns the password of a file.
pub fn password(text: &str) -> Option<Secret> {
    let line = text.lines().next().unwrap_or_default();
    (!line.is_empty() && !line.contains(char::is_control)).then(|| Secret::new(line))
}

/// Returns the credentials of a file.
pub fn credentials(text: &str) -> Option<StoreCredentials> {
    let (mut id, mut secret, mut token) = (None, None, None);
    let mut is_default = false;
    for line in text.lines().map(str::trim) {
        if let Some(profile) = line.strip_prefix('[') {
            is_default = profile.strip_suffix(']').map(str::trim) == Some("default");
        }
        let Some((name, value)) = line.split_once('=').filter(|_| is_default) else {
            continue;
        };
        let target = match name.trim() {
            "aws_access_key_id" => &mut id,
            "aws_secret_access_key" => &mut secret,
            "aws_session_token" => &mut token,
            _ => continue,
        };
        *target = Some(value.trim()).filter(|value| !value.is_empty());
        if target.is_some_and(|value| !value.bytes().all(|byte| byte.is_ascii_graphic())) {
            return None;
        }
    }
    Some(StoreCredentials {
        id: id?.to_owned(),
        secret: SecretBytes::new(secret?),
        token: token.map(Secret::new),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_the_first_line() {
        let read = |text: &str| password(text).map(|found| found.expose().to_owned());
        assert_eq!(read("p a ss\u{e4}\r\nmore\n").as_deref(), Some("p a ss\u{e4}"));
        assert_eq!(read("p").as_deref(), Some("p"));
        for unusable in ["", "\np", "p\0"] {
            assert_eq!(read(unusable), None, "{unusable:?}");
        }
    }

    #[test]
    fn credentials_are_those_of_the_default_profile() {
        let read = |text: &str| {
            let found = credentials(text)?;
            let token = found.token.as_ref().map(|token| token.expose().to_owned());
            Some((
                found.id,
                String::from_utf8_lossy(found.secret.expose()).into_owned(),
                token,
            ))
        };
        let whole = "# of a test\naws_access_key_id=NONE\n[other]\naws_access_key_id = OTHER\naws_secret_access_key = o\n\
                     [default]\r\naws_access_key_id=AKIA\r\n; aws_secret_access_key = x\n  aws_secret_access_key =  s/e=c+ \n\
                     region = eu\n[last]\naws_session_token = t\n";
        assert_eq!(read(whole), Some(("AKIA".into(), "s/e=c+".into(), None)));
        let temporary = "[default]\naws_access_key_id = A\naws_secret_access_key = s\naws_session_token = t==\n";
        assert_eq!(read(temporary), Some(("A".into(), "s".into(), Some("t==".into()))));
        for unusable in [
            "",
            "aws_access_key_id = A\naws_secret_access_key = s\n",
            "[default]\naws_access_key_id = A\n",
            "[default]\naws_access_key_id = A\naws_secret_access_key =\n",
            "[default]\naws_access_key_id = A\naws_secret_access_key = a b\n",
        ] {
            assert_eq!(read(unusable), None, "{unusable:?}");
        }
    }
}
