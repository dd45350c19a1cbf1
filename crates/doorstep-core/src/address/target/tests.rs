use proptest::prelude::*;

use super::*;

fn parse(text: &str) -> Result<TargetUrl, UrlFault> {
    TargetUrl::parse(text, &AddressRules::default())
}

/// Everything that the parser, a resolver or a socket could take for 127.0.0.1.
const LOOPBACK: [&str; 21] = [
    "127.0.0.1",
    "127.1",
    "127.0.1",
    "0x7f.1",
    "0x7f.0x0.0x0.0x1",
    "0x7F000001",
    "2130706433",
    "017700000001",
    "0177.0.0.1",
    "0177.0.0.01",
    "127.0.0.1.",
    "127.1.",
    "0x7f.1..",
    "１２７.０.０.１",
    "①②⑦.⓪.⓪.①",
    "127。0。0。1",
    "127．0｡0。1",
    "%31%32%37.0.0.1",
    "127%2e0%2e0%2e1",
    "%EF%BC%91%EF%BC%92%EF%BC%97.0.0.1",
    "[::ffff:127.0.0.1]",
];

#[test]
fn every_spelling_of_loopback_is_seen_through() {
    for scheme in ["https://", "http://", "HTTPS://", "https:", "https:/", "https:///", "https:\\\\", "https:/\\"] {
        for host in LOOPBACK {
            for rest in ["", "/", ":8443/x", "?q", "\\x"] {
                let text = format!("{scheme}{host}{rest}");
                match parse(&text) {
                    Err(UrlFault::Forbidden { denial, .. }) => assert_eq!(denial.what, "loopback", "{text}"),
                    other => panic!("{text}: {other:?}"),
                }
            }
        }
    }
}

#[test]
fn addresses_of_other_forbidden_kinds_are_refused_as_written() {
    for (host, what) in [
        ("[::1]", "loopback"),
        ("[0:0:0:0:0:0:0:1]", "loopback"),
        ("[::]", "unspecified"),
        ("0", "this network"),
        ("0.0.0.0", "this network"),
        ("[::127.0.0.1]", "IPv4 inside IPv6, reserved"),
        ("[64:ff9b::7f00:1]", "NAT64"),
        ("[2002:7f00:1::]", "6to4"),
        ("169.254.169.254", "link-local and cloud metadata"),
        ("2852039166", "link-local and cloud metadata"),
        ("[::ffff:a9fe:a9fe]", "link-local and cloud metadata"),
        ("[fd00:ec2::254]", "private network and cloud metadata"),
        ("168.63.129.16", "Azure WireServer"),
        ("192.168.1.1", "private network"),
    ] {
        match parse(&format!("https://{host}/")) {
            Err(UrlFault::Forbidden { denial, .. }) => assert_eq!(denial.what, what, "{host}"),
            other => panic!("{host}: {other:?}"),
        }
    }
}

