//! `edge-runner setup`: serves the setup page of a board until its settings are taken.
//!
//! In: a [`SetupConfig`]. Out: the page, `GET /state`, reports of `POST /check` on the services of
//! the form and of `POST /sound-test` on the sound card, and after `POST /settings` and
//! `POST /finish` the file `settings` in a folder, readable by this user only, after which the
//! process ends. It needs no privilege but its port: another program applies the file.
//! `proto::setup` decides who may ask, and what settings are valid. It listens on IPv4 alone, since
//! neighbours cannot be told from the Internet by a global IPv6 address; browsers fall back to it.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::proto::sorting;

use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, StatusCode};
use if_addrs::IfAddr;
use serde_json::{Value, json};

use edge_runner_http::common::{self, BodyLimits, ConnLimits, PeerInfo, Reply, UpgradeSlot, json_reply, lock, whole};
use edge_runner_http::host_name::host_name;
use edge_runner_http::server::{self, BindError, ConnState, HttpService};
use edge_runner_http::shutdown::{Shutdown, ShutdownTrigger};
use edge_runner_http::signal::Signals;
use edge_runner_http::store::Store;
use edge_runner_http::tasks::{SlotPool, request_time};
use edge_runner_http::tls::ServerTls;

use crate::config::Host;
use crate::features::Feature;
use crate::io::http::page;
use crate::io::local::sound_test;
use crate::io::running::ModuleFuture;
use crate::limits::HTTP_BODY;
use crate::page::setup_asset;
use crate::proto::server::request_framing::FramingError;
use crate::proto::setup::asked::AskedServices;
use crate::proto::setup::change::FieldState;
use crate::proto::setup::guard::{self, InterfaceNetwork, SetupHead};
use crate::proto::setup::{BODY_BYTES_MAX, KEY_BYTES, SetupError, SetupState, TOKEN_BYTES};

cfg_if::cfg_if! {
    if #[cfg(feature = "assistants")] {
        mod checks;

        pub(super) const SERVICE_CHECKS: Option<ServiceChecks> = Some(checks::CHECKS);
    } else {
        /// A build without the bots that use services has none to ask.
        pub(super) const SERVICE_CHECKS: Option<ServiceChecks> = None;
    }
}

/// How the services of a form are asked: the JSON of the reports on them, by the limits of the
/// page.
pub(super) struct ServiceChecks {
    /// For the setup page of a board.
    pub of_board: BoardCheckFn,
    /// For the settings page of a runner with these settings.
    pub of_runner: RunnerCheckFn,
}

type ReportsFuture<'a> = ModuleFuture<'a, Result<Value, SetupError>>;
type BoardCheckFn = for<'a> fn(&'a Mutex<SetupState>, &'a [u8], IpAddr) -> ReportsFuture<'a>;
type RunnerCheckFn = for<'a> fn(&'a Mutex<AskedServices>, &'a [u8], &'a [FieldState]) -> ReportsFuture<'a>;

/// The file of the settings in the spool folder.
const SETTINGS: &str = "settings";

/// The network interfaces of Linux.
const INTERFACES: &str = "/sys/class/net";

/// Checks variables as the runner does at its start; the error is its text.
pub type CheckVariables = fn(&[(String, String)]) -> Result<(), String>;

/// The options of the setup page.
#[derive(Debug)]
pub struct SetupConfig {
    /// The address to listen on.
    pub host: Ipv4Addr,
    pub port: u16,
    /// The folder for the settings.
    pub spool: PathBuf,
    /// How long the page is open.
    pub open_for: Duration,
    /// The port on which the runner serves, to which the page leads on.
    pub runner_port: u16,
    pub check: CheckVariables,
}

