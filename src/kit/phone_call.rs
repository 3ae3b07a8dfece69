//! Transfers of a telephone call, and keys sent to the caller, by the API of the provider.

use std::fmt;

use super::CallControlError;
use crate::bot::{Kind, Output, RunnerArguments};
use crate::config::{Settings, Transport};
use crate::io::rest;
use crate::proto::server::rest::RestRequest;
use crate::proto::telephony::control::{self, TransferTarget};
use crate::proto::telephony::hangup::{self, HangUpOutcome};
use crate::proto::telephony::provider::Provider;

/// The telephone call of a session, as its provider can control it.
///
/// It uses the credentials of the runner with which calls are hung up. Exotel controls no calls.
///
/// ```no_run
/// use edge_runner::kit::PhoneCall;
/// # use edge_runner::{Audio, BotError, Event, RunnerArguments};
///
/// async fn bot(mut args: RunnerArguments) -> Result<(), BotError> {
///     let mut media = args.media(Audio::at(8_000))?;
///     let call = PhoneCall::new(&args, media.output())?;
///     while let Some(event) = media.recv().await {
///         if let Event::Dtmf('0') = event {
///             call.transfer("+15550001111").await?;
///             return Ok(());
///         }
///     }
///     Ok(())
/// }
/// ```
#[derive(Clone)]
pub struct PhoneCall {
    provider: &'static Provider,
    call_id: String,
    settings: Settings,
    output: Output,
}

impl fmt::Debug for PhoneCall {
    /// Omits the id of the call and the credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PhoneCall")
            .field("provider", &self.provider)
            .finish_non_exhaustive()
    }
}

impl PhoneCall {
    /// Returns the call of a session, whose media is open.
    ///
    /// # Errors
    /// [`CallControlError::NoCall`] if the session is not a telephone call.
    pub fn new(args: &RunnerArguments, output: &Output) -> Result<Self, CallControlError> {
        let Kind::WebSocket(socket) = &args.kind else {
            return Err(CallControlError::NoCall);
        };
        let Transport::Telephony(provider) = socket.transport_type else {
            return Err(CallControlError::NoCall);
        };
        let id = args.call_data().and_then(|data| data["call_id"].as_str());
        Ok(PhoneCall {
            provider,
            call_id: id.unwrap_or_default().to_owned(),
            settings: args.cli_args.telephony.settings.clone(),
            output: output.clone(),
        })
    }

    /// Transfers the call to a number such as `+15550001111`, a `sip:` address, or an `https` URL
    /// of the provider's markup. It is asked once, within 10 s.
    ///
    /// | provider | takes |
    /// |---|---|
    /// | Twilio | a number, a SIP address, a URL |
    /// | Telnyx | a number, a SIP address |
    /// | Plivo | a URL, which [`RunnerBuilder::route`](crate::runner::RunnerBuilder::route) can serve |
    ///
    /// Afterwards the bot returns: the runner closes the stream and does not hang the call up.
    ///
    /// # Errors
    /// [`CallControlError`] if the call was not transferred; it goes on.
    pub async fn transfer(&self, target: &str) -> Result<(), CallControlError> {
        let target = TransferTarget::parse(target)?;
        let request = control::transfer(self.provider, &self.call_id, &target, &self.settings)?;
        self.perform(&request).await?;
        self.output.leave_to_provider();
        log::info!("the call was transferred");
        Ok(())
    }

    /// Sends keys to the caller's end, such as the menu of another machine: up to 32 of `0`-`9`,
    /// `*`, `#`, `A`-`D`. Telnyx and Plivo send them; elsewhere, play the tones of the keys with
    /// [`play_tones`](super::play_tones).
    ///
    /// # Errors
    /// [`CallControlError`] if they were not sent.
    pub async fn send_keys(&self, keys: &str) -> Result<(), CallControlError> {
        let request = control::send_keys(self.provider, &self.call_id, keys, &self.settings)?;
        self.perform(&request).await
    }

    /// Sends a request once: it is not known whether a request without an answer had an effect.
    async fn perform(&self, request: &RestRequest) -> Result<(), CallControlError> {
        let answer = rest::send(request).await;
        let answer = answer.map_err(|error| CallControlError::Failed(error.to_string()))?;
        match hangup::outcome(self.provider, answer.status, &answer.body) {
            HangUpOutcome::Done => Ok(()),
            HangUpOutcome::AlreadyOver => Err(CallControlError::Failed("the call is over".to_owned())),
            HangUpOutcome::Refused(why) | HangUpOutcome::Retry(why) => Err(CallControlError::Failed(why)),
        }
    }
}

#[cfg(test)]
mod tests {
    use edge_runner_http::testing::{FakeServer, answer};

    use super::*;
    use crate::bot::{Audio, BotError};
    use crate::config::Config;
    use crate::testing::{Call, Caller};

