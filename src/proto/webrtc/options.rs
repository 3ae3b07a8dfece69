//! The options of WebRTC.
//!
//! In: the typed options. Out: STUN and TURN servers, the address for microcontrollers, and
//! warnings. Rejects servers that cannot be parsed, addresses of more than one machine, and
//! `--embedded` without an address of this machine. Source: `docs/spec/signalling.md`.

use std::net::{IpAddr, Ipv4Addr};

use super::ice::{self, IceServer};
use crate::config::Config;
use crate::features::Feature;
use crate::limits::{ICE_ADDRESSES_MAX, OPUS_COMPLEXITY_DEFAULT, OPUS_COMPLEXITY_MAX};
use crate::options::{Env, Expected, Flag, FlagKind, UsageError, flag, number, push, put};

/// The heading of the options in the help.
const WEBRTC: &str = "WebRTC";

/// The typed options.
#[derive(Debug, Default)]
pub struct WebRtcOptions {
    pub rtc_port: Option<u16>,
    pub ice_servers: Vec<String>,
    pub ice_addresses: Vec<IpAddr>,
    pub embedded: bool,
    pub opus_complexity: Option<u8>,
}

const fn webrtc<T>(long: &'static str, kind: FlagKind<T>, help: &'static str) -> Flag<T> {
    flag(long, kind, WEBRTC, help).needs(&[Feature::WebRtc])
}

impl<T: AsMut<WebRtcOptions>> Flag<T> {
    /// The options of WebRTC.
    pub const WEBRTC: &'static [Flag<T>] = &[
        webrtc(
            "--rtc-port",
            FlagKind::Value("N", |args: &mut T, text| {
                put(&mut args.as_mut().rtc_port, number(&text, 0, u16::MAX)?)
            }),
            "UDP port that all WebRTC sessions share. 0 picks a free port. [default: the number of the HTTP port]",
        ),
        webrtc(
            "--ice-servers",
            FlagKind::List("SERVER", |args: &mut T, text| {
                push(&mut args.as_mut().ice_servers, text)
            }),
            "STUN and TURN servers for the runner and its clients: URLs, or JSON objects with `urls`, `username` and \
             `credential`.",
        ),
        webrtc(
            "--ice-address",
            FlagKind::Repeatable("ADDR", |args: &mut T, text| {
                push(&mut args.as_mut().ice_addresses, ice_address(&text)?)
            }),
            "Additional address to offer to clients, such as the public address of a NAT. Repeatable.",
        ),
        webrtc(
            "--embedded",
            FlagKind::Switch(|args: &mut T| args.as_mut().embedded = true),
            "Offer every client only the IPv4 address of `--host`, for microcontrollers that read a single address. \
             Without it, a device is offered the address at which it reached the runner, and a browser all addresses.",
        ),
        webrtc(
            "--opus-complexity",
            FlagKind::Value("N", |args: &mut T, text| {
                put(
                    &mut args.as_mut().opus_complexity,
                    number(&text, 0, OPUS_COMPLEXITY_MAX)?,
                )
            }),
            "Complexity of the Opus encoder, 0 to 10. Lower values need less CPU. [default: 3]",
        )
        .optional_in_variables(),
    ];
}

// The help contains this default.
const _: () = assert!(OPUS_COMPLEXITY_DEFAULT == 3);

fn ice_address(text: &str) -> Result<IpAddr, Expected> {
    let usable = |address: &IpAddr| match address {
        IpAddr::V4(v4) => !v4.is_unspecified() && !v4.is_multicast() && !v4.is_broadcast(),
        IpAddr::V6(v6) => !v6.is_unspecified() && !v6.is_multicast(),
    };
    let address = text.parse().ok().filter(usable);
    address.ok_or_else(|| "the IP address of one machine".into())
}

impl WebRtcOptions {
    /// Reads the options into the configuration. `host` is the text of `--host`.
    ///
    /// # Errors
    /// [`UsageError`] that names the option.
    pub fn resolve(
        &self,
        host: Option<&str>,
        env: &Env<'_>,
        warnings: &mut Vec<String>,
        config: &mut Config,
    ) -> Result<(), UsageError> {
        config.embedded = embedded(self, host, env, warnings)?;
        config.ice_servers = ice_servers(self)?;
        config.ice_addresses.clone_from(&self.ice_addresses);
        config.rtc_port = self.rtc_port;
        config.opus_complexity = self.opus_complexity.unwrap_or(OPUS_COMPLEXITY_DEFAULT);
        Ok(())
    }
}

/// Resolves `--ice-servers`, and rejects too many addresses.
fn ice_servers(options: &WebRtcOptions) -> Result<Vec<IceServer>, UsageError> {
    if options.ice_addresses.len() > ICE_ADDRESSES_MAX {
        return Err(UsageError::Combination(format!(
            "`--ice-address` can be given at most {ICE_ADDRESSES_MAX} times"
        )));
    }
    ice::parse(options.ice_servers.iter().map(String::as_str))
        .map_err(|error| UsageError::Combination(format!("`--ice-servers`: {error}")))
}

/// Resolves `--embedded` to the only address that clients are offered. Microcontrollers read IPv4
/// only, use one candidate, and cannot resolve names.
fn embedded(
    options: &WebRtcOptions,
    host: Option<&str>,
    env: &Env<'_>,
    warnings: &mut Vec<String>,
) -> Result<Option<Ipv4Addr>, UsageError> {
    if !options.embedded {
        return Ok(None);
    }
    let reject = |why: &str| {
        Err(UsageError::Combination(format!(
            "`--embedded` needs `--host` with an IPv4 address of this machine, but {why}; {}",
            list_addresses(&env.addresses)
        )))
    };
    let Some(text) = host else {
        return reject("`--host` is not set");
    };
    let address = match text.parse::<IpAddr>() {
        Ok(IpAddr::V4(address)) => address,
        Ok(IpAddr::V6(_)) => return reject(&format!("`{text}` is an IPv6 address")),
        Err(_) => return reject(&format!("`{text}` is not an address")),
    };
    if address.is_unspecified() {
        return reject("devices cannot connect to 0.0.0.0");
    }
    if address.is_loopback() {
        warnings.push(format!(
            "`--embedded` with {address}: only clients on this machine can connect"
        ));
    } else if !env.addresses.contains(&IpAddr::V4(address)) {
        return reject(&format!("no interface has {address}"));
    }
    if !options.ice_addresses.is_empty() {
        warnings.push(format!(
            "`--ice-address` is not offered to microcontrollers: they use one address, {address}"
        ));
    }
    Ok(Some(address))
}

fn list_addresses(addresses: &[IpAddr]) -> String {
    let list: Vec<_> = addresses
        .iter()
        .filter(|address| address.is_ipv4() && !address.is_loopback())
        .map(IpAddr::to_string)
        .collect();
    match list.is_empty() {
        true => "this machine has only 127.0.0.1".into(),
        false => format!("this machine has {}", list.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ice_addresses_are_unicast() {
        for good in ["203.0.113.7", "2001:db8::1", "127.0.0.1"] {
            assert!(ice_address(good).is_ok(), "{good}");
        }
        for bad in [
            "0.0.0.0",
            "::",
            "224.0.0.1",
            "255.255.255.255",
            "ff02::1",
            "host",
            "1.2.3",
            "1.2.3.4:5",
        ] {
            assert!(ice_address(bad).is_err(), "{bad}");
        }
    }
}
