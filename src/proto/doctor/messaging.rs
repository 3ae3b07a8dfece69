//! Whether calls of the messaging app can come: the provider is asked for the call settings of the
//! number.
//!
//! In: status and body of the answer. Out: findings, in which no word of the answer is repeated.
//! Source: the reference of the provider's endpoint for the settings of a number.

use serde_json::Value;

use super::Finding;

/// Name of the check.
pub const WHAT: &str = "messaging";

/// Judges the answer.
pub fn answer(status: u16, body: &[u8]) -> Finding {
    match status {
        200..=299 => settings(body),
        401 | 403 => Finding::error(
            WHAT,
            format!(
                "the provider refuses the token ({status}): MESSAGING_TOKEN is wrong, has expired, or has no right to calls"
            ),
        ),
        400 | 404 => Finding::error(
            WHAT,
            format!(
                "the provider knows no such number ({status}): MESSAGING_PHONE_NUMBER_ID is wrong, or the base in \
                 MESSAGING_API_URL is"
            ),
        ),
        300..=399 => Finding::error(
            WHAT,
            format!("status {status}, a redirect: the base in MESSAGING_API_URL is wrong"),
        ),
        _ => Finding::warning(
            WHAT,
            format!("the provider stumbles (status {status}); ask again in a while"),
        ),
    }
}

fn settings(body: &[u8]) -> Finding {
    let settings: Option<Value> = serde_json::from_slice(body).ok();
    let is = |pointer: &str, wanted: &str| {
        let found = settings.as_ref().and_then(|settings| settings.pointer(pointer));
        found
            .and_then(Value::as_str)
            .map(|word| word.eq_ignore_ascii_case(wanted))
    };
    match is("/calling/status", "ENABLED") {
        None => Finding::warning(
            WHAT,
            "the answer has no call settings; is the base in MESSAGING_API_URL right?",
        ),
        Some(false) => Finding::error(
            WHAT,
            "calling is not switched on for the number: the provider's dashboard does it, under the number's call settings",
        ),
        Some(true) if is("/calling/sip/status", "ENABLED") == Some(true) => Finding::error(
            WHAT,
            "the number is in SIP mode, in which calls come by SIP and not here: switch it off",
        ),
        Some(true) if is("/calling/srtp_key_exchange_protocol", "SDES") == Some(true) => Finding::error(
            WHAT,
            "the number exchanges the keys of calls in the SDP: set `srtp_key_exchange_protocol` to DTLS",
        ),
        Some(true) => Finding::ok(
            WHAT,
            "the provider takes the token, and calling is switched on for the number",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::FindingLevel;
    use super::*;

    #[test]
    fn settings_are_judged_by_what_keeps_calls_out() {
        for (status, body, verdict, word) in [
            (
                200,
                r#"{"calling":{"status":"ENABLED"}}"#,
                FindingLevel::Ok,
                "switched on",
            ),
            (
                200,
                r#"{"calling":{"status":"ENABLED","sip":{"status":"DISABLED"},"srtp_key_exchange_protocol":"DTLS"}}"#,
                FindingLevel::Ok,
                "switched on",
            ),
            (
                200,
                r#"{"calling":{"status":"disabled"}}"#,
                FindingLevel::Error,
                "not switched on",
            ),
            (
                200,
                r#"{"calling":{"status":"ENABLED","sip":{"status":"ENABLED"}}}"#,
                FindingLevel::Error,
                "SIP mode",
            ),
            (
                200,
                r#"{"calling":{"status":"ENABLED","srtp_key_exchange_protocol":"SDES"}}"#,
                FindingLevel::Error,
                "srtp_key_exchange_protocol",
            ),
            (200, "<html>", FindingLevel::Warning, "MESSAGING_API_URL"),
            (200, r#"{"calling":7}"#, FindingLevel::Warning, "MESSAGING_API_URL"),
            (401, "", FindingLevel::Error, "MESSAGING_TOKEN"),
            (400, "", FindingLevel::Error, "MESSAGING_PHONE_NUMBER_ID"),
            (302, "", FindingLevel::Error, "redirect"),
            (500, "", FindingLevel::Warning, "stumbles"),
        ] {
            let finding = answer(status, body.as_bytes());
            assert_eq!(finding.level, verdict, "{status} {body}");
            assert!(finding.text.contains(word), "{status} {body}: {}", finding.text);
        }
    }
}