    /// Returns a caller whose provider's API is the fake server.
    fn caller(name: &str, fake: &FakeServer) -> (Call, RunnerArguments) {
        let url = fake.url("");
        let mut config = Config::default();
        config.telephony.settings = Settings::from([
            ("TELCO_A_ACCOUNT_SID", "AC01"),
            ("TELCO_A_AUTH_TOKEN", "a-token"),
            ("TELCO_B_API_KEY", "b-key"),
            ("TELCO_C_AUTH_ID", "MA01"),
            ("TELCO_C_AUTH_TOKEN", "c-token"),
            ("TELCO_A_API_URL", &url),
            ("TELCO_B_API_URL", &url),
            ("TELCO_C_API_URL", &url),
        ]);
        let provider = Transport::from_name(name).expect("a provider");
        Caller::phone(provider).config(config).arguments()
    }

    fn phone(args: &mut RunnerArguments) -> Result<PhoneCall, BotError> {
        let media = args.media(Audio::at(8_000))?;
        Ok(PhoneCall::new(args, media.output())?)
    }

    /// The whole request on the wire, and the flag that keeps the runner from hanging up.
    #[tokio::test]
    async fn a_transfer_is_one_request_and_ends_the_runners_part() {
        let version = env!("CARGO_PKG_VERSION");
        for (name, target, line, credential, rest) in [
            (
                "telephony_a",
                "+15550003333",
                "POST /2010-04-01/Accounts/AC01/Calls/call.json HTTP/1.1",
                "Basic QUMwMTphLXRva2Vu",
                "content-type: application/x-www-form-urlencoded\r\ncontent-length: 74\r\n\r\n\
                 Twiml=%3CResponse%3E%3CDial%3E%2B15550003333%3C%2FDial%3E%3C%2FResponse%3E",
            ),
            (
                "telephony_b",
                "+15550003333",
                "POST /v2/calls/call/actions/transfer HTTP/1.1",
                "Bearer b-key",
                "content-type: application/json\r\ncontent-length: 21\r\n\r\n{\"to\":\"+15550003333\"}",
            ),
            (
                "telephony_c",
                "https://b.example/x",
                "POST /v1/Account/MA01/Call/call/ HTTP/1.1",
                "Basic TUEwMTpjLXRva2Vu",
                "content-type: application/json\r\ncontent-length: 72\r\n\r\n\
                 {\"aleg_method\":\"GET\",\"aleg_url\":\"https://b.example/x\",\"legs\":\"aleg\"}",
            ),
        ] {
            let fake = FakeServer::new(vec![answer("200 OK", "{}")]).await;
            let (call, mut args) = caller(name, &fake);
            let phone = phone(&mut args).expect("a call");
            assert_eq!(phone.transfer(target).await, Ok(()));
            assert!(call.is_transferred());
            let host = fake.address;
            let head = format!(
                "{line}\r\nhost: {host}\r\nuser-agent: edge-runner/{version}\r\naccept: application/json\r\n\
                 authorization: {credential}\r\n"
            );
            let requests = fake.requests();
            assert_eq!(requests.len(), 1);
            let tail = requests[0].strip_prefix(&head).expect(&requests[0]);
            let body = |text: &str| text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned());
            assert_eq!(body(tail), body(rest));
        }
    }

    /// A refused transfer is not repeated, and the call stays the runner's.
    #[tokio::test]
    async fn a_refused_transfer_leaves_the_call_as_it_is() {
        for (status, body, why) in [
            (
                "400 Bad Request",
                r#"{"code":21211,"message":"invalid number +15550003333"}"#,
                "status 400, code 21211: invalid number +###########",
            ),
            ("503 Service Unavailable", "", "status 503"),
            ("404 Not Found", "", "the call is over"),
        ] {
            let fake = FakeServer::new(vec![answer(status, body)]).await;
            let (call, mut args) = caller("telephony_a", &fake);
            let phone = phone(&mut args).expect("a call");
            let refused = phone.transfer("+15550003333").await.expect_err("refused");
            assert_eq!(refused.to_string(), why);
            assert!(!call.is_transferred());
            assert_eq!(fake.requests().len(), 1);
        }
    }

    #[tokio::test]
    async fn keys_are_sent_where_the_provider_can() {
        let fake = FakeServer::new(vec![answer("202 Accepted", "{}")]).await;
        let (call, mut args) = caller("telephony_c", &fake);
        assert_eq!(phone(&mut args).expect("a call").send_keys("12#").await, Ok(()));
        let sent = fake.requests();
        assert!(sent[0].starts_with("POST /v1/Account/MA01/Call/call/DTMF/ HTTP/1.1\r\n"));
        assert!(sent[0].ends_with(r##"{"digits":"12#","leg":"aleg"}"##));
        assert!(!call.is_transferred());
        let (_call, mut args) = caller("telephony_a", &fake);
        let refused = phone(&mut args)
            .expect("a call")
            .send_keys("1")
            .await
            .expect_err("refused");
        assert!(matches!(refused, CallControlError::NotOffered { .. }));
        assert_eq!(fake.requests().len(), 1, "nothing was sent");
    }

    #[tokio::test]
    async fn only_telephone_calls_are_controlled() {
        let (_call, mut args) = Caller::browser().arguments();
        let media = args.media(Audio::default()).expect("media");
        let refused = PhoneCall::new(&args, media.output()).expect_err("no call");
        assert_eq!(refused, CallControlError::NoCall);
        let (_call, mut args) = Caller::client().arguments();
        assert!(phone(&mut args).is_err());
    }
}
