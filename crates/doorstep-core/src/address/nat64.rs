//! IPv4 addresses inside IPv6 ones, where the network translates between them (RFC 6052).

use std::net::{IpAddr, Ipv4Addr};

use ipnet::Ipv6Net;

use super::allow::{RuleFault, shortened};

/// The prefix under which the network embeds IPv4 addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Nat64(Ipv6Net);

impl Nat64 {
    pub(super) fn parse(prefix: &str) -> Result<Self, RuleFault> {
        let fault = || RuleFault::NotANat64Prefix(shortened(prefix));
        let net: Ipv6Net = prefix.trim().parse().map_err(|_| fault())?;
        let embeds = matches!(net.prefix_len(), 32 | 40 | 48 | 56 | 64 | 96) && net.trunc() == net;
        if embeds { Ok(Self(net)) } else { Err(fault()) }
    }

    /// The IPv4 address that `address` leads to, if it lies under the prefix.
    pub(super) fn embedded(self, address: IpAddr) -> Option<Ipv4Addr> {
        /// Kept free between the two halves of an address; the four bytes skip it.
        const RESERVED: usize = 8;
        let IpAddr::V6(address) = address else { return None };
        if !self.0.contains(&address) {
            return None;
        }
        let from = usize::from(self.0.prefix_len() / 8);
        let bytes = address.octets();
        let mut inside = (from..bytes.len()).filter(|at| *at != RESERVED).filter_map(|at| bytes.get(at).copied());
        Some(Ipv4Addr::new(inside.next()?, inside.next()?, inside.next()?, inside.next()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of RFC 6052, section 2.4.
    #[test]
    fn the_examples_of_the_rfc_are_read() {
        for (prefix, address) in [
            ("2001:db8::/32", "2001:db8:c000:221::"),
            ("2001:db8:100::/40", "2001:db8:1c0:2:21::"),
            ("2001:db8:122::/48", "2001:db8:122:c000:2:2100::"),
            ("2001:db8:122:300::/56", "2001:db8:122:3c0:0:221::"),
            ("2001:db8:122:344::/64", "2001:db8:122:344:c0:2:2100::"),
            ("2001:db8:122:344::/96", "2001:db8:122:344::192.0.2.33"),
            ("64:ff9b::/96", "64:ff9b::192.0.2.33"),
        ] {
            let nat64 = Nat64::parse(prefix).unwrap();
            assert_eq!(nat64.embedded(address.parse().unwrap()), Some(Ipv4Addr::new(192, 0, 2, 33)), "{address}");
            assert_eq!(nat64.embedded("2a00::1".parse().unwrap()), None);
            assert_eq!(nat64.embedded("192.0.2.33".parse().unwrap()), None);
        }
    }

    #[test]
    fn a_prefix_that_cannot_embed_is_refused() {
        for prefix in ["64:ff9b::/95", "64:ff9b::/128", "64:ff9b::1/96", "64:ff9b::", "10.0.0.0/8", "", "nat64"] {
            assert_eq!(Nat64::parse(prefix), Err(RuleFault::NotANat64Prefix(prefix.to_owned())), "{prefix}");
        }
    }
}
