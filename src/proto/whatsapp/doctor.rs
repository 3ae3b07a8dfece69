//! Checks whether WhatsApp calls can arrive, by the call settings of the number.
//!
//! In: the status and the body of the response. Out: findings without text of the response.
//! Source: the reference of the provider's endpoint for the settings of a number.

use serde_json::Value;

use crate::doctor::Finding;

/// Name of the check.
pub const WHAT: &str = "messaging";

/// Evaluates the response.
pub fn answer(status: u16, body: &[u8]) -> Finding {
    match status {
        200..=299 => settings(body),
        401 | 403 => Finding::error(
            WHAT,
            format!(
                "WhatsApp rejects the token ({status}): MESSAGING_TOKEN is wrong, has expired, or has no permission for calls"
            ),
        ),
        400 | 404 => Finding::error(
            WHAT,
            format!(
                "WhatsApp does not know the number ({status}): MESSAGING_PHONE_NUMBER_ID or MESSAGING_API_URL is wrong"
            ),
        ),
        300..=399 => Finding::error(WHAT, format!("status {status}, a redirect: MESSAGING_API_URL is wrong")),
        _ => Finding::warning(WHAT, format!("the provider failed (status {status}); try again later")),
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
        None => Finding::warning(WHAT, "the response has no call settings; check MESSAGING_API_URL"),
        Some(false) => Finding::error(
            WHAT,
            "calling is not enabled for the number: enable it in its call settings in the WhatsApp dashboard",
        ),
        Some(true) if is("/calling/sip/status", "ENABLED") == Some(true) => Finding::error(
            WHAT,
            "the number is in SIP mode, so its calls do not reach the runner: disable that mode",
        ),
        Some(true) if is("/calling/srtp_key_exchange_protocol", "SDES") == Some(true) => Finding::error(
            WHAT,
            "the number uses SDES for the keys of calls: set `srtp_key_exchange_protocol` to DTLS",
        ),
        Some(true) => Finding::ok(
            WHAT,
            "WhatsApp accepts the token, and calling is enabled for the number",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::FindingLevel;

    #[test]
    fn evaluates_the_call_settings() {
        for (status, body, verdict, word) in [
            (
                200,
                r#"{"calling":{"status":"ENABLED"}}"#,
                FindingLevel::Ok,
                "is enabled",
            ),
            (
                200,
                r#"{"calling":{"status":"ENABLED","sip":{"status":"DISABLED"},"srtp_key_exchange_protocol":"DTLS"}}"#,
                FindingLevel::Ok,
                "is enabled",
            ),
            (
                200,
                r#"{"calling":{"status":"disabled"}}"#,
                FindingLevel::Error,
                "not enabled",
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
            (500, "", FindingLevel::Warning, "try again later"),
        ] {
            let finding = answer(status, body.as_bytes());
            assert_eq!(finding.level, verdict, "{status} {body}");
            assert!(finding.text.contains(word), "{status} {body}: {}", finding.text);
        }
    }
}
