use proptest::prelude::*;

use super::*;

fn matches(filter: &str, payload: &str) -> bool {
    Filter::parse(filter).unwrap().matches(&Payload::new(payload.as_bytes()))
}

fn refusal(filter: &str) -> FilterError {
    Filter::parse(filter).unwrap_err()
}

#[test]
fn each_operator_does_what_its_name_says() {
    for (filter, payload, expected) in [
        (r#"{"a": 1}"#, r#"{"a": 1}"#, true),
        (r#"{"a": 1}"#, r#"{"a": 2}"#, false),
        (r#"{"a": null}"#, r#"{"a": null}"#, true),
        (r#"{"a": true}"#, r#"{"a": true}"#, true),
        (r#"{"a": true}"#, r#"{"a": false}"#, false),
        (r#"{"a": {"eq": "x"}}"#, r#"{"a": "x"}"#, true),
        (r#"{"a": {"eq": "x"}}"#, r#"{"a": "X"}"#, false),
        (r#"{"a": {"ne": "x"}}"#, r#"{"a": "y"}"#, true),
        (r#"{"a": {"ne": "x"}}"#, r#"{"a": "x"}"#, false),
        (r#"{"a": {"gt": 5}}"#, r#"{"a": 5}"#, false),
        (r#"{"a": {"gt": 5}}"#, r#"{"a": 5.5}"#, true),
        (r#"{"a": {"gte": 5}}"#, r#"{"a": 5}"#, true),
        (r#"{"a": {"lt": 5}}"#, r#"{"a": -7}"#, true),
        (r#"{"a": {"lt": 5}}"#, r#"{"a": 5}"#, false),
        (r#"{"a": {"lte": 5}}"#, r#"{"a": 5}"#, true),
        (r#"{"a": {"gte": 5, "lt": 9}}"#, r#"{"a": 9}"#, false),
        (r#"{"a": {"gt": "2026-01-31"}}"#, r#"{"a": "2026-02-01"}"#, true),
        (r#"{"a": ["x", 1, null]}"#, r#"{"a": null}"#, true),
        (r#"{"a": {"in": ["x", 1]}}"#, r#"{"a": "y"}"#, false),
        (r#"{"a": {"exists": true}}"#, r#"{"a": null}"#, true),
        (r#"{"a": {"exists": false}}"#, r#"{"a": null}"#, false),
        (r#"{"a": {"exists": false}}"#, r#"{"b": 1}"#, true),
        (r#"{"a": {"prefix": "ab"}}"#, r#"{"a": "abc"}"#, true),
        (r#"{"a": {"prefix": "bc"}}"#, r#"{"a": "abc"}"#, false),
        (r#"{"a": {"suffix": "bc"}}"#, r#"{"a": "abc"}"#, true),
        (r#"{"a": {"suffix": "ab"}}"#, r#"{"a": "abc"}"#, false),
        (r#"{"a": {"contains": "b"}}"#, r#"{"a": "abc"}"#, true),
        (r#"{"a": {"contains": "b"}}"#, r#"{"a": ["a", "b"]}"#, true),
        (r#"{"a": {"contains": "b"}}"#, r#"{"a": ["abc"]}"#, false),
        (r#"{"a": {"contains": 2}}"#, r#"{"a": [1, 2.0]}"#, true),
        (r#"{"all": [{"a": 1}, {"b": 2}]}"#, r#"{"a": 1, "b": 2}"#, true),
        (r#"{"all": [{"a": 1}, {"b": 2}]}"#, r#"{"a": 1}"#, false),
        (r#"{"any": [{"a": 1}, {"b": 2}]}"#, r#"{"b": 2}"#, true),
        (r#"{"any": [{"a": 1}, {"b": 2}]}"#, r#"{"a": 2}"#, false),
        (r#"{"not": {"a": 1}}"#, r#"{"a": 2}"#, true),
        (r#"{"not": {"a": 1, "b": 2}}"#, r#"{"a": 1, "b": 3}"#, true),
        (r#"{"a": 1, "any": [{"b": 2}, {"not": {"c": 3}}]}"#, r#"{"a": 1, "c": 3}"#, false),
    ] {
        assert_eq!(matches(filter, payload), expected, "{filter} on {payload}");
    }
}

#[test]
fn a_missing_field_or_one_of_another_type_fails_every_test_but_ne_and_exists_false() {
    for operand in [
        r#""x""#,
        r#"["x"]"#,
        r#"{"eq": "x"}"#,
        r#"{"gt": "x"}"#,
        r#"{"gte": "x"}"#,
        r#"{"lt": "x"}"#,
        r#"{"lte": "x"}"#,
        r#"{"in": ["x"]}"#,
        r#"{"prefix": "x"}"#,
        r#"{"suffix": "x"}"#,
        r#"{"contains": "x"}"#,
    ] {
        let filter = format!(r#"{{"a.b": {operand}}}"#);
        for payload in [
            "{}",
            r#"{"a": 1}"#,
            r#"{"a": "x"}"#,
            r#"{"a": {"b": 1}}"#,
            r#"{"a": {"b": null}}"#,
            r#"{"a": {"b": {"x": 1}}}"#,
            r#"{"a": {"b": false}}"#,
            r#"{"a.b": "x"}"#,
            r#"["x"]"#,
            "null",
            r#""x""#,
            "1",
        ] {
            assert!(!matches(&filter, payload), "{filter} on {payload}");
            assert!(matches(r#"{"a.b": {"ne": "x"}}"#, payload), "ne on {payload}");
        }
    }
}

#[test]
fn a_path_reaches_fields_elements_and_with_a_pointer_any_name() {
    for (filter, payload) in [
        (r#"{"a.b.c": 1}"#, r#"{"a": {"b": {"c": 1}}}"#),
        (r#"{"a.1.b": 1}"#, r#"{"a": [{}, {"b": 1}]}"#),
        (r#"{"1": 2}"#, "[1, 2]"),
        (r#"{"1": 2}"#, r#"{"1": 2}"#),
        (r#"{"/a/b": 1}"#, r#"{"a": {"b": 1}}"#),
        (r#"{"/a.b": 1}"#, r#"{"a.b": 1}"#),
        (r#"{"/any": 1}"#, r#"{"any": 1}"#),
        (r#"{"/a~1b/~0c/~01": 1}"#, r#"{"a/b": {"~c": {"~1": 1}}}"#),
        (r#"{"/": 1}"#, r#"{"": 1}"#),
        (r#"{"any thing.účet": 1}"#, r#"{"any thing": {"účet": 1}}"#),
    ] {
        assert!(matches(filter, payload), "{filter} on {payload}");
    }
    for path in ["a.2", "a.01", "a.-1", "a.+1", "a.x", "a.99999999999999999999999"] {
        assert!(!matches(&format!(r#"{{"{path}": {{"exists": true}}}}"#), r#"{"a": [1, 2]}"#), "{path}");
    }
}

#[test]
fn numbers_compare_by_value_and_integers_keep_every_digit() {
    use std::cmp::Ordering::{Equal, Greater, Less};
    for (value, operand, expected) in [
        ("9007199254740993", "9007199254740992", Greater),
        ("9007199254740993", "9007199254740992.0", Greater),
        ("9007199254740992.0", "9007199254740993", Less),
        ("18446744073709551615", "18446744073709551614", Greater),
        ("18446744073709551615", "18446744073709551616", Less),
        ("-9223372036854775808", "-9223372036854775807", Less),
        ("-9223372036854775808", "18446744073709551615", Less),
        ("1", "1.0", Equal),
        ("1.0", "1", Equal),
        ("1e2", "100", Equal),
        ("0", "-0.0", Equal),
        ("1", "1.5", Less),
        ("-1", "-1.5", Greater),
        ("1", "1e300", Less),
        ("1", "-1e300", Greater),
        ("0.1", "0.2", Less),
        ("0.1", "1e-1", Equal),
    ] {
        let payload = format!(r#"{{"a": {value}}}"#);
        for (operator, holds) in [
            ("eq", expected.is_eq()),
            ("ne", expected.is_ne()),
            ("gt", expected.is_gt()),
            ("gte", expected.is_ge()),
            ("lt", expected.is_lt()),
            ("lte", expected.is_le()),
        ] {
            let filter = format!(r#"{{"a": {{"{operator}": {operand}}}}}"#);
            assert_eq!(matches(&filter, &payload), holds, "{value} {operator} {operand}");
        }
    }
}

#[test]
fn a_payload_that_is_not_json_or_nested_too_deep_never_matches() {
    let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    for filter in [r#"{"a": {"exists": false}}"#, r#"{"not": {"a": 1}}"#] {
        let filter = Filter::parse(filter).unwrap();
        assert!(filter.matches(&Payload::new(deep(127).as_bytes())));
        for bytes in [
            b"".as_slice(),
            b"a=1",
            b"{} {}",
            b"{\"b\": 1",
            b"\xff",
            b"\"\xff\"",
            b"{\"b\": 1e999}",
            deep(128).as_bytes(),
            deep(1_000_000).as_bytes(),
        ] {
            assert!(!filter.matches(&Payload::new(bytes)));
        }
    }
}

#[test]
fn a_payload_is_parsed_when_first_looked_at_and_only_then() {
    let payload = Payload::new(br#"{"a": 1}"#);
    assert!(!payload.is_parsed());
    let filter = Filter::parse(r#"{"a": 1}"#).unwrap();
    assert!(filter.matches(&payload));
    let first = std::ptr::from_ref(payload.json().unwrap());
    assert!(filter.matches(&payload));
    assert_eq!(std::ptr::from_ref(payload.json().unwrap()), first);
}

#[test]
fn a_faulty_filter_is_refused_with_the_place_and_the_remedy() {
    for (filter, expected) in [
        ("[]", r#"a filter is an object of paths and tests, like {"data.amount": {"gte": 100}}"#),
        ("{}", "nothing is tested here: add a test, or leave this part out"),
        (r#"{"a": {}}"#, "/a: nothing is tested here"),
        (r#"{"a": []}"#, "/a: nothing is tested here"),
        (r#"{"any": []}"#, "/any: nothing is tested here"),
        (r#"{"any": [{"a": 1}, {}]}"#, "/any/1: nothing is tested here"),
        (r#"{"any": [1]}"#, "/any/0: a filter is an object"),
        (r#"{"any": {"a": 1}}"#, "/any: `any` takes a list of filters, like ["),
        (r#"{"all": "a"}"#, "/all: `all` takes a list of filters, like ["),
        (r#"{"not": [{"a": 1}]}"#, "/not: a filter is an object"),
        (r#"{"a": 1, "a": 2}"#, "/a: `a` is given twice: put both tests into one object"),
        (r#"{"a": {"gt": 1, "gt": 2}}"#, "/a/gt: `gt` is given twice"),
        (
            r#"{"data": {"amount": 1}}"#,
            "/data/amount: `amount` is not an operator: use eq, ne, gt, gte, lt, lte, in, exists, prefix, suffix or \
             contains; to reach into an object, join the names with dots in one path",
        ),
        (r#"{"a": {"gt": true}}"#, "/a/gt: `gt` takes a number or a string"),
        (r#"{"a": {"lte": [1]}}"#, "/a/lte: `lte` takes a number or a string"),
        (r#"{"a": {"eq": {}}}"#, "/a/eq: `eq` takes a string, a number, true, false or null"),
        (r#"{"a": {"in": 1}}"#, "/a/in: `in` takes a list of strings, numbers, true, false and null"),
        (r#"{"a": [1, [2]]}"#, "/a/1: `in` takes a list of strings, numbers, true, false and null"),
        (r#"{"a": {"exists": 1}}"#, "/a/exists: `exists` takes true or false"),
        (r#"{"a": {"prefix": 1}}"#, "/a/prefix: `prefix` takes a string"),
        (r#"{"a": {"suffix": null}}"#, "/a/suffix: `suffix` takes a string"),
        (r#"{"a": {"contains": {}}}"#, "/a/contains: `contains` takes a string, a number"),
        (r#"{"": 1}"#, "/: the path has an empty part"),
        (r#"{"a..b": 1}"#, "/a..b: the path has an empty part"),
        (r#"{"/a~2": 1}"#, "/~1a~02: in a JSON Pointer `~` is written `~0`"),
        (r#"{"a": "#, "the filter is not JSON: EOF while parsing"),
    ] {
        let refused = refusal(filter).to_string();
        assert!(refused.starts_with(expected), "{filter}: {refused}");
        let read = serde_json::from_str::<Filter>(filter).unwrap_err().to_string();
        assert!(refused.starts_with("the filter is not JSON") || read.starts_with(&refused), "{read}");
    }
}

#[test]
fn every_limit_is_enforced_at_its_edge() {
    let tests = |n: usize| format!("{{{}}}", (0..n).map(|i| format!(r#""a{i}": 1"#)).collect::<Vec<_>>().join(","));
    let nested = |n: usize| format!(r#"{}{{"a": 1}}{}"#, r#"{"not": "#.repeat(n), "}".repeat(n));
    let list = |n: usize| format!(r#"{{"a": [{}]}}"#, vec!["1"; n].join(","));
    let path = |n: usize| format!(r#"{{"{}": 1}}"#, vec!["a"; n].join("."));
    let text = |n: usize| format!(r#"{{"a":"{}"}}"#, "x".repeat(n - 8));
    let check = |make: &dyn Fn(usize) -> String, most: usize, expected: Problem| {
        assert!(Filter::parse(&make(most)).is_ok(), "{expected}");
        assert_eq!(refusal(&make(most + 1)).problem, expected);
    };
    check(&tests, FILTER_TESTS_MAX, Problem::TooManyTests);
    check(&nested, FILTER_NESTING_MAX, Problem::TooDeep);
    check(&list, FILTER_LIST_MAX, Problem::ListTooLong { values: 101 });
    check(&path, FILTER_PATH_MAX, Problem::PathTooDeep { levels: 17 });
    check(&text, FILTER_BYTES_MAX, Problem::TooLong { bytes: 8_193 });
    assert!(matches!(refusal(&nested(100_000)).problem, Problem::NotJson { .. }));
}

#[test]
fn a_filter_is_written_back_as_it_was_read() {
    for text in [
        r#"{"z":1,"a":{"lt":9,"gte":0.1},"m":["x",null,true,-3,18446744073709551615]}"#,
        r#"{"not":{"any":[{"/a.b":{"exists":false}},{"b":null}]}}"#,
    ] {
        assert_eq!(serde_json::to_string(&Filter::parse(text).unwrap()).unwrap(), text);
        assert_eq!(serde_json::from_str::<Filter>(text).unwrap(), Filter::parse(text).unwrap());
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-c]{0,3}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 4, |inner| {
        let key = prop_oneof!["[a-c]", "all|any|not|eq|ne|gt|gte|lt|lte|in|exists|prefix|suffix|contains", ".{0,3}"];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((key, inner), 0..4).prop_map(|entries| Value::Object(entries.into_iter().collect())),
        ]
    })
}

/// Filters that are mostly accepted: one or two tests on short paths, under random combinators.
fn any_filter() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        any::<i8>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-c]{0,2}".prop_map(Value::from)
    ];
    let operator = "eq|ne|gt|gte|lt|lte|prefix|contains";
    let test = ("[a-c](\\.[a-c])?", operator, scalar)
        .prop_map(|(path, operator, operand)| serde_json::json!({path: {operator: operand}}));
    test.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 1..3).prop_map(|filters| serde_json::json!({"any": filters})),
            prop::collection::vec(inner.clone(), 1..3).prop_map(|filters| serde_json::json!({"all": filters})),
            inner.prop_map(|filter| serde_json::json!({"not": filter})),
        ]
    })
}

proptest! {
    #[test]
    fn no_filter_and_no_payload_cause_a_panic(filter in prop_oneof![any_json(), any_filter()], payload in any_json()) {
        if let Ok(filter) = Filter::parse(&filter.to_string()) {
            filter.matches(&Payload::new(payload.to_string().as_bytes()));
        }
    }

    #[test]
    fn no_text_makes_reading_a_filter_panic(text in ".*", bytes in any::<Vec<u8>>()) {
        let _ = Filter::parse(&text);
        Filter::parse(r#"{"a": 1}"#).unwrap().matches(&Payload::new(&bytes));
    }

    #[test]
    fn whatever_is_accepted_reads_back_the_same(filter in any_filter()) {
        if let Ok(read) = Filter::parse(&filter.to_string()) {
            let again = serde_json::to_string(&read).unwrap();
            prop_assert_eq!(&Filter::parse(&again).unwrap(), &read);
            prop_assert_eq!(serde_json::to_value(&read).unwrap(), filter);
        }
    }

    #[test]
    fn not_turns_every_answer_around(filter in any_filter(), payload in any_json()) {
        let negated = serde_json::json!({"not": &filter}).to_string();
        if let (Ok(plain), Ok(negated)) = (Filter::parse(&filter.to_string()), Filter::parse(&negated)) {
            let payload = payload.to_string();
            let payload = Payload::new(payload.as_bytes());
            prop_assert_ne!(plain.matches(&payload), negated.matches(&payload));
        }
    }

    #[test]
    fn integers_and_doubles_are_ordered_as_the_numbers_they_are(integer in any::<i64>(), nudge in -3..=3i64) {
        // Near its own double every integer is hardest to tell from it; as an i128 that double is exact.
        let double = integer.saturating_add(nudge) as f64;
        let expected = i128::from(integer).cmp(&(double as i128));
        let payload = format!(r#"{{"a": {integer}}}"#);
        let double = Value::from(double);
        prop_assert_eq!(matches(&format!(r#"{{"a": {{"lt": {double}}}}}"#), &payload), expected.is_lt());
        prop_assert_eq!(matches(&format!(r#"{{"a": {{"eq": {double}}}}}"#), &payload), expected.is_eq());
        prop_assert_eq!(matches(&format!(r#"{{"a": {{"gt": {double}}}}}"#), &payload), expected.is_gt());
    }
}

mod work {
    use super::*;
    use crate::filter::work::FilterLoad;

    fn contains(path: &str, operands: impl Iterator<Item = String>) -> Filter {
        let tests: Vec<Value> = operands.map(|text| serde_json::json!({ path: { "contains": text } })).collect();
        Filter::parse(&serde_json::json!({ "any": tests }).to_string()).unwrap()
    }

    /// What it costs to evaluate these filters for one event.
    fn units(filters: &[Filter], payload: &[u8]) -> u64 {
        let payload = Payload::new(payload);
        let mut evaluation = Evaluation::new(u64::MAX);
        for filter in filters {
            filter.evaluate(&payload, &mut evaluation).unwrap();
        }
        evaluation.units()
    }

    #[test]
    fn an_operand_is_searched_for_once_in_a_field_however_many_filters_ask() {
        let payload = serde_json::json!({ "a": "x".repeat(100_000), "b": "x".repeat(100_000) }).to_string();
        let filter = |path: &str, from: usize| contains(path, (from..from + 10).map(|n| format!("needle {n}")));
        let parsed = 4 * payload.len() as u64;
        let cost = |filters: &[Filter]| {
            let tests = filters.len() as u64 * 10 * 64;
            (units(filters, payload.as_bytes()) - parsed - tests) / 100_000
        };
        assert_eq!(cost(&[filter("a", 0)]), 10);
        assert_eq!(cost(&vec![filter("a", 0); 100]), 10);
        assert_eq!(cost(&[filter("a", 0), filter("a", 5)]), 15);
        assert_eq!(cost(&[filter("a", 0), filter("b", 0)]), 20, "another field");
        assert_eq!(cost(&[filter("a", 0), filter("/a", 0)]), 10, "the same field, written otherwise");
    }

    /// What stalled the server: 100 destinations with 50 `contains` each, and an event of 250 kB.
    #[test]
    fn the_filters_that_took_two_seconds_are_over_budget_and_a_fifth_of_them_is_not() {
        let of_all: Vec<Filter> =
            (0..100).map(|dst| contains("data.text", (0..50).map(|n| format!("needle {dst} {n}")))).collect();
        let load = |filters: &[Filter]| {
            let mut load = FilterLoad::default();
            filters.iter().for_each(|filter| load.add(filter));
            (load.units(256 * 1024), load.searches())
        };
        let (units, searches) = load(&of_all);
        assert!(units > super::super::work::FILTER_WORK_MAX && searches == 5_000, "{units}");
        let (units, _) = load(&of_all[..20]);
        assert!(units < super::super::work::FILTER_WORK_MAX, "{units}");
    }

    #[test]
    fn work_stops_at_the_budget_and_not_behind_it() {
        let filter = contains("a", ["needle".to_owned()].into_iter());
        let payload = serde_json::json!({ "a": "x".repeat(100_000) }).to_string();
        let exactly = units(std::slice::from_ref(&filter), payload.as_bytes());
        for (units_max, expected) in [(exactly, Ok(false)), (exactly - 1, Err(OverBudget)), (0, Err(OverBudget))] {
            let mut evaluation = Evaluation::new(units_max);
            let payload = Payload::new(payload.as_bytes());
            assert_eq!(filter.evaluate(&payload, &mut evaluation), expected);
            assert!(evaluation.units() <= units_max);
        }
        let mut evaluation = Evaluation::new(4 * payload.len() as u64 - 1);
        let payload = Payload::new(payload.as_bytes());
        assert_eq!(filter.evaluate(&payload, &mut evaluation), Err(OverBudget));
        assert!(!payload.is_parsed(), "reading it would have been too much");
    }

    fn a_value() -> impl Strategy<Value = Value> {
        let scalar = prop_oneof![
            "[ab]{0,40}".prop_map(Value::from),
            (0u8..3).prop_map(Value::from),
            Just(Value::Null),
            "[ab]{300,400}".prop_map(Value::from),
        ];
        prop_oneof![scalar.clone(), prop::collection::vec(scalar, 0..200).prop_map(Value::from)]
    }

    fn a_test() -> impl Strategy<Value = Value> {
        prop_oneof![
            6 => "[ab]{0,6}".prop_map(|text| serde_json::json!({ "contains": text })),
            2 => (0u8..3).prop_map(|n| serde_json::json!({ "contains": n })),
            1 => prop::collection::vec("[ab]{0,9}", 1..20).prop_map(|list| serde_json::json!({ "in": list })),
            1 => "[ab]{0,9}".prop_map(|text| serde_json::json!({ "ne": text, "prefix": text })),
        ]
    }

    proptest! {
        /// What is counted when filters are written bounds what they cost, whatever the payload.
        #[test]
        fn no_payload_costs_more_than_the_filters_are_said_to(
            fields in prop::collection::btree_map("[xyz]", a_value(), 0..4),
            filters in prop::collection::vec(prop::collection::vec(("[xyz]", a_test()), 1..8), 1..12),
        ) {
            let filters: Vec<Filter> = filters.into_iter().map(|tests| {
                let tests: Vec<Value> = tests.into_iter().map(|(path, test)| serde_json::json!({ path: test })).collect();
                Filter::parse(&serde_json::json!({ "any": tests }).to_string()).unwrap()
            }).collect();
            let payload = serde_json::to_string(&fields).unwrap();
            let mut load = FilterLoad::default();
            filters.iter().for_each(|filter| load.add(filter));
            prop_assert!(units(&filters, payload.as_bytes()) <= load.units(payload.len()));
        }

        /// Sharing searches changes no answer.
        #[test]
        fn together_filters_say_what_each_says_alone(
            fields in prop::collection::btree_map("[xyz]", a_value(), 0..4),
            tests in prop::collection::vec(("[xyz]", a_test()), 1..20),
        ) {
            let payload = serde_json::to_string(&fields).unwrap();
            let filters: Vec<Filter> = tests.into_iter()
                .map(|(path, test)| Filter::parse(&serde_json::json!({ path: test }).to_string()).unwrap()).collect();
            let shared = Payload::new(payload.as_bytes());
            let mut evaluation = Evaluation::new(u64::MAX);
            for filter in &filters {
                let alone = filter.matches(&Payload::new(payload.as_bytes()));
                prop_assert_eq!(filter.evaluate(&shared, &mut evaluation), Ok(alone));
            }
        }

        /// The vectorised search finds what the plain one finds.
        #[test]
        fn contains_finds_what_is_there(text in "[abü]{0,300}", part in "[abü]{0,4}") {
            let filter = Filter::parse(&serde_json::json!({ "a": { "contains": part } }).to_string()).unwrap();
            let payload = serde_json::json!({ "a": text }).to_string();
            prop_assert_eq!(filter.matches(&Payload::new(payload.as_bytes())), text.contains(&part));
        }
    }
}
