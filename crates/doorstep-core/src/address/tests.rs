use proptest::prelude::*;

use super::*;

fn strict() -> AddressRules {
    AddressRules::default()
}

fn allowing(list: &str) -> AddressRules {
    strict().allowing(list).unwrap()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn ips(list: &[&str]) -> Vec<IpAddr> {
    list.iter().map(|text| ip(text)).collect()
}

/// The range that a verdict denies by; `ok` and `operator` for the others.
fn verdict(rules: &AddressRules, address: &str) -> String {
    match rules.judge(ip(address)) {
        Verdict::Allowed => "ok".to_owned(),
        Verdict::AllowedByOperator => "operator".to_owned(),
        Verdict::Denied(denial) => denial.range.to_string(),
    }
}

#[test]
fn a_mapped_address_is_judged_as_the_ipv4_address_that_it_is() {
    for (address, expected) in [
        ("::ffff:127.0.0.1", "127.0.0.0/8"),
        ("::ffff:169.254.169.254", "169.254.0.0/16"),
        ("::ffff:168.63.129.16", "168.63.129.16/32"),
        ("::ffff:8.8.8.8", "ok"),
        ("::8.8.8.8", "::/8"),
        ("::ffff:0:8.8.8.8", "::/8"),
    ] {
        assert_eq!(verdict(&strict(), address), expected, "{address}");
    }
    assert_eq!(verdict(&allowing("10.0.0.0/8"), "::ffff:10.1.2.3"), "operator");
    assert_eq!(verdict(&allowing("::ffff:10.0.0.0/104"), "10.1.2.3"), "operator");
    assert_eq!(verdict(&allowing("::/0"), "10.1.2.3"), "10.0.0.0/8");
}

#[test]
fn the_operators_ranges_go_before_every_denial() {
    let rules = allowing("127.0.0.0/8, fd00::/8, 203.0.113.9").denying_own(ips(&["127.0.0.1", "8.8.8.8"]));
    for (address, expected) in [
        ("127.0.0.1", "operator"),
        ("fd00:ec2::254", "operator"),
        ("203.0.113.9", "operator"),
        ("203.0.113.8", "203.0.113.0/24"),
        ("fc00::1", "fc00::/7"),
        ("10.0.0.1", "10.0.0.0/8"),
        ("8.8.8.8", "8.8.8.8/32"),
        ("::ffff:8.8.8.8", "8.8.8.8/32"),
        ("8.8.4.4", "ok"),
    ] {
        assert_eq!(verdict(&rules, address), expected, "{address}");
    }
}

#[test]
fn allowing_one_localhost_allows_the_other_and_no_more() {
    for (list, address, expected) in [
        ("127.0.0.0/8", "::1", "operator"),
        ("127.0.0.1", "::1", "operator"),
        ("::1", "127.0.0.1", "operator"),
        ("::1", "127.0.0.2", "127.0.0.0/8"),
        ("127.0.0.2", "::1", "::1/128"),
        ("10.0.0.0/8", "::1", "::1/128"),
        ("127.0.0.0/8", "::2", "::/8"),
    ] {
        assert_eq!(verdict(&allowing(list), address), expected, "{list} {address}");
    }
}

#[test]
fn behind_nat64_the_embedded_address_decides() {
    for (prefix, private, public) in [
        ("64:ff9b::/96", "64:ff9b::10.0.0.1", "64:ff9b::8.8.8.8"),
        ("2a00:64::/96", "2a00:64::10.0.0.1", "2a00:64::8.8.8.8"),
        ("2a00:64::/32", "2a00:64:a00:1::", "2a00:64:808:808::"),
    ] {
        let rules = strict().behind_nat64(prefix).unwrap();
        assert_eq!(verdict(&rules, private), "10.0.0.0/8", "{prefix}");
        assert_eq!(verdict(&rules, public), "ok", "{prefix}");
        let rules = rules.allowing("10.0.0.0/8").unwrap();
        assert_eq!(verdict(&rules, private), "operator", "{prefix}");
    }
    assert_eq!(verdict(&strict(), "64:ff9b::8.8.8.8"), "64:ff9b::/96");
    let elsewhere = strict().behind_nat64("2a00:64::/96").unwrap();
    assert_eq!(verdict(&elsewhere, "64:ff9b::8.8.8.8"), "64:ff9b::/96");
}

#[test]
fn more_ranges_than_the_limit_are_refused() {
    let list = |n: usize| (0..n).map(|i| format!("10.0.{}.{}", i / 256, i % 256)).collect::<Vec<_>>().join(",");
    assert!(strict().allowing(&list(ALLOWED_RANGES_MAX)).is_ok());
    assert_eq!(strict().allowing(&list(ALLOWED_RANGES_MAX + 1)), Err(RuleFault::TooMany));
    assert_eq!(allowing(&list(ALLOWED_RANGES_MAX)).allowing("10.9.9.9"), Err(RuleFault::TooMany));
}

#[test]
fn one_forbidden_address_refuses_the_whole_answer() {
    let public = TargetUrl::parse("https://hooks.example.com/in", &strict()).unwrap();
    for (answer, refused) in [
        (&["8.8.8.8", "2606:4700::1"][..], None),
        (&["8.8.8.8", "10.0.0.1"], Some("10.0.0.1")),
        (&["10.0.0.1", "8.8.8.8"], Some("10.0.0.1")),
        (&["8.8.8.8", "2606:4700::1", "::ffff:169.254.169.254"], Some("::ffff:169.254.169.254")),
        (&["127.0.0.1"], Some("127.0.0.1")),
    ] {
        match (strict().permit(&public, &ips(answer)), refused) {
            (Ok(()), None) => {}
            (Err(Refusal::Forbidden { address, .. }), Some(expected)) => assert_eq!(address, ip(expected)),
            (result, _) => panic!("{answer:?}: {result:?}"),
        }
    }
    assert_eq!(strict().permit(&public, &[]), Err(Refusal::NoAddress));
    assert_eq!(allowing("0.0.0.0/0").permit(&public, &[]), Err(Refusal::NoAddress));
}

#[test]
fn plain_http_and_low_ports_go_only_to_the_operators_ranges() {
    let rules = allowing("10.0.0.0/8");
    let https = TargetUrl::parse("https://hooks.example.com/", &rules).unwrap();
    let http = TargetUrl::parse("http://hooks.example.com/", &rules).unwrap();
    let low = TargetUrl::parse("https://hooks.example.com:81/", &rules).unwrap();
    let (inside, outside) = (ip("10.0.0.1"), ip("8.8.8.8"));
    for target in [&https, &http, &low] {
        assert_eq!(rules.permit(target, &[inside]), Ok(()));
    }
    assert_eq!(rules.permit(&https, &[inside, outside]), Ok(()));
    for answer in [&[outside][..], &[inside, outside], &[outside, inside]] {
        assert_eq!(rules.permit(&http, answer), Err(Refusal::PlainHttp { address: outside }));
        assert_eq!(rules.permit(&low, answer), Err(Refusal::Port { address: outside, port: 81 }));
    }
}

#[test]
fn a_developer_reaches_localhost_by_allowing_loopback() {
    let rules = allowing("127.0.0.0/8");
    for (text, normalised) in [
        ("http://localhost:3000", "http://localhost:3000/"),
        ("http://127.0.0.1:3000", "http://127.0.0.1:3000/"),
        ("https://localhost", "https://localhost/"),
        ("http://[::1]:3000", "http://[::1]:3000/"),
        ("http://receiver/hook", "http://receiver/hook"),
        ("http://hooks.internal./hook", "http://hooks.internal/hook"),
        ("http://[::ffff:127.0.0.1]:81/", "http://[::ffff:7f00:1]:81/"),
    ] {
        let target = TargetUrl::parse(text, &rules).unwrap_or_else(|fault| panic!("{text}: {fault}"));
        assert_eq!(target.as_str(), normalised);
        assert_eq!(rules.permit(&target, &[ip("127.0.0.1")]), Ok(()), "{text}");
        assert_eq!(rules.permit(&target, &ips(&["::1", "127.0.0.1"])), Ok(()), "{text}");
        assert!(rules.permit(&target, &ips(&["127.0.0.1", "10.0.0.1"])).is_err(), "{text}");
    }
    assert_eq!(TargetUrl::parse("http://8.8.8.8/", &rules), Err(UrlFault::PlainHttp));
    assert_eq!(TargetUrl::parse("https://8.8.8.8:25/", &rules), Err(UrlFault::Port(25)));
}

fn any_address() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        any::<u32>().prop_map(|bits| IpAddr::V4(bits.into())),
        any::<u128>().prop_map(|bits| IpAddr::V6(bits.into()))
    ]
}