/// Why the setup page could not be served.
#[derive(Debug, thiserror::Error)]
pub enum SetupPageError {
    #[error(transparent)]
    Bind(BindError),
    #[error("--spool {}: {source}", path.display())]
    Spool { path: PathBuf, source: io::Error },
    #[error("listening for signals: {0}")]
    Signals(#[source] io::Error),
}

/// Serves the page until settings are taken, a signal arrives, or the time is over. `announce` is
/// told the address.
///
/// # Errors
/// [`SetupPageError`] if it cannot be served at all.
pub async fn run(config: SetupConfig, announce: impl FnOnce(SocketAddr)) -> Result<(), SetupPageError> {
    let spool = Store::open(&config.spool).map_err(|source| SetupPageError::Spool {
        path: config.spool.clone(),
        source,
    })?;
    let mut signals = Signals::listen().map_err(SetupPageError::Signals)?;
    let host = Host::Address(config.host.into());
    let listeners = server::bind(host, config.port).await.map_err(SetupPageError::Bind)?;
    let (trigger, shutdown) = Shutdown::channel();
    let open_for = config.open_for;
    announce(listeners.addresses()[0]);
    let page = Arc::new(SetupPage {
        config,
        spool,
        state: Mutex::default(),
        end: trigger,
        sound_tests: sound_test::one_at_a_time(),
    });
    let serve = server::serve(listeners, page.clone(), shutdown);
    tokio::pin!(serve);
    tokio::select! {
        () = &mut serve => return Ok(()),
        name = signals.next() => log::info!("{name}: the setup page ends"),
        () = tokio::time::sleep(open_for) => {
            log::warn!("no settings came within {} minutes: the setup page is closed until the next start", open_for.as_secs() / 60);
        }
    }
    page.end.set();
    serve.await;
    Ok(())
}

/// The service of the setup page.
struct SetupPage {
    config: SetupConfig,
    spool: Store,
    state: Mutex<SetupState>,
    end: ShutdownTrigger,
    sound_tests: SlotPool,
}

impl HttpService for SetupPage {
    fn conn_limits(&self) -> ConnLimits {
        ConnLimits::default()
    }

    fn tls(&self) -> Option<&ServerTls> {
        None
    }

    fn reject_framing(&self, refusal: FramingError) -> Reply {
        text(
            StatusCode::from_u16(refusal.status()).unwrap_or(StatusCode::BAD_REQUEST),
            &refusal.to_string(),
        )
    }

    async fn answer(
        &self,
        request: Request<Incoming>,
        peer: PeerInfo,
        _state: &Arc<ConnState>,
        _upgrade: &UpgradeSlot,
    ) -> Reply {
        let (head, body) = request.into_parts();
        let networks: Vec<InterfaceNetwork> = addresses().into_iter().map(|(_, network)| network).collect();
        let name = host_name();
        let value = |name: HeaderName| head.headers.get(name).map(HeaderValue::as_bytes);
        let guarded = guard::check_peer(peer.ip(), &networks).and_then(|()| {
            let known = SetupHead {
                is_post: head.method == Method::POST,
                host: value(header::HOST).filter(|_| common::has_host(&head)),
                origin: value(header::ORIGIN),
                content_type: value(header::CONTENT_TYPE),
            };
            guard::check_head(known, &name, &networks)
        });
        if let Err(error) = guarded {
            log::debug!("{peer}: {} {}: {error}", head.method, head.uri.path());
            return text(status(error.status()), &format!("{error}.\n"));
        }
        if lock(&self.state).is_closed() {
            return text(StatusCode::GONE, &format!("{}.\n", SetupError::Closed));
        }
        match (&head.method, head.uri.path()) {
            (&Method::GET, "/state") => self.describe(&name),
            (&Method::GET, path) => self.file(path, &head.headers),
            (&Method::POST, path @ ("/settings" | "/finish" | "/check" | "/sound-test")) => {
                let limits = BodyLimits {
                    bytes_max: BODY_BYTES_MAX,
                    within: HTTP_BODY,
                };
                match common::collect(limits, &head.headers, body).await {
                    Ok(body) if path == "/settings" => self.take_form(&body, peer.ip()),
                    Ok(body) if path == "/check" => self.check_services(&body, peer.ip()).await,
                    Ok(_) if path == "/sound-test" => self.test_sound(peer.ip()).await,
                    Ok(body) => self.finish(&body, peer.ip()),
                    Err(error) => text(StatusCode::PAYLOAD_TOO_LARGE, &error.to_string()),
                }
            }
            (&Method::POST, _) => text(StatusCode::NOT_FOUND, "no such path"),
            _ => text(StatusCode::METHOD_NOT_ALLOWED, "the setup page takes GET and POST"),
        }
    }
}

impl SetupPage {
    /// Returns a file of the page.
    fn file(&self, path: &str, headers: &HeaderMap) -> Reply {
        // After the last step the page asks the runner whether it is back.
        let runner = format!("http://*:{}", self.config.runner_port);
        let asset = path.strip_prefix('/').and_then(setup_asset);
        asset
            .and_then(|asset| page::of_asset(asset, headers, Some(&runner)))
            .unwrap_or_else(|| text(StatusCode::NOT_FOUND, "no such path"))
    }

