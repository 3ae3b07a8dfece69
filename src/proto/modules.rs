//! The modules of the runner, each with its rows: options and what they mean, variables, endpoints,
//! and members of `/status`.

use serde_json::{Value, json};

use crate::assistant::options::AssistantOptions;
use crate::calls::options::CallsOptions;
use crate::config::{Config, ListenAddresses};
use crate::daily::options::DailyOptions;
pub use crate::daily::options::{NO_PCM, NO_VIDEO_ROOMS};
use crate::features::{Feature, MissingFeature};
use crate::http::endpoint::ModuleEndpoint;
#[cfg(feature = "call")]
pub use crate::livekit::call_options::{ROOM_EXAMPLE, ROOM_URL, RoomCallOptions, room_access};
use crate::livekit::options::LiveKitOptions;
use crate::livekit::room_config;
use crate::local::options::LocalOptions;
use crate::moq::options::MoqOptions;
use crate::options::variables::{ListedVariable, ModuleVariables};
use crate::options::{Env, Flag, UsageError};
use crate::server::acme_options::AcmeOptions;
use crate::server::body::{ObjectReader, ValidationError};
use crate::server::tls_config::Tls;
use crate::sockets::options::SocketOptions;
use crate::telephony::PROVIDERS;
#[cfg(feature = "call")]
pub use crate::telephony::call_options::{PHONE_TRANSPORT, PhoneCallOptions, phone_example, webhook_call};
use crate::telephony::options::TelephonyOptions;
use crate::transport::Transport;
use crate::webrtc::options::WebRtcOptions;
use crate::whatsapp::options::WhatsAppOptions;
use crate::{assistant, calls, daily, livekit, moq, telephony, webrtc, whatsapp};

/// The typed options of the modules.
#[derive(Debug, Default)]
pub struct ModuleOptions {
    pub acme: AcmeOptions,
    pub calls: CallsOptions,
    pub local: LocalOptions,
    pub webrtc: WebRtcOptions,
    pub moq: MoqOptions,
    pub assistant: AssistantOptions,
    pub sockets: SocketOptions,
    pub telephony: TelephonyOptions,
    pub daily: DailyOptions,
    pub whatsapp: WhatsAppOptions,
    pub livekit: LiveKitOptions,
}

/// Gives the options of a module to its setters, and all lists to the table of a command.
macro_rules! module_options {
    ($($field:ident: $options:ty),*) => {
        $(impl AsMut<$options> for ModuleOptions {
            fn as_mut(&mut self) -> &mut $options {
                &mut self.$field
            }
        })*

        impl<T: $(AsMut<$options> +)*> Flag<T> {
            /// Returns the lists of the runner's own options and of the modules, in the order of
            /// the help.
            pub const fn in_order(own: [&'static [Flag<T>]; 6]) -> [&'static [Flag<T>]; 17] {
                let [addresses, serving, bot, programs, access, general] = own;
                [
                    addresses,
                    Flag::ACME,
                    serving,
                    Flag::CALLS,
                    Flag::LOCAL,
                    Flag::WEBRTC,
                    Flag::MOQ,
                    bot,
                    Flag::ASSISTANTS,
                    programs,
                    access,
                    Flag::SOCKETS,
                    Flag::TELEPHONY,
                    Flag::DAILY,
                    Flag::WHATSAPP,
                    Flag::LIVEKIT,
                    general,
                ]
            }
        }
    };
}

module_options!(
    acme: AcmeOptions,
    calls: CallsOptions,
    local: LocalOptions,
    webrtc: WebRtcOptions,
    moq: MoqOptions,
    assistant: AssistantOptions,
    sockets: SocketOptions,
    telephony: TelephonyOptions,
    daily: DailyOptions,
    whatsapp: WhatsAppOptions,
    livekit: LiveKitOptions
);

/// What the options of calls and rooms are checked against.
pub struct RunnerOptions<'a> {
    pub transport: Option<Transport>,
    /// The text of `--host`.
    pub host: Option<&'a str>,
    pub proxy: Option<&'a str>,
    pub tls: &'a Tls,
    pub has_api_key: bool,
    /// Whether WebSockets require a token.
    pub ws_tokens: bool,
    /// The long names of all options that were typed.
    pub typed: &'a [&'static str],
}

impl ModuleOptions {
    /// Returns whether one bot runs in one room, without a web server.
    pub fn is_direct(&self) -> bool {
        self.daily.direct
    }

    /// Returns the transport of `-t`, or that of an option that implies one.
    ///
    /// # Errors
    /// [`UsageError`] if both exclude each other.
    pub fn transport(&self, given: Option<Transport>) -> Result<Option<Transport>, UsageError> {
        self.daily.transport(given)
    }