#[test]
fn what_cannot_be_a_target_is_refused_with_its_reason() {
    use url::ParseError::{EmptyHost, IdnaError, InvalidIpv4Address, InvalidIpv6Address, InvalidPort};
    let unreadable = UrlFault::Unreadable;
    let private = |name: &str| UrlFault::PrivateName(name.to_owned());
    let bad = |name: &str| UrlFault::BadName(name.to_owned());
    let scheme = |name: &str| UrlFault::Scheme(name.to_owned());
    for (text, fault) in [
        ("", UrlFault::NoScheme),
        ("example.com/hook", UrlFault::NoScheme),
        ("//example.com/hook", UrlFault::NoScheme),
        ("/hook", UrlFault::NoScheme),
        ("https://", unreadable(EmptyHost)),
        ("https:///", unreadable(EmptyHost)),
        ("https://?", unreadable(EmptyHost)),
        ("https://./", unreadable(EmptyHost)),
        ("https://:443/", unreadable(EmptyHost)),
        ("localhost:3000", scheme("localhost")),
        ("gopher://127.0.0.1:6379/_INFO", scheme("gopher")),
        ("ftp://example.com/", scheme("ftp")),
        ("file:///etc/passwd", scheme("file")),
        ("ws://example.com/", scheme("ws")),
        ("data:text/plain,hi", scheme("data")),
        ("javascript:alert(1)", scheme("javascript")),
        ("http://example.com/", UrlFault::PlainHttp),
        ("http://8.8.8.8/", UrlFault::PlainHttp),
        ("https://user:pass@example.com/", UrlFault::Userinfo),
        ("https://user@example.com/", UrlFault::Userinfo),
        ("https://:pass@example.com/", UrlFault::Userinfo),
        ("https://a@b@example.com/", UrlFault::Userinfo),
        ("https://example.com@127.0.0.1/", UrlFault::Userinfo),
        ("https://127.0.0.1@example.com/", UrlFault::Userinfo),
        ("https://example.com:443@127.0.0.1/", UrlFault::Userinfo),
        ("https://example.com/#", UrlFault::Fragment),
        ("https://example.com/#top", UrlFault::Fragment),
        ("https://example.com#@127.0.0.1/", UrlFault::Fragment),
        ("https://example.com:0/", UrlFault::Port(0)),
        ("https://example.com:22/", UrlFault::Port(22)),
        ("https://example.com:25/", UrlFault::Port(25)),
        ("https://example.com:1023/", UrlFault::Port(1_023)),
        ("https://8.8.8.8:53/", UrlFault::Port(53)),
        ("https://example.com:65536/", unreadable(InvalidPort)),
        ("https://example.com:-1/", unreadable(InvalidPort)),
        ("https://example.com:80a/", unreadable(InvalidPort)),
        ("https://1.2.3.4.5/", unreadable(InvalidIpv4Address)),
        ("https://256.256.256.256/", unreadable(InvalidIpv4Address)),
        ("https://example.0x7f/", unreadable(InvalidIpv4Address)),
        ("https://[::1/", unreadable(InvalidIpv6Address)),
        ("https://[fe80::1%25eth0]/", unreadable(InvalidIpv6Address)),
        ("https://[fe80::1%eth0]/", unreadable(InvalidIpv6Address)),
        ("https://exa mple.com/", unreadable(IdnaError)),
        ("https://example.com%00.evil.com/", unreadable(IdnaError)),
        ("https://example.com%0d%0aHost:x/", unreadable(IdnaError)),
        ("https://[v1.x]/", unreadable(InvalidIpv6Address)),
        ("https://exa\tmple.com/", UrlFault::ControlCharacter),
        ("ht\ntps://example.com/", UrlFault::ControlCharacter),
        ("https://example.com/\r\nx-evil: 1", UrlFault::ControlCharacter),
        ("https://example.com/\0", UrlFault::ControlCharacter),
        ("https://example.com/\u{7f}", UrlFault::ControlCharacter),
        ("https://example.com/\u{85}", UrlFault::ControlCharacter),
        ("\u{1}https://example.com/", UrlFault::ControlCharacter),
        ("https://localhost/", private("localhost")),
        ("https://LOCALHOST./", private("localhost")),
        ("https://app.localhost/", private("app.localhost")),
        ("https://printer.local/", private("printer.local")),
        ("https://metadata.google.internal/", private("metadata.google.internal")),
        ("https://Metadata.Google.INTERNAL./", private("metadata.google.internal")),
        ("https://router.home.arpa/", private("router.home.arpa")),
        ("https://1.0.0.127.in-addr.arpa/", private("1.0.0.127.in-addr.arpa")),
        ("https://intranet/", private("intranet")),
        ("https://ｌｏｃａｌｈｏｓｔ/", private("localhost")),
        ("https://a..example.com/", bad("a..example.com")),
        ("https://.example.com/", bad(".example.com")),
        ("https://example.com../", bad("example.com.")),
        ("https://exa$mple.com/", bad("exa$mple.com")),
        ("https://*.example.com/", bad("*.example.com")),
    ] {
        assert_eq!(parse(text), Err(fault), "{text}");
    }
}

#[test]
fn what_is_accepted_is_normalised() {
    for (text, normalised) in [
        ("https://example.com", "https://example.com/"),
        ("HTTPS://Example.COM:443/Hook?a=B", "https://example.com/Hook?a=B"),
        ("https://example.com./hook", "https://example.com/hook"),
        ("https:example.com/hook", "https://example.com/hook"),
        ("https:\\\\example.com\\hook", "https://example.com/hook"),
        ("  https://example.com/  ", "https://example.com/"),
        ("https://example.com/a/../b/./c", "https://example.com/b/c"),
        ("https://example.com/a b?c d", "https://example.com/a%20b?c%20d"),
        ("https://example.com/é", "https://example.com/%C3%A9"),
        ("https://bücher.example/", "https://xn--bcher-kva.example/"),
        ("https://ｅｘａｍｐｌｅ.com/", "https://example.com/"),
        ("https://a_b.example.com/", "https://a_b.example.com/"),
        ("https://example.com:80/", "https://example.com:80/"),
        ("https://example.com:8443/", "https://example.com:8443/"),
        ("https://example.com:1024/", "https://example.com:1024/"),
        ("https://example.com:65535/", "https://example.com:65535/"),
        ("https://8.8.8.8/", "https://8.8.8.8/"),
        ("https://134744072/", "https://8.8.8.8/"),
        ("https://[2606:4700:4700:0::1111]/", "https://[2606:4700:4700::1111]/"),
        ("https://@example.com/", "https://example.com/"),
        ("https://example.com/@user", "https://example.com/@user"),
        ("https://example.com/%0d%0a", "https://example.com/%0d%0a"),
    ] {
        let target = parse(text).unwrap_or_else(|fault| panic!("{text}: {fault}"));
        assert_eq!(target.as_str(), normalised);
        assert_eq!(parse(normalised), Ok(target), "{normalised}");
    }
}

