//! Transfers of a telephone call, and keys sent to the caller, by the API of the provider.

use std::fmt;

use edge_runner_http::common::unix_time_s;
use serde_json::json;

use super::CallControlError;
use crate::bot::media::PLAYED_MARK;
use crate::bot::{Kind, Output, RoomCall, RunnerArguments};
use crate::config::{Settings, Transport};
use crate::io::rest::{self, ResponseLimits};
use crate::limits::REST_BODY_BYTES_MAX;
use crate::proto::call_control::{HangUpOutcome, TransferTarget};
use crate::proto::hang_up::HangUpApi;
use crate::proto::server::rest::RestRequest;
use crate::proto::telephony::control;
use crate::proto::telephony::provider::Provider;
use std::time::Duration;

/// Time to transfer a telephone call in a room: the server waits for the other end for 30 s.
const ROOM_TRANSFER_WITHIN: Duration = Duration::from_secs(40);
/// Time that a transfer waits for the queued speech to be heard: longer than the 40 s that a
/// program may queue.
const TRANSFER_SPEECH_WITHIN: Duration = Duration::from_secs(60);

/// The telephone call of a session, as its provider can control it.
///
/// It uses the credentials of the runner with which calls are hung up. Exotel controls no calls.
/// A simulated call of the built-in page needs no credentials: its page shows what is asked. In a
/// LiveKit room it is the call of the first telephone there.
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
    access: CallAccess,
    output: Output,
}

/// A call, and the credentials that control it, before its media is open.
#[derive(Clone)]
pub(crate) enum CallAccess {
    /// A call of a telephony provider.
    Provider {
        provider: &'static Provider,
        call_id: String,
        is_simulated: bool,
        settings: Settings,
    },
    /// The first telephone in a room.
    Room(RoomCall),
}

impl CallAccess {
    /// Returns the call of a session.
    ///
    /// # Errors
    /// [`CallControlError::NoCall`] if the session is neither a telephone call nor in a room.
    pub(crate) fn of(args: &RunnerArguments) -> Result<Self, CallControlError> {
        match &args.kind {
            Kind::WebSocket(socket) => {
                let Transport::Telephony(provider) = socket.transport_type else {
                    return Err(CallControlError::NoCall);
                };
                let id = args.call_data().and_then(|data| data["call_id"].as_str());
                Ok(CallAccess::Provider {
                    provider,
                    call_id: id.unwrap_or_default().to_owned(),
                    is_simulated: socket.is_simulated,
                    settings: args.cli_args.telephony.settings.clone(),
                })
            }
            kind => kind.room_call().map(CallAccess::Room).ok_or(CallControlError::NoCall),
        }
    }

    /// Returns the call with its media.
    pub(crate) fn with(self, output: Output) -> PhoneCall {
        PhoneCall { access: self, output }
    }

    fn api(&self) -> &'static dyn HangUpApi {
        match self {
            CallAccess::Provider { provider, .. } => *provider,
            CallAccess::Room(_) => RoomCall::api(),
        }
    }
}

impl fmt::Debug for PhoneCall {
    /// Omits the id of the call and the credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PhoneCall")
            .field("provider", &self.access.api().name())
            .finish_non_exhaustive()
    }
}

impl PhoneCall {
    /// Returns the call of a session, whose media is open. In a room, the telephone may come later;
    /// until then, every method fails with [`CallControlError::NoCall`].
    ///
    /// # Errors
    /// [`CallControlError::NoCall`] if the session is neither a telephone call nor in a room.
    pub fn new(args: &RunnerArguments, output: &Output) -> Result<Self, CallControlError> {
        Ok(CallAccess::of(args)?.with(output.clone()))
    }

    /// Transfers the call to a number such as `+15550001111`, a `sip:` address, or an `https` URL
    /// of the provider's markup. It is asked once, within 10 s, and within 40 s in a room.
    ///
    /// | provider | takes |
    /// |---|---|
    /// | Twilio | a number, a SIP address, a URL |
    /// | Telnyx | a number, a SIP address |
    /// | Plivo | a URL, which [`RunnerBuilder::route`](crate::runner::RunnerBuilder::route) can serve |
    /// | LiveKit | a number, a SIP address; needs the API key and secret of the server |
    ///
    /// The provider is asked when the queued speech has been heard, as with
    /// [`hang_up`](Output::hang_up), so that "One moment, please" can be said before. An
    /// interruption ends that wait, and so does a minute.
    ///
    /// Afterwards the bot returns: the runner closes the stream and does not hang the call up.
    ///
    /// # Errors
    /// [`CallControlError`] if the call was not transferred; it goes on.
    pub async fn transfer(&self, target: &str) -> Result<(), CallControlError> {
        // A target that cannot be dialled fails at once.
        TransferTarget::parse(target)?;
        self.output.expect_played();
        if !self.output.has_spoken() || self.output.mark(PLAYED_MARK).is_err() {
            self.output.set_played();
        }
        self.transfer_when_played(target).await
    }

