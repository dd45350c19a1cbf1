//! How many of the places one peer may have.

use std::net::{IpAddr, Ipv6Addr};

use super::ConnectionLimits;
use crate::shares::{Share, Shares};

/// Whoever holds a network of IPv6 has all its addresses: they are counted together.
const V6_NETWORK: u128 = !(u64::MAX as u128);

#[derive(Debug, Default)]
pub(super) struct Peers(Shares<IpAddr>);

/// Leave to stay connected.
#[derive(Debug)]
pub(super) enum Stay {
    Counted(#[expect(dead_code, reason = "it is held, and given back when it is dropped")] Share<IpAddr>),
    /// Many clients come from there, and they are not told apart before they have sent a request.
    Crowd,
}

impl Peers {
    /// `None`: this peer has its share.
    pub(super) fn admit(&self, peer: IpAddr, limits: &ConnectionLimits) -> Option<Stay> {
        let peer = peer.to_canonical();
        if limits.proxies.trust(peer) || (limits.loopback_is_a_crowd && peer.is_loopback()) {
            return Some(Stay::Crowd);
        }
        self.0.take(counted_as(peer), limits.per_peer_max).map(Stay::Counted)
    }
}

/// An address, or the network that it belongs to.
pub(crate) fn counted_as(peer: IpAddr) -> IpAddr {
    match peer {
        IpAddr::V4(_) => peer,
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & V6_NETWORK).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::Proxies;

    fn staying(limits: &ConnectionLimits, peers: &[&str]) -> Vec<bool> {
        let known = Peers::default();
        let stays: Vec<_> = peers.iter().map(|peer| known.admit(peer.parse().unwrap(), limits)).collect();
        stays.iter().map(Option::is_some).collect()
    }

    #[test]
    fn a_peer_is_an_address_or_a_network_of_ipv6() {
        let limits = ConnectionLimits { per_peer_max: 1, ..ConnectionLimits::default() };
        for (peers, expected) in [
            (["192.0.2.1", "192.0.2.1"], [true, false]),
            (["192.0.2.1", "192.0.2.2"], [true, true]),
            (["192.0.2.1", "::ffff:192.0.2.1"], [true, false]),
            (["2001:db8::1", "2001:db8::ffff:0:0:2"], [true, false]),
            (["2001:db8::1", "2001:db8:0:1::1"], [true, true]),
        ] {
            assert_eq!(staying(&limits, &peers), expected, "{peers:?}");
        }
    }

    #[test]
    fn whom_many_clients_come_through_is_not_counted() {
        let proxies = Proxies::parse("10.0.0.0/24").unwrap();
        let limits = ConnectionLimits { per_peer_max: 1, proxies, ..ConnectionLimits::default() };
        for (peer, again) in
            [("10.0.0.1", true), ("::ffff:10.0.0.1", true), ("10.0.1.1", false), ("127.0.0.1", true), ("::1", true)]
        {
            assert_eq!(staying(&limits, &[peer, peer]), [true, again], "{peer}");
        }
        let counting = ConnectionLimits { loopback_is_a_crowd: false, ..limits };
        assert_eq!(staying(&counting, &["127.0.0.1", "127.0.0.1"]), [true, false]);
    }
}
