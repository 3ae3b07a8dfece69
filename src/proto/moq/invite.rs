//! The session of Media over QUIC for a caller, as a runner names it.
//!
//! In: the response of `/start`. Out: the address, the certificate and the names of both ends, or
//! what is missing.

use data_encoding::BASE64;

use crate::caller::target::started;

/// A session of Media over QUIC for a caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoqInvite {
    /// The URL of the runner or the relay, `https`.
    pub url: String,
    /// SHA-256 of its certificate; `None` if an authority vouches for it.
    pub certificate_hash: Option<[u8; 32]>,
    /// The first segments of both paths.
    pub namespace: String,
    /// The last segments of the paths of the bot and of the caller.
    pub bot_id: String,
    pub client_id: String,
}

/// Returns the session of Media over QUIC from the response of `/start`.
///
/// # Errors
/// A sentence about what is missing.
pub fn started_moq(response: &[u8]) -> Result<MoqInvite, String> {
    let value = started(response)?;
    let moq = &value["moq"];
    let text = |name: &str| {
        let text = moq[name].as_str().filter(|text| !text.is_empty());
        text.map(str::to_owned)
            .ok_or_else(|| format!("its answer to /start has no `moq.{name}`: does it serve `moq`?"))
    };
    let certificate_hash = match moq["certHash"].as_str() {
        None => None,
        Some(hash) => {
            let bytes = BASE64.decode(hash.as_bytes()).ok();
            let hash = bytes.and_then(|bytes| bytes.try_into().ok());
            Some(hash.ok_or("its answer to /start has no SHA-256 in Base64 as `moq.certHash`")?)
        }
    };
    Ok(MoqInvite {
        url: text("relayUrl")?,
        certificate_hash,
        namespace: text("namespace")?,
        bot_id: text("botId")?,
        client_id: text("clientId")?,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn media_over_quic_is_where_the_runner_says() {
        let answer = |hash: Value| {
            let moq = json!({"relayUrl": "https://a:4080/moq", "certHash": hash, "serve": true, "namespace": "n",
                "clientId": "request", "botId": "response"});
            started_moq(json!({"sessionId": "s", "moq": moq}).to_string().as_bytes())
        };
        let invite = MoqInvite {
            url: "https://a:4080/moq".into(),
            certificate_hash: Some([7; 32]),
            namespace: "n".into(),
            bot_id: "response".into(),
            client_id: "request".into(),
        };
        assert_eq!(answer(BASE64.encode(&[7; 32]).into()), Ok(invite.clone()));
        let certificate_hash = None;
        assert_eq!(
            answer(Value::Null),
            Ok(MoqInvite {
                certificate_hash,
                ..invite
            })
        );
        assert!(answer("AA==".into()).is_err_and(|error| error.contains("SHA-256")));
        assert!(started_moq(b"{}").is_err_and(|error| error.contains("`moq.relayUrl`")));
    }
}
