//! A participant of a media room, as bots and programs see it.
//!
//! A telephone in a room has the state of its call and its numbers in attributes, which become the
//! same call data as those of telephony providers. Source: `docs/spec/livekit.md` 7.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde_json::{Value, json};

/// A participant of a room.
#[derive(Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Participant {
    /// The identity in the access token, unique in the room and stable across reconnections.
    pub identity: Arc<str>,
    /// The displayed name; may be empty.
    pub name: String,
    /// Whether it is another bot or a recorder. Agents are not heard and do not keep a session
    /// alive; otherwise, two bots would talk to each other indefinitely.
    pub is_agent: bool,
    /// Whether it is a caller on the telephone.
    pub is_telephone: bool,
    /// Attributes set by the server or the participant, such as a telephone number; the first ones
    /// by name, up to 4 KiB. Mapped SIP headers, `sip.h.*`, come last.
    pub attributes: BTreeMap<String, String>,
}

impl Participant {
    /// Returns the state of a telephone's call: `dialing`, `ringing`, `automation`, `active` or
    /// `hangup`.
    pub fn call_status(&self) -> Option<&str> {
        self.attribute("sip.callStatus").filter(|_| self.is_telephone)
    }

    /// Tells whether the participant is a telephone whose call is not answered yet. It hears
    /// nothing, and is a caller nevertheless: the call is answered because the bot is there.
    pub fn is_ringing(&self) -> bool {
        matches!(self.call_status(), Some("dialing" | "ringing" | "automation"))
    }

    /// Returns the data of a telephone's call, in the form of telephony providers; `None` for
    /// others. Numbers are `null` if the service hides them.
    pub fn call_data(&self) -> Option<Value> {
        self.is_telephone.then(|| {
            json!({
                "stream_id": &*self.identity,
                "call_id": self.attribute("sip.callID").unwrap_or_default(),
                "from": self.attribute("sip.phoneNumber"),
                "to": self.attribute("sip.trunkPhoneNumber"),
                "body": {},
                "via": "room",
                "identity": &*self.identity,
                "name": self.name,
                "attributes": self.attributes,
            })
        })
    }

    /// Returns the number of a telephone.
    pub fn number(&self) -> Option<&str> {
        self.attribute("sip.phoneNumber").filter(|_| self.is_telephone)
    }

    /// Returns the number that a telephone has dialled, and the id of the trunk of its call.
    pub fn dialled(&self) -> [Option<&str>; 2] {
        let names = ["sip.trunkPhoneNumber", "sip.trunkID"];
        names.map(|name| self.attribute(name).filter(|_| self.is_telephone))
    }

    fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.get(name).map(String::as_str)
    }
}

impl fmt::Debug for Participant {
    /// Omits attributes, which contain telephone numbers.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Participant")
            .field("identity", &self.identity)
            .field("name", &self.name)
            .field("is_agent", &self.is_agent)
            .field("is_telephone", &self.is_telephone)
            .field("attributes", &self.attributes.len())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn telephone(attributes: &[(&str, &str)]) -> Participant {
        Participant {
            identity: "sip_1".into(),
            name: "Phone".into(),
            is_telephone: true,
            attributes: attributes
                .iter()
                .map(|(name, value)| ((*name).into(), (*value).into()))
                .collect(),
            ..Participant::default()
        }
    }

    #[test]
    fn a_telephone_has_call_data() {
        let known = telephone(&[
            ("sip.callID", "SCL_1"),
            ("sip.phoneNumber", "+15550001111"),
            ("sip.trunkPhoneNumber", "+15550002222"),
        ]);
        let data = known.call_data().expect("a telephone");
        assert_eq!(
            (&data["call_id"], &data["from"], &data["to"], &data["body"]),
            (
                &json!("SCL_1"),
                &json!("+15550001111"),
                &json!("+15550002222"),
                &json!({})
            )
        );
        assert_eq!(data["attributes"]["sip.callID"], "SCL_1");
        let hidden = telephone(&[]).call_data().expect("a telephone");
        assert_eq!((&hidden["from"], &hidden["call_id"]), (&Value::Null, &json!("")));
        let other = Participant {
            is_telephone: false,
            ..known
        };
        assert_eq!((other.call_data(), other.call_status()), (None, None));
        assert!(!format!("{other:?}").contains("+1555"));
    }

    #[test]
    fn a_call_that_is_not_answered_is_ringing() {
        for (status, is_ringing) in [
            ("dialing", true),
            ("ringing", true),
            ("automation", true),
            ("active", false),
            ("hangup", false),
            ("new in a later version", false),
        ] {
            assert_eq!(
                telephone(&[("sip.callStatus", status)]).is_ringing(),
                is_ringing,
                "{status}"
            );
        }
        assert!(!telephone(&[]).is_ringing());
    }
}
