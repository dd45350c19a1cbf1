//! Where a request comes from: the other end of the connection, or who a trusted proxy there says it is.
//!
//! Anybody can write `X-Forwarded-For`, and a proxy adds to what was there: only what trusted machines have added, at the end, is believed.

use std::net::{IpAddr, SocketAddr};

use axum::extract::Request;
use doorstep_core::address::{RuleFault, ranges_of};
use http::{HeaderMap, HeaderName};
use ipnet::IpNet;

use crate::app::App;

/// The address at the other end of the connection.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub IpAddr);

/// Where the request comes from, as far as it is known: what a key's ranges are compared with, and what is noted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source(pub(crate) Option<IpAddr>);

/// Finds out, once for all that ask.
pub(crate) fn find(app: &App, request: &mut Request) {
    let peer = request.extensions().get::<Peer>().map(|peer| peer.0);
    let source = peer.and_then(|peer| app.place.trusted_proxies.source(peer, request.headers()));
    request.extensions_mut().insert(Source(source));
}

/// The machines whose word on where a request comes from is taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proxies(Vec<IpNet>);

impl Proxies {
    /// Reads addresses and ranges, separated by commas or spaces.
    pub fn parse(list: &str) -> Result<Self, RuleFault> {
        ranges_of(list).map(Self)
    }

    pub(crate) fn trust(&self, address: IpAddr) -> bool {
        self.0.iter().any(|range| range.contains(&address))
    }

    /// Where a request comes from that this peer has sent.
    ///
    /// A proxy that writes one of the two headers may let the other one pass as its client wrote it. So when there are both, and they do not agree, nobody
    /// knows: a key with ranges is refused then.
    fn source(&self, peer: IpAddr, headers: &HeaderMap) -> Option<IpAddr> {
        let peer = peer.to_canonical();
        if !self.trust(peer) {
            return Some(peer);
        }
        let told = |name, read| self.told(peer, elements(headers, &name), read);
        let by_standard = told(FORWARDED, forwarded_for);
        let by_custom = told(X_FORWARDED_FOR, address);
        match (by_standard, by_custom) {
            (Some(one), Some(other)) if one != other => None,
            (told, instead) => Some(told.or(instead).unwrap_or(peer)),
        }
    }

    /// Who the trusted ones say it is: the last one that is not trusted itself, or else the first of all. Where it cannot be
    /// read, the peer is all that is known. `None`: nothing is said.
    fn told<'a>(
        &self,
        peer: IpAddr,
        newest_first: impl Iterator<Item = &'a [u8]>,
        read: fn(&str) -> Option<IpAddr>,
    ) -> Option<IpAddr> {
        let mut farthest = None;
        for element in newest_first {
            let Some(hop) = str::from_utf8(element).ok().and_then(read) else { return Some(peer) };
            farthest = Some(hop);
            if !self.trust(hop) {
                break;
            }
        }
        farthest
    }
}

const FORWARDED: HeaderName = http::header::FORWARDED;
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// A list's elements over all its lines, from its end. What lies behind the first that is not trusted is never read, so that nothing a client puts there, such
/// as a quote that does not end or bytes that are no text, can make the rest unreadable.
fn elements<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a [u8]> {
    let lines: Vec<&[u8]> = headers.get_all(name).iter().map(http::HeaderValue::as_bytes).collect();
    let elements = lines.into_iter().rev().flat_map(|line| line.rsplit(|byte| *byte == b','));
    elements.map(<[u8]>::trim_ascii).filter(|element| !element.is_empty())
}

/// `192.0.2.1`, `192.0.2.1:4711`, `2001:db8::1`, `[2001:db8::1]` or `[2001:db8::1]:4711`.
fn address(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let address = match bare {
        Some(bare) => bare.parse().ok().map(IpAddr::V6),
        None => text.parse().ok().or_else(|| text.parse::<SocketAddr>().ok().map(|socket| socket.ip())),
    };
    address.map(|address| address.to_canonical())
}