    /// Returns what the page shows of the board.
    fn describe(&self, name: &str) -> Reply {
        let state = json!({
            "name": name,
            "version": env!("CARGO_PKG_VERSION"),
            "runnerPort": self.config.runner_port,
            "assistants": Feature::Assistants.in_this_build(),
            "sound": has_sound(),
            "networks": networks(Path::new(INTERFACES)),
        });
        no_store(json_reply(StatusCode::OK, state.to_string()))
    }

    /// Takes the form, and answers with the new key.
    fn take_form(&self, body: &[u8], source: IpAddr) -> Reply {
        let random: [u8; KEY_BYTES + TOKEN_BYTES] = common::random();
        let mut state = lock(&self.state);
        match state.handle_form(body, (source, request_time().now), random, self.config.check) {
            Ok(draft) => {
                let answer = json!({"token": draft.token, "key": draft.key, "name": draft.name});
                no_store(json_reply(StatusCode::OK, answer.to_string()))
            }
            Err(error) => refuse(&error),
        }
    }

    /// Asks services of the form, and answers with a report on each.
    async fn check_services(&self, body: &[u8], source: IpAddr) -> Reply {
        let Some(checks) = SERVICE_CHECKS else {
            return text(StatusCode::NOT_FOUND, "no such path");
        };
        match (checks.of_board)(&self.state, body, source).await {
            Ok(reports) => no_store(json_reply(StatusCode::OK, reports.to_string())),
            Err(error) => refuse(&error),
        }
    }

    /// Tests the sound card, and answers with what was found. A build without the sound card as a
    /// caller has none to test.
    async fn test_sound(&self, source: IpAddr) -> Reply {
        if !Feature::Local.in_this_build() {
            return text(StatusCode::NOT_FOUND, "no such path");
        }
        let admitted = lock(&self.state).handle_sound_test((source, request_time().now));
        if let Err(error) = admitted {
            return refuse(&error);
        }
        match sound_test::test_board(&self.sound_tests, &self.end.subscribe()).await {
            Ok(report) => no_store(json_reply(StatusCode::OK, json!(report).to_string())),
            Err(refusal) => text(refusal.status(), &refusal.to_string()),
        }
    }

