//! Runs every example of `docs/reference/filters.md`, so that the page cannot say what the code does not do.

use doorstep_core::filter::{self, Filter, Payload};
use doorstep_core::route::{self, EventType, TypePattern};

const PAGE: &str = include_str!("../../../docs/reference/filters.md");

#[test]
fn every_filter_on_the_page_does_what_the_page_says() {
    let mut filter = None;
    let mut refused = None;
    let mut checked = 0;
    for (kind, text) in blocks(PAGE) {
        let matches = |filter: &Option<Filter>| {
            filter.as_ref().expect("a payload stands below a filter").matches(&Payload::new(text.as_bytes()))
        };
        match kind {
            "json filter" => filter = Some(Filter::parse(&text).unwrap()),
            "json matches" => assert!(matches(&filter), "should match: {text}"),
            "json does-not-match" | "text does-not-match" => assert!(!matches(&filter), "should not match: {text}"),
            "json refused" => refused = Some(Filter::parse(&text).unwrap_err()),
            "text because" => assert_eq!(refused.take().expect("below a refusal").to_string(), text.trim_end()),
            other => panic!("a block of an unknown kind: {other}"),
        }
        checked += 1;
    }
    assert!(checked >= 25, "only {checked} examples were found");
}

#[test]
fn every_pattern_on_the_page_does_what_the_page_says() {
    let mut checked = 0;
    for line in PAGE.lines().filter(|line| line.ends_with("| yes |") || line.ends_with("| no |")) {
        let cells: Vec<&str> = line.split('|').map(|cell| cell.trim().trim_matches('`')).collect();
        let [_, pattern, name, expected, _] = cells[..] else { panic!("not three cells: {line}") };
        let pattern: TypePattern = pattern.parse().unwrap();
        let name: EventType = name.parse().unwrap();
        assert_eq!(pattern.matches(&name), expected == "yes", "{line}");
        checked += 1;
    }
    assert!(checked >= 10, "only {checked} examples were found");
}

#[test]
fn the_limits_on_the_page_are_those_in_the_code() {
    for (what, limit) in [
        ("bytes in an event type or a pattern", route::EVENT_TYPE_LEN_MAX),
        ("segments in an event type or a pattern", route::EVENT_TYPE_SEGMENTS_MAX),
        ("patterns per destination", route::PATTERNS_MAX),
        ("bytes in a filter, without spaces", filter::FILTER_BYTES_MAX),
        ("tests in a filter", filter::FILTER_TESTS_MAX),
        ("`all`, `any`, `not` within each other", filter::FILTER_NESTING_MAX),
        ("values in an `in` list", filter::FILTER_LIST_MAX),
        ("levels in a path", filter::FILTER_PATH_MAX),
    ] {
        assert!(PAGE.contains(&format!("| {what} | {limit} |")), "{what}: {limit}");
    }
}

/// The fenced blocks of a page, each with what follows its opening fence.
fn blocks(page: &str) -> Vec<(&str, String)> {
    let mut blocks: Vec<(&str, String)> = Vec::new();
    let mut inside = false;
    for line in page.lines() {
        match line.strip_prefix("```") {
            Some(kind) if !inside => blocks.push((kind, String::new())),
            Some(_) => {}
            None if inside => {
                let (_, text) = blocks.last_mut().expect("a block was opened");
                text.push_str(line);
                text.push('\n');
            }
            None => {}
        }
        inside ^= line.starts_with("```");
    }
    blocks
}
