use proptest::prelude::*;

use super::*;

/// Wed, 18 Feb 2026 08:48:30 GMT.
const NOW: Timestamp = Timestamp(1_771_404_510_000);
const DAY: Millis = Millis::from_hours(24);

fn hints(headers: &[(&str, &str)]) -> Hints {
    read_at(NOW, headers)
}

fn read_at(now: Timestamp, headers: &[(&str, &str)]) -> Hints {
    Hints::read(headers.iter().map(|(name, value)| (*name, value.as_bytes())), now, DAY)
}

fn wait(ms: u64) -> Hints {
    Hints { retry_after: Some(Millis(ms)), ..Hints::default() }
}

/// Seconds until the reset, and what remains.
fn quota(secs: Option<u64>, remaining: Option<u64>) -> Hints {
    Hints { quota_resets_in: secs.map(Millis::from_secs), quota_remaining: remaining, ..Hints::default() }
}

#[test]
fn names_are_read_in_any_case_and_nothing_else_is() {
    assert_eq!(hints(&[("retry-after", "7")]), wait(7_000));
    assert_eq!(hints(&[("RETRY-AFTER", "7")]), wait(7_000));
    assert_eq!(hints(&[("Retry-After", " 7\t")]), wait(7_000));
    assert_eq!(hints(&[("Retry-After-Ms", "7")]), wait(7));
    assert_eq!(hints(&[("x-ms-retry-after-ms", "7.5")]), wait(8));
    assert_eq!(hints(&[("X-Retry-After", "7"), ("RetryAfter", "7")]), Hints::default());
    assert_eq!(hints(&[]), Hints::default());
}

#[test]
fn of_several_waits_the_longest_counts() {
    assert_eq!(hints(&[("Retry-After", "30"), ("Retry-After", "60")]), wait(60_000));
    assert_eq!(hints(&[("Retry-After", "60"), ("Retry-After", "30")]), wait(60_000));
    assert_eq!(hints(&[("Retry-After", "60"), ("Retry-After", "soon")]), wait(60_000));
    assert_eq!(hints(&[("Retry-After", "1"), ("retry-after-ms", "750")]), wait(1_000));
    assert_eq!(hints(&[("Retry-After", "1"), ("retry-after-ms", "1250")]), wait(1_250));
    assert_eq!(hints(&[("Retry-After", "30, 60")]), Hints::default());
}

#[test]
fn nothing_is_waited_for_beyond_the_cap() {
    for value in ["86400", "86401", "999999999", "4102444800", "99999999999999999999", "Fri, 31 Dec 9999 23:59:59 GMT"]
    {
        assert_eq!(hints(&[("Retry-After", value)]), wait(DAY.0), "{value}");
    }
    assert_eq!(hints(&[("RateLimit", "\"year\";r=0;t=31536000")]), quota(Some(86_400), Some(0)));
    assert_eq!(Hints::read([("Retry-After", &b"5"[..])], NOW, Millis::ZERO), wait(0));
}

#[test]
fn a_wrong_clock_cancels_out_where_the_answer_is_dated() {
    for date in ["Wed, 18 Feb 2026 08:48:30 GMT", "Mon, 18 Feb 2036 08:48:30 GMT", "Sunday, 18-Feb-96 08:48:30 GMT"] {
        let later = date.replace("08:48:30", "08:50:00");
        assert_eq!(hints(&[("Retry-After", &later), ("Date", date)]), wait(90_000), "{date}");
        assert_eq!(hints(&[("Date", later.as_str()), ("Retry-After", date)]), Hints::default(), "{date}");
    }
    // An hour ahead of us, and asking for 30 s.
    let ahead = [("Date", "Wed, 18 Feb 2026 09:48:30 GMT"), ("Retry-After", "1771408140")];
    assert_eq!(hints(&ahead), wait(30_000));
    assert_eq!(hints(&[ahead[0], ("X-RateLimit-Reset", "1771408140")]), quota(Some(30), None));
    // A delay is a delay whatever the date.
    assert_eq!(hints(&[ahead[0], ("Retry-After", "30")]), wait(30_000));
}

#[test]
fn an_unreadable_date_leaves_our_own_clock() {
    for date in ["yesterday", "", "1771408110"] {
        let retry = ("Retry-After", "Wed, 18 Feb 2026 08:50:00 GMT");
        assert_eq!(hints(&[("Date", date), retry]), wait(90_000), "{date}");
    }
}