    /// Transfers the call as [`PhoneCall::transfer`] does, but at once: speech that was not heard
    /// yet is dropped.
    ///
    /// # Errors
    /// [`CallControlError`] if the call was not transferred; it goes on.
    pub async fn transfer_now(&self, target: &str) -> Result<(), CallControlError> {
        TransferTarget::parse(target)?;
        self.output.interrupt();
        self.output.set_played();
        self.transfer_when_played(target).await
    }

    /// Like [`PhoneCall::transfer`], behind speech for which the caller has set [`PLAYED_MARK`].
    pub(crate) async fn transfer_when_played(&self, target: &str) -> Result<(), CallControlError> {
        let address = target;
        let target = TransferTarget::parse(address)?;
        let request = match &self.access {
            CallAccess::Provider {
                provider,
                is_simulated: true,
                ..
            } => {
                control::check_transfer(provider, &target)?;
                None
            }
            CallAccess::Provider {
                provider,
                call_id,
                settings,
                ..
            } => Some(control::transfer(provider, call_id, &target, settings)?),
            CallAccess::Room(call) => Some(call.transfer(&target, unix_time_s())?),
        };
        // A provider that does not report what was heard only delays the transfer.
        let _ = tokio::time::timeout(TRANSFER_SPEECH_WITHIN, self.output.played()).await;
        match &request {
            Some(request) => self.perform(request).await?,
            None => self.simulate(&json!({"event": "edge_runner", "transfer": address}))?,
        }
        self.output.leave_to_provider(target.shown());
        log::info!("the call was transferred");
        Ok(())
    }

    /// Sends keys to the caller's end, such as the menu of another machine: up to 32 of `0`-`9`,
    /// `*`, `#`, `A`-`D`. Telnyx, Plivo and LiveKit send them, the last to every telephone in the
    /// room; elsewhere, play the tones of the keys with
    /// [`play_tones`](super::play_tones).
    ///
    /// # Errors
    /// [`CallControlError`] if they were not sent.
    pub async fn send_keys(&self, keys: &str) -> Result<(), CallControlError> {
        match &self.access {
            CallAccess::Provider {
                provider,
                is_simulated: true,
                ..
            } => {
                control::check_provider_keys(provider, keys)?;
                self.simulate(&json!({"event": "edge_runner", "keys": keys}))
            }
            CallAccess::Provider {
                provider,
                call_id,
                settings,
                ..
            } => {
                let request = control::send_keys(provider, call_id, keys, settings)?;
                self.perform(&request).await
            }
            CallAccess::Room(call) => {
                control::check_keys(keys)?;
                call.identity()?;
                match self.output.send_keys(keys) {
                    true => Ok(()),
                    false => Err(CallControlError::Failed(
                        "the call is over, or too many keys wait".to_owned(),
                    )),
                }
            }
        }
    }

    /// Tells the simulated telephone what a provider would have been asked.
    fn simulate(&self, message: &serde_json::Value) -> Result<(), CallControlError> {
        let sent = self.output.send_message(message.to_string());
        sent.map_err(|_| CallControlError::Failed("the call is over".to_owned()))
    }

    /// Sends a request once: it is not known whether a request without an answer had an effect.
    async fn perform(&self, request: &RestRequest) -> Result<(), CallControlError> {
        let answer = match &self.access {
            CallAccess::Provider { .. } => rest::send(request).await,
            CallAccess::Room(_) => rest::send_within(request, ROOM_TRANSFER).await,
        };
        let answer = answer.map_err(|error| CallControlError::Failed(error.to_string()))?;
        match self.access.api().outcome(answer.status, &answer.body) {
            HangUpOutcome::Done => Ok(()),
            HangUpOutcome::AlreadyOver => Err(CallControlError::Failed("the call is over".to_owned())),
            HangUpOutcome::Refused(why) | HangUpOutcome::Retry(why) => Err(CallControlError::Failed(why)),
        }
    }
}

