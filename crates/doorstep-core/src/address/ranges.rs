//! The addresses that are not public, from the IANA special-purpose registries and the clouds' own documentation.
//!
//! A library's idea of "global" is not relied on: they differ, and none of them knows all of these.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// The range that forbids an address, and what it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Denial {
    pub range: IpNet,
    pub what: &'static str,
}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.range, self.what)
    }
}

/// The first range that holds `address`; `None` for a public one. A mapped address must be made IPv4 before.
pub(super) fn denial(address: IpAddr) -> Option<Denial> {
    match address {
        IpAddr::V4(v4) => {
            let (range, what) = DENIED_V4.iter().find(|(range, _)| range.contains(&v4))?;
            Some(Denial { range: IpNet::V4(*range), what })
        }
        IpAddr::V6(v6) => {
            let (range, what) = DENIED_V6.iter().find(|(range, _)| range.contains(&v6))?;
            Some(Denial { range: IpNet::V6(*range), what })
        }
    }
}

const fn v4(octets: [u8; 4], bits: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::from_octets(octets), bits)
}

const fn v6(segments: [u16; 8], bits: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::from_segments(segments), bits)
}

const DENIED_V4: [(Ipv4Net, &str); 19] = [
    (v4([0, 0, 0, 0], 8), "this network"),
    (v4([10, 0, 0, 0], 8), "private network"),
    // Holds Alibaba's metadata service, 100.100.100.200.
    (v4([100, 64, 0, 0], 10), "carrier-grade NAT"),
    (v4([127, 0, 0, 0], 8), "loopback"),
    // Holds the metadata services of most clouds, 169.254.169.254, and of ECS, 169.254.170.2.
    (v4([169, 254, 0, 0], 16), "link-local and cloud metadata"),
    (v4([172, 16, 0, 0], 12), "private network"),
    // Holds Oracle's metadata service, 192.0.0.192.
    (v4([192, 0, 0, 0], 24), "protocol assignments"),
    (v4([192, 0, 2, 0], 24), "documentation"),
    (v4([192, 31, 196, 0], 24), "AS112"),
    (v4([192, 52, 193, 0], 24), "AMT"),
    (v4([192, 88, 99, 0], 24), "6to4 relays"),
    (v4([192, 168, 0, 0], 16), "private network"),
    (v4([192, 175, 48, 0], 24), "AS112"),
    (v4([198, 18, 0, 0], 15), "benchmarking"),
    (v4([198, 51, 100, 0], 24), "documentation"),
    (v4([203, 0, 113, 0], 24), "documentation"),
    (v4([224, 0, 0, 0], 4), "multicast"),
    (v4([240, 0, 0, 0], 4), "reserved and broadcast"),
    // A public address that only Azure's own machines reach: no registry lists it.
    (v4([168, 63, 129, 16], 32), "Azure WireServer"),
];