    /// Returns the public host name of the runner: that of `--proxy`, or the first of these if the
    /// transport needs one.
    ///
    /// # Errors
    /// [`UsageError`] for a name that is none, and for a transport that lacks one.
    pub fn proxy(
        &self,
        transport: Option<Transport>,
        public_names: &[String],
        warnings: &mut Vec<String>,
    ) -> Result<Option<String>, UsageError> {
        let provider = transport.and_then(Transport::provider);
        telephony::options::proxy(&self.telephony, provider, public_names, warnings)
    }

    /// Returns the files of keys that options name.
    pub fn key_files(&self) -> impl Iterator<Item = &str> {
        self.moq.tls_key.as_deref().into_iter()
    }

    /// Reads the settings of calls and rooms into the configuration.
    ///
    /// # Errors
    /// [`UsageError`] that names the option or the variable.
    pub fn resolve(
        &self,
        runner: &RunnerOptions<'_>,
        env: &Env<'_>,
        warnings: &mut Vec<String>,
        config: &mut Config,
    ) -> Result<(), UsageError> {
        let variables = &env.variables;
        let transport = runner.transport;
        self.webrtc.resolve(runner.host, env, warnings, config)?;
        config.telephony = where_built(Feature::Telephony, || {
            telephony::options::telephony(&self.telephony, &PROVIDERS, variables, warnings)
        })?;
        let provider = transport.and_then(Transport::provider);
        telephony::options::check_dial_out(&config.telephony, provider, runner.proxy, runner.has_api_key)?;
        config.videoroom = where_built(Feature::Videoroom, || {
            daily::options::videoroom(&self.daily, variables, warnings)
        })?;
        config.direct = self.daily.direct;
        config.mediaroom = where_built(Feature::Mediaroom, || {
            livekit::options::mediaroom(
                &self.livekit,
                runner.typed,
                self.daily.direct,
                transport,
                variables,
                warnings,
            )
        })?;
        config.messaging = where_built(Feature::Messaging, || {
            whatsapp::options::messaging(&self.whatsapp, transport, variables, warnings)
        })?;
        config.start_names = where_built(Feature::Videoroom, || daily::options::start_names(variables))?;
        config.moq = where_built(Feature::Moq, || {
            self.moq.resolve(transport, runner.tls, runner.ws_tokens, env, warnings)
        })?;
        Ok(())
    }
}

/// What a `/start` request asks of the modules.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StartFields {
    pub record: Option<bool>,
    /// Whether the client asks for a public STUN server.
    pub default_ice: bool,
    pub rooms: daily::start::RoomFields,
    pub namespace: Option<String>,
    room_config: Option<Value>,
}

impl StartFields {
    /// The members that ask for something beside the session with `true`.
    pub const WISHES: [&str; 2] = [daily::start::CREATE, webrtc::start::DEFAULT_ICE];

    /// Takes the members, in the order in which a 422 lists their problems.
    pub fn take(fields: &mut ObjectReader) -> Self {
        let create = daily::start::take_create(fields);
        let record = fields.flag("record");
        let default_ice = webrtc::start::take_default_ice(fields);
        let properties = daily::start::take_properties(fields);
        StartFields {
            record,
            default_ice,
            rooms: daily::start::RoomFields { create, properties },
            namespace: moq::start::take_namespace(fields),
            room_config: fields.take("room_config").map(|(_, value)| value),
        }
    }

    /// Returns the transport that a member implies; `None` if the request leaves it to the
    /// configuration.
    pub fn transport(&self) -> Option<Transport> {
        self.rooms.create.then_some(Transport::Videoroom)
    }

    /// Returns the name of the agent that a front-end asks for.
    pub fn agent(&self) -> Option<&str> {
        self.room_config.as_ref().and_then(room_config::agent)
    }

    /// Returns the body for the bot of a session.
    ///
    /// # Errors
    /// [`ValidationError`] if the request names another agent than that of the bot.
    pub fn body(&self, transport: Transport, given: Option<Value>, of_bot: &Config) -> Result<Value, ValidationError> {
        match (transport, &self.room_config) {
            (Transport::Mediaroom, Some(room_config)) => {
                room_config::body(room_config, given, livekit::agent_name(&of_bot.mediaroom))
            }
            _ => Ok(given.unwrap_or_else(|| json!({}))),
        }
    }

    /// Returns whether the session begins with a call of this transport.
    pub fn begins_call(&self, transport: Transport, config: &Config) -> bool {
        match transport {
            Transport::Telephony(_) => false,
            Transport::Videoroom => self.rooms.room(&config.videoroom).is_some(),
            _ => true,
        }
    }
}

/// Returns warnings about calls of modules that cannot succeed, and about what strangers can ask of
/// them.
pub fn warnings(config: &Config) -> Vec<String> {
    daily::options::warnings(config)
}