/// The limits of a transfer in a room, whose answer comes with the outcome.
const ROOM_TRANSFER: ResponseLimits = ResponseLimits {
    timeout: ROOM_TRANSFER_WITHIN,
    body_bytes_max: REST_BODY_BYTES_MAX,
};

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use edge_runner_http::testing::{FakeServer, answer};

    use super::*;
    use crate::bot::{Audio, BotError};
    use crate::config::Config;
    use crate::proto::livekit::room_service::RoomService;
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

    /// The page is told what a provider would be asked, and no provider is.
    #[tokio::test]
    async fn a_simulated_call_is_controlled_by_messages() {
        let fake = FakeServer::new(vec![]).await;
        let (mut call, mut args) = caller("telephony_b", &fake);
        if let Kind::WebSocket(socket) = &mut args.kind {
            socket.is_simulated = true;
        }
        args.cli_args = Arc::new(Config::default());
        let phone = phone(&mut args).expect("a call");
        assert_eq!(phone.send_keys("12#").await, Ok(()));
        assert_eq!(phone.send_keys("x").await, Err(CallControlError::Keys));
        let refused = phone.transfer("https://b.example/x").await.expect_err("refused");
        assert!(matches!(refused, CallControlError::NotOffered { .. }));
        assert!(!call.is_transferred());
        assert_eq!(phone.transfer("+15550003333").await, Ok(()));
        assert!(call.is_transferred());
        for message in [
            r##"{"event":"edge_runner","keys":"12#"}"##,
            r#"{"event":"edge_runner","transfer":"+15550003333"}"#,
        ] {
            assert_eq!(call.next_message().await.as_deref(), Some(message));
        }
        assert!(fake.requests().is_empty());
    }

    /// Arguments of a session in a room whose server is the fake one.
    fn room(fake: Option<&FakeServer>) -> (Call, RunnerArguments) {
        let (call, mut args) = Caller::media_room("parlour").arguments();
        if let (Kind::Mediaroom(room), Some(fake)) = (&mut args.kind, fake) {
            let secret = crate::config::Secret::new("secret");
            room.call.service = Some(RoomService::new(&fake.url(""), "devkey", &secret, "parlour"));
        }
        (call, args)
    }

    /// Before a telephone is there, nothing is asked. The answers of the server are its own words.
    #[tokio::test]
    async fn a_telephone_in_a_room_is_transferred_by_its_server() {
        let fake = FakeServer::new(vec![
            answer(
                "412 Precondition Failed",
                r#"{"code":"failed_precondition","msg":"busy here"}"#,
            ),
            answer("200 OK", "{}"),
        ])
        .await;
        let (call, mut args) = room(Some(&fake));
        let phone = phone(&mut args).expect("a room");
        assert_eq!(phone.transfer("+15550003333").await, Err(CallControlError::NoCall));
        assert_eq!(phone.send_keys("1").await, Err(CallControlError::NoCall));
        call.transport_side
            .set_call_data(json!({"identity": "sip_1", "from": "+15550001111"}));
        assert_eq!(args.call_data().expect("a call")["from"], "+15550001111");
        let refused = phone.transfer("sip:desk@pbx.example.net").await.expect_err("refused");
        assert_eq!(refused.to_string(), "status 412, failed_precondition: busy here");
        assert!(!call.is_transferred());
        assert_eq!(phone.transfer("+15550003333").await, Ok(()));
        assert!(call.is_transferred());
        let requests = fake.requests();
        assert_eq!(requests.len(), 2);
        for (request, to) in requests.iter().zip(["sip:desk@pbx.example.net", "tel:+15550003333"]) {
            assert!(
                request.starts_with("POST /twirp/livekit.SIP/TransferSIPParticipant HTTP/1.1\r\n"),
                "{request}"
            );
            let body = request.split_once("\r\n\r\n").expect("a body").1;
            let body: serde_json::Value = serde_json::from_str(body).expect("JSON");
            assert_eq!(
                body,
                json!({"participant_identity": "sip_1", "room_name": "parlour", "transfer_to": to})
            );
        }
    }

    #[tokio::test]
    async fn keys_for_telephones_in_a_room_go_through_the_session() {
        let (call, mut args) = room(None);
        let phone = phone(&mut args).expect("a room");
        call.transport_side.set_call_data(json!({"identity": "sip_1"}));
        assert_eq!(phone.send_keys("12#").await, Ok(()));
        assert_eq!(phone.send_keys("x").await, Err(CallControlError::Keys));
        assert_eq!(call.transport_side.take_keys().as_deref(), Some("12#"));
        assert_eq!(call.transport_side.take_keys(), None);
        let longest = "1".repeat(32);
        for _ in 0..4 {
            assert_eq!(phone.send_keys(&longest).await, Ok(()));
        }
        assert!(matches!(phone.send_keys("1").await, Err(CallControlError::Failed(_))));
        let refused = phone.transfer("+15550003333").await.expect_err("no credentials");
        assert_eq!(
            refused.to_string(),
            "it needs MEDIAROOM_API_KEY (or LIVEKIT_API_KEY) and MEDIAROOM_API_SECRET (or LIVEKIT_API_SECRET)"
        );
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