/// Of `for="[2001:db8::1]:4711";proto=https` (RFC 7239).
fn forwarded_for(element: &str) -> Option<IpAddr> {
    let pairs = element.split(';').filter_map(|pair| pair.split_once('='));
    let mut named = pairs.filter(|(name, _)| name.trim().eq_ignore_ascii_case("for")).map(|(_, value)| value.trim());
    let (value, another) = (named.next()?, named.next());
    if another.is_some() {
        return None;
    }
    let quoted = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    address(quoted.unwrap_or(value))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    const PROXY: &str = "10.0.0.1";
    const CLIENT: &str = "203.0.113.9";
    const SPOOF: &str = "198.51.100.66";

    fn source(peer: &str, headers: &[(&'static str, &[u8])]) -> Option<String> {
        let proxies = Proxies::parse("10.0.0.0/24, 2001:db8:aa::/48").unwrap();
        let pair = |(name, value): &(&'static str, &[u8])| {
            (HeaderName::from_static(name), HeaderValue::from_bytes(value).unwrap())
        };
        let headers: HeaderMap = headers.iter().map(pair).collect();
        proxies.source(peer.parse().unwrap(), &headers).map(|address| address.to_string())
    }

    fn custom(peer: &str, value: &str) -> Option<String> {
        source(peer, &[("x-forwarded-for", value.as_bytes())])
    }

    fn standard(peer: &str, value: &str) -> Option<String> {
        source(peer, &[("forwarded", value.as_bytes())])
    }

    #[test]
    fn nobody_who_is_not_trusted_is_believed() {
        for peer in [CLIENT, "10.0.1.1", "2001:db8:ab::1"] {
            assert_eq!(custom(peer, SPOOF).as_deref(), Some(peer));
            assert_eq!(standard(peer, &format!("for={SPOOF}")).as_deref(), Some(peer));
        }
        let nobody = Proxies::default();
        let headers: HeaderMap = [(X_FORWARDED_FOR, HeaderValue::from_static(SPOOF))].into_iter().collect();
        assert_eq!(
            nobody.source(PROXY.parse().unwrap(), &headers),
            PROXY.parse().ok(),
            "nobody is trusted unless named"
        );
    }

    #[test]
    fn the_last_one_that_is_not_a_trusted_proxy_counts() {
        for (value, expected) in [
            ("203.0.113.9", CLIENT),
            ("203.0.113.9:4711", CLIENT),
            ("198.51.100.66, 203.0.113.9", CLIENT),
            ("198.51.100.66, 203.0.113.9, 10.0.0.7", CLIENT),
            ("198.51.100.66,203.0.113.9 ,10.0.0.7, 2001:db8:aa::7", CLIENT),
            ("10.0.0.9, 203.0.113.9", CLIENT),
            ("203.0.113.9,, ", CLIENT),
            ("::ffff:203.0.113.9", CLIENT),
            ("2001:db8::1", "2001:db8::1"),
            ("[2001:db8::1]", "2001:db8::1"),
            ("[2001:db8::1]:4711", "2001:db8::1"),
            // Who is behind the proxies is one of their kind.
            ("10.0.0.9, 10.0.0.7", "10.0.0.9"),
            ("", PROXY),
        ] {
            assert_eq!(custom(PROXY, value).as_deref(), Some(expected), "{value}");
        }
        assert_eq!(custom("::ffff:10.0.0.1", CLIENT).as_deref(), Some(CLIENT), "a proxy by its other name");
        let lines: [(&str, &[u8]); 2] = [("x-forwarded-for", b"198.51.100.66"), ("x-forwarded-for", b"203.0.113.9")];
        assert_eq!(source(PROXY, &lines).as_deref(), Some(CLIENT), "lines are one list");
    }

    #[test]
    fn the_standard_header_is_read_as_well() {
        for (value, expected) in [
            ("for=203.0.113.9", CLIENT),
            ("For=\"203.0.113.9:4711\";proto=https;by=10.0.0.1", CLIENT),
            ("proto=https; for=203.0.113.9", CLIENT),
            ("for=198.51.100.66, for=203.0.113.9;host=a, for=10.0.0.7", CLIENT),
            ("for=\"[2001:db8::1]:4711\"", "2001:db8::1"),
            ("for=\"[2001:db8::1]\"", "2001:db8::1"),
        ] {
            assert_eq!(standard(PROXY, value).as_deref(), Some(expected), "{value}");
        }
    }

    #[test]
    fn of_what_cannot_be_read_the_peer_is_what_is_known() {
        for value in
            ["unknown", "203.0.113.9, x", "203.0.113.9, x, 10.0.0.7", "1.2.3", "[203.0.113.9]", "[::1", "::1]:80"]
        {
            assert_eq!(custom(PROXY, value).as_deref(), Some(PROXY), "{value}");
        }
        for value in ["for=unknown", "for=_hidden", "proto=https", "for=", "for=1.1.1.1;for=2.2.2.2", "for=\"1.1.1.1"] {
            assert_eq!(standard(PROXY, value).as_deref(), Some(PROXY), "{value}");
        }
    }

    #[test]
    fn what_a_client_wrote_cannot_make_the_rest_unreadable() {
        for value in [&b"\"\\, 203.0.113.9"[..], b"\xff\xfe, 203.0.113.9", b"x;=,203.0.113.9"] {
            assert_eq!(source(PROXY, &[("x-forwarded-for", value)]).as_deref(), Some(CLIENT), "{value:?}");
        }
        for value in [&b"for=\"x, for=203.0.113.9"[..], b"for=\", for=\"203.0.113.9\"", b"\xff, for=203.0.113.9"] {
            assert_eq!(source(PROXY, &[("forwarded", value)]).as_deref(), Some(CLIENT), "{value:?}");
        }
    }

    #[test]
    fn two_headers_that_do_not_agree_tell_nothing() {
        for (standard, custom, expected) in [
            ("for=203.0.113.9", "203.0.113.9", Some(CLIENT)),
            ("for=198.51.100.66", "203.0.113.9", None),
            ("for=203.0.113.9", "198.51.100.66", None),
            ("for=unknown", "203.0.113.9", None),
            ("for=10.0.0.1", "203.0.113.9", None),
        ] {
            let both = [("forwarded", standard.as_bytes()), ("x-forwarded-for", custom.as_bytes())];
            assert_eq!(source(PROXY, &both).as_deref(), expected, "{standard} {custom}");
        }
    }
}