/// Warns of settings of the runner that block the calls of a transport.
pub fn warn_about_calls(
    transport: Option<Transport>,
    allowed_origins: &[String],
    ws_tokens: bool,
    warnings: &mut Vec<String>,
) {
    if let Some(provider) = transport.and_then(Transport::provider) {
        telephony::options::warn_about_calls(provider, allowed_origins, ws_tokens, warnings);
    }
}

/// Returns the `-t` options that need the public name of the runner, for the help.
pub fn needs_proxy() -> String {
    telephony::options::needs_proxy(&PROVIDERS)
}

/// Rejects one UDP port for two transports, which have a socket each.
///
/// # Errors
/// [`UsageError`] that names both options.
pub fn check_udp_ports(config: &Config, rtc_port: u16) -> Result<(), UsageError> {
    match moq::options::served_port(&config.moq, config.transport) {
        Some(port) if port == rtc_port && port != 0 => Err(UsageError::Combination(format!(
            "`--moq-bind` and `--rtc-port` name the same UDP port, {rtc_port}, and WebRTC and QUIC need one each; the \
             default of `--rtc-port` is the number of the HTTP port"
        ))),
        _ => Ok(()),
    }
}

/// Paths that the key of `--api-key` guards, whatever `-t` says, and the feature of each.
pub const GUARDED: [(Option<Feature>, &str); 2] = [(None, "/start"), (Some(Feature::WebRtc), "/api/offer")];

/// Returns the UDP port that all callers share, after the name of their protocol; `None` in a build
/// without one.
pub fn shared_udp_port(listening: &ListenAddresses) -> Option<(&'static str, u16)> {
    Feature::WebRtc
        .in_this_build()
        .then_some(("WebRTC", listening.rtc_port))
}

/// Returns why no module of this build serves a TCP connection with framed packets.
pub fn unserved_framing() -> String {
    format!("WebRTC {}", MissingFeature(Feature::WebRtc))
}

/// Calls `read` if this build has the feature. Otherwise the variables are not validated.
///
/// # Errors
/// Those of `read`.
pub fn where_built<T: Default>(
    feature: Feature,
    read: impl FnOnce() -> Result<T, UsageError>,
) -> Result<T, UsageError> {
    match feature.in_this_build() {
        true => read(),
        false => Ok(T::default()),
    }
}

/// The variables of all modules but those of the telephony providers, which have tables of their
/// own, in the order of the help.
pub const VARIABLES: [&ModuleVariables; 5] = [
    &daily::options::VARIABLES,
    &livekit::options::VARIABLES,
    &whatsapp::options::VARIABLES,
    &assistant::options::VARIABLES,
    &calls::options::VARIABLES,
];

/// Returns the variables of all modules in the order of the help: those of the telephony providers
/// first.
pub fn variables() -> Vec<ListedVariable> {
    let mut listed = telephony::variables::variables(&PROVIDERS);
    for module in VARIABLES {
        let variables = module.variables.iter();
        listed.extend(variables.map(|variable| variable.listed(module.feature)));
    }
    listed
}

/// Returns every variable with a credential, after the feature that reads it.
pub fn credentials() -> impl Iterator<Item = (Feature, &'static str)> {
    let credentials = variables().into_iter().filter(ListedVariable::is_credential);
    credentials.map(|variable| (variable.feature, variable.name))
}

/// Returns whether an option of a module, by the name of its variable, changes whom the runner
/// trusts. `is_set` says whether the environment has another variable.
pub fn changes_trust(variable: &str, is_set: impl Fn(&str) -> bool) -> bool {
    moq::options::changes_trust(variable, is_set)
}

/// Returns the feature that a variable needs, by its canonical name.
pub fn feature_of(name: &str) -> Option<Feature> {
    let mut settings = PROVIDERS.into_iter().flat_map(|provider| provider.settings);
    if settings.any(|setting| setting.name == name) {
        return Some(Feature::Telephony);
    }
    let mut modules = VARIABLES.iter();
    modules
        .find(|module| module.contains(name))
        .map(|module| module.feature)
}

/// The endpoints of modules, beside those of [`crate::http::route`].
pub static ENDPOINTS: [ModuleEndpoint; 5] = [
    daily::endpoints::ROOM,
    daily::endpoints::DIALIN,
    livekit::endpoints::WORKER,
    livekit::endpoints::ROOM_EVENTS,
    whatsapp::endpoints::WEBHOOK,
];

/// A member of `/status`, and whether a configuration turns it on.
type StatusMember = (&'static str, fn(&Config) -> bool);

/// What a configuration turns on, as `/status` names it.
pub static STATUS_MEMBERS: [StatusMember; 5] = [
    ("messaging", |config| config.messaging.is_some()),
    ("local", |config| config.local.is_some()),
    ("recording", |config| config.calls.record.is_some()),
    ("listen_in", |config| config.calls.listen_in),
    ("settings", |config| config.settings_page.is_some()),
];
