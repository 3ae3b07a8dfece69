//! WhatsApp webhooks with a valid signature: the events of any body are bounded and safe for the
//! log, and each call starts once.

use std::time::{Duration, Instant};

use edge_runner_proto::limits;
use edge_runner_proto::whatsapp::call_table::{CALLS_MAX, CallTable};
use edge_runner_proto::whatsapp::webhook::{EVENTS_MAX, WebhookEvent, parse};
use serde_json::Value;

const OURS: &str = "1060000001";

pub fn webhook(bytes: &[u8]) {
    let Ok(news) = parse(bytes, OURS) else {
        return;
    };
    assert!(news.len() <= EVENTS_MAX);
    let now = Instant::now();
    let mut calls: CallTable<usize> = CallTable::default();
    for (nth, news) in news.iter().enumerate() {
        match news {
            WebhookEvent::Connect(connect) => {
                assert_is_id(&connect.call_id);
                assert!(connect.from.chars().count() <= 4, "three digits of a number");
                if let Some(sdp) = &connect.sdp {
                    assert!(sdp.len() <= limits::OFFER_SDP_BYTES_MAX);
                }
                let body = connect.body.as_object().expect("an object");
                for (name, value) in body {
                    assert!(name != "session" && name != "sdp", "the offer is not the bot's");
                    assert!(value.as_str().is_some_and(|text| text.len() <= 1_024), "{name}");
                }
                assert_eq!(body["id"], Value::from(connect.call_id.as_str()));
                // Shown for the log, it has nothing of the caller.
                assert!(!format!("{connect:?}").contains("session"));
                calls.handle_connect(&connect.call_id, nth, now);
                assert!(!calls.handle_connect(&connect.call_id, nth, now), "a twin");
            }
            WebhookEvent::Terminate(terminate) => {
                assert_is_id(&terminate.call_id);
                calls.handle_terminate(&terminate.call_id, now);
                assert_eq!(
                    calls.handle_terminate(&terminate.call_id, now),
                    None,
                    "an end is reported once"
                );
                assert!(!calls.handle_connect(&terminate.call_id, nth, now + Duration::from_secs(1)));
            }
            WebhookEvent::OtherNumber(number) => assert!(number != OURS && number.chars().count() <= 32),
            WebhookEvent::Ignored(_) => {}
        }
    }
    assert!(calls.count() <= news.len().min(CALLS_MAX));
}

fn assert_is_id(id: &str) {
    assert!(
        (1..=256).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic()),
        "{id:?}"
    );
}