/// The first match names the range, so the three that leave only 2000::/3 come last.
const DENIED_V6: [(Ipv6Net, &str); 20] = [
    (v6([0, 0, 0, 0, 0, 0, 0, 0], 128), "unspecified"),
    (v6([0, 0, 0, 0, 0, 0, 0, 1], 128), "loopback"),
    (v6([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 96), "NAT64"),
    (v6([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48), "NAT64 for local use"),
    (v6([0, 0, 0, 0, 0, 0, 0, 0], 8), "IPv4 inside IPv6, reserved"),
    (v6([0x100, 0, 0, 0, 0, 0, 0, 0], 64), "discard only"),
    (v6([0x100, 0, 0, 1, 0, 0, 0, 0], 64), "dummy prefix"),
    // Teredo, ORCHID, benchmarking and more.
    (v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 23), "protocol assignments, Teredo"),
    (v6([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32), "documentation"),
    (v6([0x2002, 0, 0, 0, 0, 0, 0, 0], 16), "6to4"),
    (v6([0x2620, 0x4f, 0x8000, 0, 0, 0, 0, 0], 48), "AS112"),
    (v6([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20), "documentation"),
    (v6([0x5f00, 0, 0, 0, 0, 0, 0, 0], 16), "segment routing"),
    // Holds the metadata services of AWS, fd00:ec2::254, and Google, fd20:ce::254.
    (v6([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7), "private network and cloud metadata"),
    (v6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10), "link-local"),
    (v6([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10), "site-local"),
    (v6([0xff00, 0, 0, 0, 0, 0, 0, 0], 8), "multicast"),
    (v6([0, 0, 0, 0, 0, 0, 0, 0], 3), "not global unicast"),
    (v6([0x4000, 0, 0, 0, 0, 0, 0, 0], 2), "not global unicast"),
    (v6([0x8000, 0, 0, 0, 0, 0, 0, 0], 1), "not global unicast"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn denied_as(address: &str) -> Option<String> {
        denial(address.parse().unwrap()).map(|denial| denial.range.to_string())
    }

    /// Each range with its first and last address, and the public neighbours just outside where there are any.
    #[test]
    fn every_range_is_denied_from_its_first_address_to_its_last_and_no_further() {
        for (range, first, last, before, after) in [
            ("0.0.0.0/8", "0.0.0.0", "0.255.255.255", None, Some("1.0.0.0")),
            ("10.0.0.0/8", "10.0.0.0", "10.255.255.255", Some("9.255.255.255"), Some("11.0.0.0")),
            ("100.64.0.0/10", "100.64.0.0", "100.127.255.255", Some("100.63.255.255"), Some("100.128.0.0")),
            ("127.0.0.0/8", "127.0.0.0", "127.255.255.255", Some("126.255.255.255"), Some("128.0.0.0")),
            ("168.63.129.16/32", "168.63.129.16", "168.63.129.16", Some("168.63.129.15"), Some("168.63.129.17")),
            ("169.254.0.0/16", "169.254.0.0", "169.254.255.255", Some("169.253.255.255"), Some("169.255.0.0")),
            ("172.16.0.0/12", "172.16.0.0", "172.31.255.255", Some("172.15.255.255"), Some("172.32.0.0")),
            ("192.0.0.0/24", "192.0.0.0", "192.0.0.255", Some("191.255.255.255"), Some("192.0.1.0")),
            ("192.0.2.0/24", "192.0.2.0", "192.0.2.255", Some("192.0.1.255"), Some("192.0.3.0")),
            ("192.31.196.0/24", "192.31.196.0", "192.31.196.255", Some("192.31.195.255"), Some("192.31.197.0")),
            ("192.52.193.0/24", "192.52.193.0", "192.52.193.255", Some("192.52.192.255"), Some("192.52.194.0")),
            ("192.88.99.0/24", "192.88.99.0", "192.88.99.255", Some("192.88.98.255"), Some("192.88.100.0")),
            ("192.168.0.0/16", "192.168.0.0", "192.168.255.255", Some("192.167.255.255"), Some("192.169.0.0")),
            ("192.175.48.0/24", "192.175.48.0", "192.175.48.255", Some("192.175.47.255"), Some("192.175.49.0")),
            ("198.18.0.0/15", "198.18.0.0", "198.19.255.255", Some("198.17.255.255"), Some("198.20.0.0")),
            ("198.51.100.0/24", "198.51.100.0", "198.51.100.255", Some("198.51.99.255"), Some("198.51.101.0")),
            ("203.0.113.0/24", "203.0.113.0", "203.0.113.255", Some("203.0.112.255"), Some("203.0.114.0")),
            ("224.0.0.0/4", "224.0.0.0", "239.255.255.255", Some("223.255.255.255"), None),
            ("240.0.0.0/4", "240.0.0.0", "255.255.255.255", None, None),
            ("::/8", "::2", "ff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", None, None),
            ("100::/64", "100::", "100::ffff:ffff:ffff:ffff", None, None),
            ("100:0:0:1::/64", "100:0:0:1::", "100:0:0:1:ffff:ffff:ffff:ffff", None, None),
            ("2001::/23", "2001::", "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff", Some("2000:ffff::"), Some("2001:200::")),
            (
                "2001:db8::/32",
                "2001:db8::",
                "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff",
                Some("2001:db7:ffff:ffff:ffff:ffff:ffff:ffff"),
                Some("2001:db9::"),
            ),
            (
                "2002::/16",
                "2002::",
                "2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
                Some("2001:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
                Some("2003::"),
            ),
            (
                "2620:4f:8000::/48",
                "2620:4f:8000::",
                "2620:4f:8000:ffff:ffff:ffff:ffff:ffff",
                Some("2620:4f:7fff:ffff:ffff:ffff:ffff:ffff"),
                Some("2620:4f:8001::"),
            ),
            (
                "3fff::/20",
                "3fff::",
                "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff",
                Some("3ffe:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
                Some("3fff:1000::"),
            ),
            ("5f00::/16", "5f00::", "5f00:ffff:ffff:ffff:ffff:ffff:ffff:ffff", None, None),
            ("fc00::/7", "fc00::", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", None, None),
            ("fe80::/10", "fe80::", "febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff", None, None),
            ("fec0::/10", "fec0::", "feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", None, None),
            ("ff00::/8", "ff00::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", None, None),
            // What is left outside 2000::/3.
            ("::/3", "100:0:0:2::", "1fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", None, Some("2000::")),
            (
                "4000::/2",
                "4000::",
                "7fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
                Some("3fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
                None,
            ),
            ("8000::/1", "8000::", "fbff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", None, None),
        ] {
            assert_eq!(denied_as(first).as_deref(), Some(range), "{first}");
            assert_eq!(denied_as(last).as_deref(), Some(range), "{last}");
            for outside in [before, after].into_iter().flatten() {
                assert_eq!(denied_as(outside), None, "{outside}");
            }
        }
    }

    #[test]
    fn every_address_that_opens_something_is_denied() {
        for address in [
            "169.254.169.254",
            "169.254.170.2",
            "169.254.170.23",
            "100.100.100.200",
            "192.0.0.192",
            "168.63.129.16",
            "fd00:ec2::254",
            "fd20:ce::254",
            "::",
            "::1",
            "::127.0.0.1",
            "::ffff:127.0.0.1",
            "::ffff:0:127.0.0.1",
            "::5efe:127.0.0.1",
            "64:ff9b::127.0.0.1",
            "64:ff9b::8.8.8.8",
            "64:ff9b:1::7f00:1",
            "2001::1",
            "2002:7f00:1::",
            "fe80::1",
            "255.255.255.255",
        ] {
            assert!(denied_as(address).is_some(), "{address}");
        }
    }

    #[test]
    fn public_addresses_are_not_denied() {
        for address in
            ["1.1.1.1", "8.8.8.8", "168.63.129.17", "2606:4700:4700::1111", "2001:4860:4860::8888", "2a00::1"]
        {
            assert_eq!(denied_as(address), None, "{address}");
        }
    }

    #[test]
    fn no_row_has_bits_behind_its_prefix() {
        assert!(DENIED_V4.iter().all(|(range, _)| range.trunc() == *range));
        assert!(DENIED_V6.iter().all(|(range, _)| range.trunc() == *range));
    }
}
