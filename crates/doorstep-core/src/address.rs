//! Where a request may go. A tenant names the target, so the engine must not be talked into reaching what only the
//! engine can reach: its own machine, the operator's network, a cloud's metadata service.
//!
//! The address that is really connected to decides. A URL is judged when it is saved, so that a person hears of a
//! mistake at once, and the resolved addresses are judged again before every connection, so that a name cannot change
//! its mind in between.

mod allow;
mod nat64;
mod ranges;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

pub use allow::{ALLOWED_RANGES_MAX, RuleFault};
pub use ranges::Denial;

use nat64::Nat64;

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

    fn allows(&self, address: IpAddr) -> bool {
        self.allow.iter().any(|range| range.contains(&address))
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
