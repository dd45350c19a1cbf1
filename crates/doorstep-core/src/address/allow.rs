//! The operator's list of ranges that may be delivered to although they are not public.

use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net};
use thiserror::Error;

/// So many ranges may be allowed: every connection compares its address with each.
pub const ALLOWED_RANGES_MAX: usize = 256;

/// What is wrong with the operator's rules.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RuleFault {
    #[error(
        "`{0}` is neither an address nor a CIDR; write 10.1.2.3, 10.0.0.0/8 or fd00::/8. A name is permitted by the range \
         that it resolves to"
    )]
    NotARange(String),
    #[error("`{written}` has bits set behind its prefix; write {range} for the range, or {host} for that one address")]
    BitsBehindPrefix { written: String, range: IpNet, host: IpAddr },
    #[error("more than {ALLOWED_RANGES_MAX} ranges are allowed; join neighbours into wider ones")]
    TooMany,
    #[error("`{0}` is not a NAT64 prefix; it is an IPv6 CIDR of length 32, 40, 48, 56, 64 or 96, such as 64:ff9b::/96")]
    NotANat64Prefix(String),
}

/// A list of its own: CIDRs or single addresses, separated by commas or spaces.
pub fn ranges_of(list: &str) -> Result<Vec<IpNet>, RuleFault> {
    let ranges = parse_list(list)?;
    if ranges.len() > ALLOWED_RANGES_MAX { Err(RuleFault::TooMany) } else { Ok(ranges) }
}

pub(super) fn parse_list(list: &str) -> Result<Vec<IpNet>, RuleFault> {
    let items = list.split([',', ' ', '\t', '\n', '\r']).filter(|item| !item.is_empty());
    items.take(ALLOWED_RANGES_MAX + 1).map(parse_range).collect()
}

fn parse_range(item: &str) -> Result<IpNet, RuleFault> {
    if let Ok(address) = item.parse::<IpAddr>() {
        return Ok(address.to_canonical().into());
    }
    let range: IpNet = item.parse().map_err(|_| RuleFault::NotARange(shortened(item)))?;
    // 10.0.0.5/8 could mean either, and the wrong guess opens sixteen million addresses.
    if range.trunc() != range {
        return Err(RuleFault::BitsBehindPrefix { written: shortened(item), range: range.trunc(), host: range.addr() });
    }
    Ok(unmapped(range))
}

/// Addresses are judged after ::ffff:a.b.c.d became a.b.c.d, so a range of such addresses becomes one of IPv4.
fn unmapped(range: IpNet) -> IpNet {
    const MAPPED_BITS: u8 = 96;
    match range {
        IpNet::V6(v6) if v6.prefix_len() >= MAPPED_BITS => v6
            .addr()
            .to_ipv4_mapped()
            .and_then(|v4| Ipv4Net::new(v4, v6.prefix_len() - MAPPED_BITS).ok())
            .map_or(range, IpNet::V4),
        IpNet::V4(_) | IpNet::V6(_) => range,
    }
}

/// No written address is longer than an IPv6 CIDR; whatever is, is quoted only that far.
pub(super) fn shortened(item: &str) -> String {
    const LONGEST: usize = "ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255/128".len();
    item.chars().take(LONGEST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_and_single_addresses_are_read() {
        for (list, ranges) in [
            ("", vec![]),
            (" , ,", vec![]),
            ("127.0.0.0/8", vec!["127.0.0.0/8"]),
            ("127.0.0.1", vec!["127.0.0.1/32"]),
            ("::1", vec!["::1/128"]),
            ("10.0.0.0/8, fd00::/8", vec!["10.0.0.0/8", "fd00::/8"]),
            ("10.0.0.0/8 fd00::/8,\n192.168.1.1", vec!["10.0.0.0/8", "fd00::/8", "192.168.1.1/32"]),
            ("0.0.0.0/0", vec!["0.0.0.0/0"]),
            ("::ffff:10.0.0.0/104", vec!["10.0.0.0/8"]),
            ("::ffff:10.1.2.3", vec!["10.1.2.3/32"]),
            ("::/0", vec!["::/0"]),
        ] {
            let expected: Vec<IpNet> = ranges.iter().map(|range| range.parse().unwrap()).collect();
            assert_eq!(parse_list(list), Ok(expected), "{list}");
        }
    }

    #[test]
    fn a_wrong_range_is_named_and_explained() {
        for (list, message) in [
            ("10.0.0.0/8, db.internal", "`db.internal` is neither an address nor a CIDR"),
            ("10.0.0.0/33", "`10.0.0.0/33` is neither"),
            ("10.0.0/8", "`10.0.0/8` is neither"),
            ("010.0.0.1", "`010.0.0.1` is neither"),
            ("http://10.0.0.1", "`http://10.0.0.1` is neither"),
            ("[::1]", "`[::1]` is neither"),
            ("fe80::1%eth0", "`fe80::1%eth0` is neither"),
            ("10.0.0.5/8", "write 10.0.0.0/8 for the range, or 10.0.0.5 for that one address"),
        ] {
            let fault = parse_list(list).unwrap_err().to_string();
            assert!(fault.contains(message), "{list}: {fault}");
        }
        let long = parse_list(&"é".repeat(10_000)).unwrap_err().to_string();
        assert!(long.len() < 300, "{}", long.len());
    }
}
