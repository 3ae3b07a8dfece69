//! The text of an ICE diagnosis: one sentence per failed connection, and the list of pairs.
//!
//! In: an [`IceAttempt`]. Out: text. The sentence describes a peer's addresses by type and network
//! only; addresses of this machine may appear.

use std::fmt::{self, Display, Formatter};
use std::net::IpAddr;

use super::{IceAttempt, IceFailure};
use crate::address_scope::AddressScope;
use crate::sorting;

/// The most local addresses in a sentence.
const LOCALS_MAX: usize = 3;

/// Displays every pair with its counts.
pub(super) struct PairsDisplay<'a>(pub &'a IceAttempt);

impl Display for PairsDisplay<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let tried = self.0;
        for (kind, address) in &tried.candidates {
            write!(f, "candidate {} {address}; ", kind.name())?;
        }
        for pair in &tried.pairs {
            write!(
                f,
                "{} -> {} {}: {} sent, {} answered, {} received, {} replied; ",
                pair.local,
                tried.candidate_kind(pair.remote).name(),
                pair.remote,
                pair.sent,
                pair.answered,
                pair.received,
                pair.replied
            )?;
        }
        write!(
            f,
            "{} checks between further addresses, {} refused, DTLS records: {} in, {} out",
            tried.unlisted_checks, tried.rejected_checks, tried.records_in, tried.records_out
        )
    }
}

impl Display for IceAttempt {
    /// Writes the candidates, the checks, and the explanation.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.fmt_candidates(f)?;
        f.write_str("; ")?;
        self.fmt_checks(f)?;
        f.write_str(": ")?;
        self.fmt_explanation(f)
    }
}

impl IceAttempt {
    fn fmt_candidates(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let total = self.candidates.len() as u32 + self.mdns_candidates + self.unusable_candidates;
        if total == 0 {
            return f.write_str("the client named no candidate");
        }
        write!(f, "{} of the client", count_noun(total, "candidate"))?;
        let mut groups: Vec<(&str, &str, u32)> = Vec::new();
        for (kind, address) in &self.candidates {
            let network = describe_network(address.ip());
            match groups
                .iter_mut()
                .find(|group| group.0 == kind.name() && group.1 == network)
            {
                Some(group) => group.2 += 1,
                None => groups.push((kind.name(), network, 1)),
            }
        }
        let known = groups
            .iter()
            .map(|(kind, network, count)| format!("{count} {kind} {}", network));
        let hidden =
            (self.mdns_candidates > 0).then(|| format!("{} ignored", count_noun(self.mdns_candidates, "mDNS name")));
        let unusable = (self.unusable_candidates > 0)
            .then(|| format!("{} without a usable UDP address", self.unusable_candidates));
        let parts: Vec<String> = known.chain(hidden).chain(unusable).collect();
        write!(f, " ({})", parts.join(", "))
    }

    fn fmt_checks(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let sent = self.sum(|pair| pair.sent);
        let received = self.sum(|pair| pair.received);
        if sent == 0 {
            f.write_str("no check sent")?;
        } else {
            let towards = self.pairs.iter().filter(|pair| pair.sent > 0);
            let mut remotes: Vec<_> = towards.map(|pair| pair.remote).collect();
            sorting::sort(&mut remotes);
            remotes.dedup();
            let locals = self.local_addresses();
            let more = if locals.len() > LOCALS_MAX { " and others" } else { "" };
            let names: Vec<String> = locals.iter().take(LOCALS_MAX).map(IpAddr::to_string).collect();
            write!(
                f,
                "{} sent to {} from {}{more}, {} answered",
                count_noun(sent, "check"),
                count_noun(remotes.len() as u32, "address"),
                names.join(" and "),
                self.sum(|pair| pair.answered)
            )?;
        }
        write!(f, ", {received} received")?;
        if self.unmapped_answers > 0 {
            write!(f, ", {} of another kind", count_noun(self.unmapped_answers, "answer"))?;
        }
        if self.rejected_checks > 0 {
            write!(f, ", {} signed for another connection", self.rejected_checks)?;
        }
        if self.ice_connected {
            write!(
                f,
                ", then {} of the handshake in, {} out",
                count_noun(self.records_in, "record"),
                self.records_out
            )?;
        }
        Ok(())
    }

    fn fmt_explanation(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let port = self.port;
        match self.cause() {
            IceFailure::NothingReceived => write!(
                f,
                "nothing came at all: the client did not get its answer, or UDP port {port} is closed to it"
            ),
            IceFailure::OnlyMdns => write!(
                f,
                "its addresses are hidden, and its own checks do not reach UDP port {port}: a firewall, or a network that \
                 keeps its machines apart (guest Wi-Fi)"
            ),
            IceFailure::NoUsableCandidate => write!(
                f,
                "the client named no usable address, and none of its checks arrived on UDP port {port}: probably a \
                 firewall drops them, or the client is in another network"
            ),
            IceFailure::NoPair => f.write_str(
                "this machine and the client share no kind of address (IPv4, IPv6), or a path between them is missing",
            ),
            IceFailure::Unanswered if self.only_loopback() => write!(
                f,
                "the client offers loopback addresses only, so it runs on this machine, and a firewall keeps UDP port \
                 {port} from it"
            ),
            IceFailure::Unanswered => write!(
                f,
                "probably a firewall drops UDP port {port}, or the caller is in another network: set a TURN server with \
                 --ice-servers"
            ),
            IceFailure::UnmappedAnswers => f.write_str(
                "the client answered, and left XOR-MAPPED-ADDRESS out, without which no answer counts (RFC 8445 section \
                 7.3.1.3; FFmpeg's WHIP muxer does so): nothing here can mend that",
            ),
            IceFailure::OneWay => write!(
                f,
                "the client reaches this machine, and nothing of this machine reaches the client: a firewall lets UDP port \
                 {port} in and not out, or answers leave by another interface"
            ),
            IceFailure::OtherCredentials => f.write_str("the client uses another answer than the one it was given here"),
            IceFailure::NotNominated => f.write_str("the path works, and the client did not use it: it went away, or chose no pair"),
            // This end is the DTLS client.
            IceFailure::NoHandshake if self.records_out > 0 => f.write_str(
                "ICE is up, and the client did not answer the handshake that was begun here: it went away, or a firewall \
                 drops DTLS",
            ),
            IceFailure::NoHandshake => {
                f.write_str("ICE is up, and the client did not begin its handshake: it went away, or a firewall drops DTLS")
            }
            IceFailure::HandshakeIncomplete => f.write_str(
                "ICE is up, and the handshake did not end: large packets get lost on the way (MTU), or the client does not \
                 take the certificate",
            ),
            IceFailure::HandshakeFailed(refusal) => write!(f, "ICE is up, and the handshake failed: {refusal}"),
        }?;
        f.write_str("; see docs/operations.md, \"When something is wrong\"")
    }

    fn only_loopback(&self) -> bool {
        self.candidates.iter().all(|(_, address)| address.ip().is_loopback())
    }
}

/// Names the network of an address. The log must not contain more of a peer's address.
fn describe_network(address: IpAddr) -> &'static str {
    match AddressScope::of(address) {
        AddressScope::Loopback => "on loopback",
        AddressScope::LinkLocal => "on a link without addresses",
        AddressScope::Private | AddressScope::Shared => "on a private network",
        AddressScope::Public => "on a public network",
    }
}

fn count_noun(count: u32, noun: &str) -> String {
    let ending = match (count, noun) {
        (1, _) => "",
        (_, "address") => "es",
        _ => "s",
    };
    format!("{count} {noun}{ending}")
}
