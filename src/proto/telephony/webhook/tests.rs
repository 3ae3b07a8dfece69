//! Markup, compared with that of Pipecat, and forms of providers.

use super::*;
use crate::limits::CALLER_BYTES_MAX;
use crate::telephony::Provider;
use crate::telephony::named::{EXOTEL, PLIVO, TELNYX, TWILIO};
use serde_json::Value;

const URL: &str = "wss://bots.example.net/ws";

fn markup(provider: &Provider, url: &str, form: &str) -> String {
    let reply = provider.protocol.reply(url, form.as_bytes());
    assert_eq!(reply.content_type, "application/xml");
    reply.body
}

/// R-046, R-047: the response of Pipecat, byte for byte.
#[test]
fn the_markup_is_that_of_pipecat() {
    assert_eq!(
        markup(TWILIO, URL, ""),
        r#"<?xml version="1.0" encoding="UTF-8"?>
<Response>
  <Connect>
    <Stream url="wss://bots.example.net/ws"></Stream>
  </Connect>
</Response>"#
    );
    assert_eq!(
        markup(TELNYX, URL, ""),
        r#"<?xml version="1.0" encoding="UTF-8"?>
<Response>
  <Connect>
    <Stream url="wss://bots.example.net/ws" bidirectionalMode="rtp"></Stream>
  </Connect>
</Response>"#
    );
    assert_eq!(
        markup(PLIVO, URL, ""),
        r#"<?xml version="1.0" encoding="UTF-8"?>
<Response>
  <Stream bidirectional="true" keepCallAlive="true" contentType="audio/x-mulaw;rate=8000">wss://bots.example.net/ws</Stream>
</Response>"#
    );
}

/// The field of each provider's form with the call id.
#[test]
fn reads_the_call_id_of_a_webhook() {
    let form = b"CallSid=v3%3Aabc-_&CallUUID=7b1f&From=%2B15550001111";
    assert_eq!(TWILIO.call_id(form), "v3:abc-_");
    assert_eq!(TELNYX.call_id(form), "v3:abc-_");
    assert_eq!(PLIVO.call_id(form), "7b1f");
    assert_eq!(TWILIO.call_id(b"From=1"), "");
}

/// R-036, R-046: Exotel receives JSON with `url`; people read the rest.
#[test]
fn exotel_gets_json() {
    let reply = EXOTEL.protocol.reply(URL, b"CallSid=1");
    assert_eq!(reply.content_type, "application/json");
    let body: Value = serde_json::from_str(&reply.body).expect("JSON");
    assert_eq!(body["url"], URL);
    assert_eq!(body["websocket_url"], URL);
    for text in ["error", "note"] {
        assert!(body[text].as_str().is_some_and(|text| !text.is_empty()));
    }
}

#[test]
fn a_token_is_in_the_path() {
    assert_eq!(socket_url("bots.example.net", None, None), URL);
    let url = socket_url("bots.example.net", None, Some("sales"));
    assert_eq!(url, "wss://bots.example.net/ws?bot=sales");
    let url = socket_url("bots.example.net:8443", Some("eyJ9.0a"), None);
    assert_eq!(url, "wss://bots.example.net:8443/ws/eyJ9.0a");
    assert!(markup(TWILIO, &url, "").contains(&format!("<Stream url=\"{url}\"></Stream>")));
    assert!(markup(PLIVO, &url, "").contains(&format!(">{url}</Stream>")));
}

/// Twilio's stream does not contain the caller; the parameters return in its `start`.
#[test]
fn twilio_markup_passes_caller_and_callee() {
    let form = "CallSid=CA01&From=%2B15550001111&CallStatus=ringing&To=%2B15550002222";
    assert_eq!(
        markup(TWILIO, URL, form),
        r#"<?xml version="1.0" encoding="UTF-8"?>
<Response>
  <Connect>
    <Stream url="wss://bots.example.net/ws">
      <Parameter name="from_number" value="+15550001111"/>
      <Parameter name="to_number" value="+15550002222"/>
    </Stream>
  </Connect>
</Response>"#
    );
    let only_to = markup(TWILIO, URL, "From=&To=client%3Aann");
    assert!(only_to.contains("ws\">\n      <Parameter name=\"to_number\" value=\"client:ann\"/>\n    </Stream>"));
    assert_eq!(markup(TELNYX, URL, form), markup(TELNYX, URL, ""));
}

/// Plivo's stream does not contain them either. A value has letters and digits alone, so a number
/// comes without its `+`, and what has other characters is omitted.
#[test]
fn plivo_markup_passes_caller_and_callee() {
    let plain = r#"contentType="audio/x-mulaw;rate=8000">wss://"#;
    for (form, headers) in [
        ("From=%2B15550001111&To=15550002222", "from=15550001111,to=15550002222"),
        ("To=15550002222&From=anonymous", "from=anonymous,to=15550002222"),
        ("From=sip%3Aann%40phone.plivo.com&To=%2B15550002222", "to=15550002222"),
        ("From=1%2Cto%3D2&To=%2B1", "to=1"),
    ] {
        let headers = format!("contentType=\"audio/x-mulaw;rate=8000\" extraHeaders=\"{headers}\">wss://");
        let markup = markup(PLIVO, URL, form);
        assert!(markup.contains(&headers), "{markup}");
    }
    let long = format!("From={}&To=%2B", "5".repeat(65));
    for form in ["", "From=&To=", "From=%22%3E&To=%2B%2B1", &long] {
        let markup = markup(PLIVO, URL, form);
        assert!(markup.contains(plain), "{markup}");
    }
}

/// A form without numbers, with long ones, or an invalid form yields the plain markup.
#[test]
fn other_forms_yield_plain_markup() {
    let plain = markup(TWILIO, URL, "");
    let limit = "5".repeat(CALLER_BYTES_MAX);
    for form in [
        "From=&To=",
        "from=1&to=2",
        r#"{"From":"1"}"#,
        "%%%&&=",
        &format!("From={limit}5"),
    ] {
        assert_eq!(markup(TWILIO, URL, form), plain);
    }
    assert!(markup(TWILIO, URL, &format!("From={limit}")).contains(&limit));
}

/// Neither the caller's number nor the host can add markup.
#[test]
fn escapes_markup_in_the_form_and_the_host() {
    let body = markup(TWILIO, URL, "From=%22%2F%3E%3CDial%3E%261%00%0A%27&To=");
    assert!(
        body.contains("value=\"&quot;/&gt;&lt;Dial&gt;&amp;1&apos;\"/>"),
        "{body}"
    );
    let hostile = socket_url("h\"><Hangup/>&", None, None);
    for provider in [TWILIO, TELNYX, PLIVO] {
        let body = markup(provider, &hostile, "");
        assert!(body.contains("wss://h&quot;&gt;&lt;Hangup/&gt;&amp;/ws"), "{body}");
        assert!(!body.contains("<Hangup"));
    }
}

/// A call that goes on, and a form without a status, get markup.
#[test]
fn only_the_end_of_a_call_is_reported_as_one() {
    for status in [
        "completed",
        "busy",
        "no-answer",
        "failed",
        "canceled",
        "cancel",
        "timeout",
    ] {
        let form = format!("CallUUID=1&CallStatus={status}&From=1");
        assert!(reports_end(form.as_bytes()), "{status}");
    }
    for form in [
        "",
        "CallSid=1",
        "CallStatus=",
        "CallStatus=ringing",
        "CallStatus=in-progress&Event=StartApp",
    ] {
        assert!(!reports_end(form.as_bytes()), "{form}");
    }
}