#[test]
fn the_parts_are_those_of_the_normalised_form() {
    let target = parse("https://Example.com.:8443/a/../hook?x=1").unwrap();
    assert_eq!(target.host(), TargetHost::Name("example.com"));
    assert_eq!((target.port(), target.is_https()), (8_443, true));
    assert_eq!((target.authority(), target.path_and_query()), ("example.com:8443", "/hook?x=1"));
    let bare = parse("https://[2606:4700::1]:443").unwrap();
    assert_eq!(bare.host(), TargetHost::Address("2606:4700::1".parse().unwrap()));
    assert_eq!((bare.port(), bare.authority(), bare.path_and_query()), (443, "[2606:4700::1]", "/"));
    let plain = TargetUrl::parse("http://10.0.0.1/", &AddressRules::default().allowing("10.0.0.1").unwrap()).unwrap();
    assert_eq!((plain.port(), plain.is_https()), (80, false));
}

#[test]
fn a_url_is_bounded_as_written_and_as_used() {
    let start = "https://example.com/";
    let of = |length: usize| format!("{start}{}", "a".repeat(length - start.len()));
    assert!(parse(&of(URL_BYTES_MAX)).is_ok());
    assert_eq!(parse(&of(URL_BYTES_MAX + 1)), Err(UrlFault::TooLong));
    assert_eq!(parse(&format!("{start}{}", "é".repeat(600))), Err(UrlFault::TooLong));
    let label = "a".repeat(63);
    assert!(parse(&format!("https://{label}.example/")).is_ok());
    assert!(matches!(parse(&format!("https://{label}a.example/")), Err(UrlFault::BadName(_))));
    assert!(matches!(parse(&format!("https://{label}.{label}.{label}.{label}.com/")), Err(UrlFault::BadName(_))));
}

/// Pieces of URLs, to be put together in ways that readers disagree about.
const TOKENS: [&str; 38] = [
    "https",
    "http",
    "gopher",
    ":",
    "/",
    "//",
    "\\",
    "@",
    "#",
    "?",
    "%",
    "[",
    "]",
    ".",
    "..",
    "。",
    "%2e",
    "%00",
    "%40",
    "127",
    "0x7f",
    "0177",
    "１",
    "1",
    "0",
    "127.0.0.1",
    "2130706433",
    "::1",
    "::ffff:127.0.0.1",
    "64:ff9b::7f00:1",
    "8.8.8.8",
    "2606:4700::1",
    "localhost",
    "example.com",
    "internal",
    "443",
    "65536",
    "\t",
];

/// Hosts that are addresses, most of them forbidden.
fn any_literal() -> impl Strategy<Value = String> {
    let v4 = any::<u32>().prop_map(|bits| std::net::Ipv4Addr::from(bits).to_string());
    let number = any::<u32>().prop_map(|bits| bits.to_string());
    let v6 = any::<u128>().prop_map(|bits| format!("[{}]", std::net::Ipv6Addr::from(bits)));
    let prefixes =
        ["::ffff:", "::", "64:ff9b::", "2002:", "2001::", "fd00:ec2::", "fe80::", "2606:4700::", "::ffff:0:"];
    let under = (prop::sample::select(prefixes.to_vec()), any::<u16>(), any::<u16>());
    let special = under.prop_map(|(prefix, a, b)| format!("[{prefix}{a:x}:{b:x}]"));
    prop_oneof![prop::sample::select(LOOPBACK.to_vec()).prop_map(str::to_owned), v4, number, v6, special]
}

fn any_text() -> impl Strategy<Value = String> {
    let spliced =
        prop::collection::vec(prop::sample::select(TOKENS.to_vec()), 0..10).prop_map(|tokens| tokens.concat());
    let scheme = prop::sample::select(vec!["https://", "http://", "https:", "https:\\\\"]);
    let named = (scheme.clone(), spliced.clone()).prop_map(|(scheme, rest)| format!("{scheme}{rest}"));
    let literal = (scheme, any_literal()).prop_map(|(scheme, host)| format!("{scheme}{host}/"));
    prop_oneof!["\\PC{0,60}", any::<String>(), spliced, named, literal]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn no_text_panics_and_no_accepted_address_is_a_denied_one(text in any_text()) {
        for rules in [AddressRules::default(), AddressRules::default().allowing("10.0.0.0/8").unwrap()] {
            let Ok(target) = TargetUrl::parse(&text, &rules) else { continue };
            if let TargetHost::Address(address) = target.host() {
                prop_assert_eq!(rules.permit(&target, &[address]), Ok(()));
            }
            prop_assert!(target.path_and_query().starts_with('/'));
            prop_assert!(target.as_str().bytes().all(|b| b.is_ascii_graphic()), "{}", target);
            prop_assert_eq!(TargetUrl::parse(target.as_str(), &rules), Ok(target));
        }
    }
}
