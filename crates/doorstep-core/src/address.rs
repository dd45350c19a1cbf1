//! Where a request may go. A tenant names the target, so the engine must not be talked into reaching what only the
//! engine can reach: its own machine, the operator's network, a cloud's metadata service.
//!
//! The address that is really connected to decides. A URL is judged when it is saved, so that a person hears of a
//! mistake at once, and the resolved addresses are judged again before every connection, so that a name cannot change
//! its mind in between.

mod allow;
mod nat64;
mod ranges;
mod target;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use thiserror::Error;

pub use allow::{ALLOWED_RANGES_MAX, RuleFault, ranges_of};
pub use ranges::Denial;
pub use target::{TargetHost, TargetUrl, URL_BYTES_MAX, UrlFault};

use nat64::Nat64;
use target::Exception;

/// What the operator of this deployment permits. The default permits public addresses over `https` and nothing else.
///
/// These are rules of a deployment, never of a tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressRules {
    allow: Vec<IpNet>,
    nat64: Option<Nat64>,
    own: Vec<IpAddr>,
}

/// What the rules say of one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A public address: `https` may go there.
    Allowed,
    /// In a range that the operator allowed: `http` and any port may go there too.
    AllowedByOperator,
    Denied(Denial),
}

/// Why no connection is made, for the operator. A tenant is told only that the target is blocked: which of these it was
/// would map the operator's network for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    #[error("the host resolves to no address; check the name's DNS records")]
    NoAddress,
    #[error(
        "the host resolves to {address}, which is in {denial}; add its range to DOORSTEP_ALLOW_TARGETS to permit it"
    )]
    Forbidden { address: IpAddr, denial: Denial },
    #[error("the host resolves to {address}, and http:// needs a range of DOORSTEP_ALLOW_TARGETS; use https://")]
    PlainHttp { address: IpAddr },
    #[error("the host resolves to {address}, and port {port} needs a range of DOORSTEP_ALLOW_TARGETS; use 443")]
    Port { address: IpAddr, port: u16 },
}

impl AddressRules {
    /// Also permits the ranges of `list` (`DOORSTEP_ALLOW_TARGETS`): CIDRs or single addresses, separated by commas or
    /// spaces.
    pub fn allowing(mut self, list: &str) -> Result<Self, RuleFault> {
        self.allow.extend(allow::parse_list(list)?);
        if self.allow.len() > ALLOWED_RANGES_MAX {
            return Err(RuleFault::TooMany);
        }
        Ok(self)
    }

    /// For a network behind NAT64: addresses under `prefix` are judged by the IPv4 address inside them. Without this they
    /// are denied where the prefix is the well-known one, and cannot be told from any other IPv6 address where it is not.
    pub fn behind_nat64(mut self, prefix: &str) -> Result<Self, RuleFault> {
        self.nat64 = Some(Nat64::parse(prefix)?);
        Ok(self)
    }

    /// Also denies the addresses that this machine itself has, public ones included.
    pub fn denying_own(mut self, addresses: impl IntoIterator<Item = IpAddr>) -> Self {
        self.own.extend(addresses.into_iter().map(|address| address.to_canonical()));
        self
    }

    /// Whether a request may be sent to `address`. The operator's ranges are asked first.
    pub fn judge(&self, address: IpAddr) -> Verdict {
        // ::ffff:10.0.0.1 is 10.0.0.1 to the kernel, so it is to us.
        let address = address.to_canonical();
        if self.allows(address) || other_localhost(address).is_some_and(|other| self.allows(other)) {
            return Verdict::AllowedByOperator;
        }
        if self.own.contains(&address) {
            return Verdict::Denied(Denial { range: address.into(), what: "an address of this machine" });
        }
        match self.nat64.as_ref().and_then(|nat64| nat64.embedded(address)) {
            Some(inside) => self.judge(IpAddr::V4(inside)),
            None => ranges::denial(address).map_or(Verdict::Allowed, Verdict::Denied),
        }
    }

    /// Whether `target` may be connected to, given every address that its host resolved to. One forbidden address is
    /// enough to refuse: an answer that mixes public and private addresses is an attack or a mistake.
    pub fn permit(&self, target: &TargetUrl, addresses: &[IpAddr]) -> Result<(), Refusal> {
        if addresses.is_empty() {
            return Err(Refusal::NoAddress);
        }
        addresses.iter().try_for_each(|address| self.permit_one(target, *address))
    }

    fn permit_one(&self, target: &TargetUrl, address: IpAddr) -> Result<(), Refusal> {
        match (self.judge(address), target.exception()) {
            (Verdict::Denied(denial), _) => Err(Refusal::Forbidden { address, denial }),
            (Verdict::Allowed, Some(Exception::PlainHttp)) => Err(Refusal::PlainHttp { address }),
            (Verdict::Allowed, Some(Exception::Port(port))) => Err(Refusal::Port { address, port }),
            (Verdict::Allowed, None) | (Verdict::AllowedByOperator, _) => Ok(()),
        }
    }

    fn allows(&self, address: IpAddr) -> bool {
        self.allow.iter().any(|range| range.contains(&address))
    }

    /// Whether some address, yet to be resolved, could be one that the operator allowed.
    pub fn makes_exceptions(&self) -> bool {
        !self.allow.is_empty()
    }
}

/// `localhost` is 127.0.0.1 and ::1 on most machines. Who allows one of them means the name, and would see it refused
/// for the other.
fn other_localhost(address: IpAddr) -> Option<IpAddr> {
    const V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
    const V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);
    match address {
        V4 => Some(V6),
        V6 => Some(V4),
        IpAddr::V4(_) | IpAddr::V6(_) => None,
    }
}

#[cfg(test)]
mod tests;