proptest! {
    #[test]
    fn without_the_operators_leave_only_global_unicast_is_allowed(address in any_address()) {
        if strict().judge(address) == Verdict::Allowed
            && let IpAddr::V6(v6) = address.to_canonical()
        {
            prop_assert_eq!(v6.octets()[0] >> 5, 1, "{}", v6);
        }
    }

    #[test]
    fn mapping_an_address_changes_no_verdict(bits in any::<u32>()) {
        let v4 = std::net::Ipv4Addr::from(bits);
        let rules = allowing("10.0.0.0/8");
        prop_assert_eq!(rules.judge(v4.into()), rules.judge(v4.to_ipv6_mapped().into()));
    }

    #[test]
    fn what_is_permitted_together_is_permitted_one_by_one(answer in prop::collection::vec(any_address(), 1..5)) {
        let rules = allowing("128.0.0.0/1");
        for text in ["https://a.example/", "http://a.example/", "https://a.example:25/"] {
            let target = TargetUrl::parse(text, &rules).unwrap();
            let each = answer.iter().all(|address| rules.permit(&target, &[*address]).is_ok());
            prop_assert_eq!(rules.permit(&target, &answer).is_ok(), each);
        }
    }

    #[test]
    fn no_list_of_ranges_panics(list in "\\PC{0,40}|[0-9a-f.:/, ]{0,60}") {
        let _ = strict().allowing(&list);
        let _ = strict().behind_nat64(&list);
    }
}