    /// Writes the confirmed settings, and ends.
    fn finish(&self, body: &[u8], source: IpAddr) -> Reply {
        let mut state = lock(&self.state);
        let settings = match state.handle_confirmation(body, source) {
            Ok(settings) => settings,
            Err(error) => return refuse(&error),
        };
        // A small file in memory, so it is written here and not in a thread of its own.
        if let Err(error) = self.spool.write(SETTINGS, settings.as_bytes()) {
            log::error!("writing the settings: {error}");
            return text(
                StatusCode::INTERNAL_SERVER_ERROR,
                "the board cannot store the settings; its log says why",
            );
        }
        state.close();
        drop(state);
        log::info!(
            "{source} has set up this board; the settings are in {}",
            self.spool.path(SETTINGS).display()
        );
        self.end.set();
        no_store(json_reply(StatusCode::OK, "{}"))
    }
}

/// Returns whether the page can test a sound card.
fn has_sound() -> bool {
    Feature::Local.in_this_build() && sound_test::is_possible()
}

fn refuse(error: &SetupError) -> Reply {
    let code = match error {
        SetupError::Json | SetupError::Form(_) => StatusCode::BAD_REQUEST,
        SetupError::OtherDraft | SetupError::Held(_) => StatusCode::CONFLICT,
        SetupError::Busy(_) => StatusCode::TOO_MANY_REQUESTS,
        SetupError::Closed => StatusCode::GONE,
    };
    text(code, &error.to_string())
}

fn status(code: u16) -> StatusCode {
    StatusCode::from_u16(code).unwrap_or(StatusCode::FORBIDDEN)
}

fn text(code: StatusCode, words: &str) -> Reply {
    let mut reply = Reply::new(whole(words.to_owned()));
    *reply.status_mut() = code;
    let headers = reply.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    no_store(reply)
}

fn no_store(mut reply: Reply) -> Reply {
    reply
        .headers_mut()
        .insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    reply
}

/// Returns the IPv4 networks of this machine, except those of tunnels, with their interfaces.
fn addresses() -> Vec<(String, InterfaceNetwork)> {
    let found = if_addrs::get_if_addrs().unwrap_or_else(|error| {
        log::warn!("the network interfaces cannot be listed: {error}");
        Vec::new()
    });
    let networks = found.into_iter().filter_map(|interface| match interface.addr {
        IfAddr::V4(v4) if !interface.is_p2p => {
            let network = InterfaceNetwork {
                address: v4.ip,
                prefix_bits: v4.prefixlen,
            };
            Some((interface.name, network))
        }
        _ => None,
    });
    networks.collect()
}

/// Returns kind, state and address of each adapter in a folder such as `/sys/class/net`.
fn networks(folder: &Path) -> Vec<Value> {
    let addresses = addresses();
    let listed = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut adapters: Vec<_> = listed.map(|entry| entry.path()).collect();
    sorting::sort(&mut adapters);
    let adapters = adapters.iter().filter_map(|path| {
        // Virtual interfaces have no device.
        path.join("device").exists().then_some(())?;
        let name = path.file_name()?.to_str()?;
        let is_wifi = path.join("wireless").exists() || path.join("phy80211").exists();
        let state = fs::read_to_string(path.join("operstate")).unwrap_or_default();
        let address = addresses.iter().find(|(of, _)| of == name);
        Some(json!({
            "kind": if is_wifi { "wifi" } else { "cable" },
            "up": state.trim() == "up",
            "address": address.map(|(_, network)| IpAddr::from(network.address).to_string()),
        }))
    });
    adapters.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Wi-Fi is told from cable by what the kernel shows of the adapter; loopback has no device.
    #[test]
    fn adapters_are_listed_with_their_kind() {
        let folder = edge_runner_http::testing::TempDir::new();
        for (name, parts) in [
            ("lo", &[][..]),
            ("eth7", &["device"]),
            ("wlan7", &["device", "phy80211"]),
        ] {
            let path = folder.path(name);
            fs::create_dir_all(&path).expect("the folder is the test's");
            for part in parts {
                fs::create_dir_all(path.join(part)).expect("the folder is the test's");
            }
            let state = if name == "eth7" { "up\n" } else { "dormant\n" };
            fs::write(path.join("operstate"), state).expect("the folder is the test's");
        }
        assert_eq!(
            networks(&folder.0),
            [
                json!({"kind": "cable", "up": true, "address": null}),
                json!({"kind": "wifi", "up": false, "address": null}),
            ]
        );
    }
}