#[test]
fn rate_limit_fields_of_every_age_are_read() {
    for (headers, expected) in [
        (&[("RateLimit", "\"default\";r=50;t=30")][..], quota(Some(30), Some(50))),
        (&[("ratelimit", "\"default\"; r=0; t=30; pk=:QQ==:")], quota(Some(30), Some(0))),
        (&[("RateLimit", "\"default\";r=3")], quota(None, Some(3))),
        (&[("RateLimit", "limit=100, remaining=0, reset=5")], quota(Some(5), Some(0))),
        (&[("RateLimit", "limit=100,remaining=7,reset=1771404540")], quota(Some(30), Some(7))),
        (&[("RateLimit-Remaining", "0"), ("RateLimit-Reset", "12")], quota(Some(12), Some(0))),
        (&[("X-RateLimit-Remaining", "9"), ("X-RateLimit-Reset", "1771404540")], quota(Some(30), Some(9))),
        (&[("x-rate-limit-reset", "1771404540000")], quota(Some(30), None)),
        (&[("X-Rate-Limit-Remaining", "0"), ("X-Rate-Limit-Reset", "30")], quota(Some(30), Some(0))),
        (&[("X-RateLimit-Reset-After", "29.001"), ("X-RateLimit-Reset", "29")], {
            Hints { quota_resets_in: Some(Millis(29_001)), ..Hints::default() }
        }),
        (&[("X-RateLimit-Remaining", "99999999999999999999")], quota(None, Some(u64::MAX))),
    ] {
        assert_eq!(hints(headers), expected, "{headers:?}");
    }
}

#[test]
fn malformed_quotas_are_ignored() {
    for value in [
        "\"default\";r=50;t=30,",
        "\"default;r=50;t=30",
        "\"default\";r=\"0\";t=30",
        "\"default\";t=30",
        "\"default\";r=-1;t=30",
        "\"default\";r=0.5;t=30",
        "default;r=0;t=30",
        "(\"default\");r=0;t=30",
        "limit=100, remaining=-1, reset=-5",
        "limit=100, remaining=(0), reset=(5)",
        "limit=100",
        "0",
        "unlimited",
        ";;;",
    ] {
        assert_eq!(hints(&[("RateLimit", value)]), Hints::default(), "{value}");
    }
    for value in ["-1", "1771404509", "5 seconds", "1, 2", "NaN"] {
        assert_eq!(hints(&[("X-RateLimit-Reset", value)]), Hints::default(), "{value}");
    }
    let spoilt = [("RateLimit", "\"a\";r=0;t=30"), ("RateLimit", "\"b")];
    assert_eq!(hints(&spoilt), Hints::default());
}

#[test]
fn the_spent_quota_with_the_latest_reset_governs() {
    for (field, expected) in [
        ("\"burst\";r=0;t=5, \"daily\";r=900;t=3600", quota(Some(5), Some(0))),
        ("\"burst\";r=0;t=5, \"daily\";r=0;t=3600", quota(Some(3_600), Some(0))),
        ("\"burst\";r=12;t=5, \"daily\";r=900;t=3600", quota(Some(5), Some(12))),
        ("\"burst\";r=12;t=5, \"daily\";r=12;t=3600", quota(Some(3_600), Some(12))),
        ("\"burst\";r=0, \"daily\";r=900;t=3600", quota(None, Some(0))),
    ] {
        assert_eq!(hints(&[("RateLimit", field)]), expected, "{field}");
    }
    let lines = [("RateLimit", "\"burst\";r=0;t=5"), ("RateLimit", "\"daily\";r=0;t=60")];
    assert_eq!(hints(&lines), quota(Some(60), Some(0)));
    let mixed = [("RateLimit", "\"burst\";r=4;t=5"), ("X-RateLimit-Remaining", "0"), ("X-RateLimit-Reset", "60")];
    assert_eq!(hints(&mixed), quota(Some(60), Some(0)));
    let uncounted = [("RateLimit", "\"burst\";r=0"), ("X-RateLimit-Reset", "60")];
    assert_eq!(hints(&uncounted), quota(Some(60), Some(0)));
}

#[test]
fn a_policy_tells_the_window_and_the_unit_of_its_quota() {
    for (policy, field, expected) in [
        ("\"burst\";q=100;w=60", "\"burst\";r=0", quota(Some(60), Some(0))),
        ("\"burst\";q=100;w=60", "\"burst\";r=0;t=7", quota(Some(7), Some(0))),
        ("\"burst\";q=100;w=60", "\"burst\";r=3", quota(None, Some(3))),
        ("\"daily\";q=100;w=60", "\"burst\";r=0", quota(None, Some(0))),
        ("\"burst\";w=60", "\"burst\";r=0", quota(None, Some(0))),
        ("\"burst\";q=100;w=0", "\"burst\";r=0", quota(None, Some(0))),
        ("\"burst\";q=100;w=60,", "\"burst\";r=0", quota(None, Some(0))),
        ("\"b\";q=9;qu=\"content-bytes\";w=60", "\"b\";r=8;t=5", Hints::default()),
        ("\"b\";q=9;qu=\"content-bytes\";w=60", "\"b\";r=0;t=5", quota(Some(5), Some(0))),
        ("\"b\";q=9;qu=\"requests\";w=60", "\"b\";r=8;t=5", quota(Some(5), Some(8))),
    ] {
        assert_eq!(hints(&[("RateLimit-Policy", policy), ("RateLimit", field)]), expected, "{policy} {field}");
        assert_eq!(hints(&[("RateLimit", field), ("RateLimit-Policy", policy)]), expected, "{policy} {field}");
    }
    assert_eq!(hints(&[("RateLimit-Policy", "\"burst\";q=100;w=60")]), Hints::default());
}

#[test]
fn a_long_value_is_ignored_and_not_cut() {
    let long = format!("{}9", "0".repeat(VALUE_BYTES_MAX));
    assert_eq!(hints(&[("Retry-After", &long)]), Hints::default());
    assert_eq!(hints(&[("Retry-After", &long[1..])]), wait(9_000));
}

#[test]
fn only_the_first_headers_are_looked_at() {
    let mut headers = vec![("x-filler", "1"); HEADERS_MAX - 1];
    headers.push(("Retry-After", "5"));
    assert_eq!(hints(&headers), wait(5_000));
    headers.insert(0, ("x-filler", "1"));
    assert_eq!(hints(&headers), Hints::default());
}

#[test]
fn bytes_that_are_not_ascii_are_no_hint() {
    for value in [&b"\xff\xfe"[..], b"5\xa0", "５".as_bytes(), "\"é\";r=0;t=5".as_bytes(), b"5\0", b"5\x0b6"] {
        for (name, _) in FIELDS {
            assert_eq!(Hints::read([(name, value)], NOW, DAY), Hints::default(), "{name}");
        }
    }
}

/// Pieces of what receivers send, to be put together in ways that they do not.
const TOKENS: [&str; 36] = [
    "0",
    "1",
    "30",
    "120",
    "2.0",
    "2.128",
    "0.493",
    "1771404540",
    "1771404540000",
    "-5",
    "99999999999999999999",
    ".",
    ",",
    ", ",
    ";",
    "; ",
    "=",
    "\"",
    "\"a\"",
    "\"default\"",
    ";r=0",
    ";t=30",
    ";r=",
    ";t=",
    ";w=60",
    ";q=100",
    "limit=",
    "remaining=0",
    "reset=5",
    ":QQ==:",
    "(",
    ")",
    "Wed, 18 Feb 2026 08:50:00 GMT",
    "Sunday, 06-Nov-94 08:49:37 GMT",
    "Sun Nov  6 08:49:37 1994",
    " ",
];

fn any_name() -> impl Strategy<Value = &'static str> {
    prop::sample::select(FIELDS.map(|(name, _)| name).to_vec())
}

fn spliced() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop::sample::select(TOKENS.to_vec()), 0..8).prop_map(|tokens| tokens.concat().into_bytes())
}

/// A valid value with one byte overwritten.
fn mutated() -> impl Strategy<Value = Vec<u8>> {
    let valid = prop::sample::select(TOKENS.to_vec()).prop_map(|token| token.as_bytes().to_vec());
    (valid, any::<prop::sample::Index>(), any::<u8>()).prop_map(|(mut value, at, byte)| {
        let at = at.index(value.len());
        value[at] = byte;
        value
    })
}

fn any_value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![prop::collection::vec(any::<u8>(), 0..64), spliced(), mutated()]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn no_bytes_panic_and_no_wait_is_over_the_cap(
        headers in prop::collection::vec((any_name(), any_value()), 0..6),
        now in prop_oneof![any::<i64>(), Just(i64::MIN), Just(i64::MAX), Just(NOW.0)],
        cap in prop_oneof![any::<u64>(), 0..100_000_u64],
    ) {
        let lines = headers.iter().map(|(name, value)| (*name, value.as_slice()));
        let hints = Hints::read(lines, Timestamp(now), Millis(cap));
        for wait in [hints.retry_after, hints.quota_resets_in].into_iter().flatten() {
            prop_assert!(wait.0 <= cap);
        }
    }

    #[test]
    fn a_valid_delay_is_never_shortened_below_the_cap(
        secs in prop_oneof![0..100_000_u64, 0..1_000_000_000_u64],
        fraction in "[0-9]{1,12}",
        other in any_value(),
        now in any::<i64>(),
    ) {
        let value = format!("{secs}.{fraction}");
        let picos: u64 = format!("{fraction:0<12}").parse().unwrap();
        let in_secs = secs * 1_000 + picos.div_ceil(1_000_000_000);
        let in_ms = secs + u64::from(picos > 0);
        for (name, asked) in [("retry-after", in_secs), ("retry-after-ms", in_ms)] {
            let alone = [(name, value.as_bytes())];
            prop_assert_eq!(Hints::read(alone, Timestamp(now), DAY), wait(asked.min(DAY.0)));
            let beside = [(name, value.as_bytes()), ("retry-after", &other)];
            prop_assert!(Hints::read(beside, Timestamp(now), DAY).retry_after >= Some(Millis(asked).min(DAY)));
        }
    }

    #[test]
    fn a_dated_answer_gives_the_same_wait_whatever_our_clock_says(
        date in 0..100_000_000_000_u64, wait in 0..86_400_u64, now in any::<i64>(),
    ) {
        let at = |secs| httpdate::fmt_http_date(std::time::UNIX_EPOCH + std::time::Duration::from_secs(secs));
        let headers = [("Retry-After", at(date + wait)), ("Date", at(date))];
        let lines = headers.iter().map(|(name, value)| (*name, value.as_bytes()));
        let hints = Hints::read(lines, Timestamp(now), DAY);
        prop_assert_eq!(hints.retry_after, Some(Millis::from_secs(wait)));
    }
}
