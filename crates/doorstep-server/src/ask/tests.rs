//! What is wrong with a query, and what is said of it.

use doorstep_core::search::{DeliveryFilter, EventFilter};
use doorstep_core::store::Statuses;
use serde_json::Value;

use super::*;

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Things {
    name: Option<String>,
    count: Option<usize>,
    colour: Option<Colour>,
    since: i64,
    #[serde(default)]
    bright: bool,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Colour {
    DeepBlue,
    Green,
}

fn things(query: &str) -> Result<Things, Problem> {
    pairs::read(given(&format!("/v1/things?{query}").parse().unwrap())?)
}

fn list<F: Search>(query: &str) -> Result<List<F>, Problem> {
    List::read(given(&format!("/v1/things?{query}").parse().unwrap())?)
}

/// The place of the one fault, and what is said of it.
fn told<T: std::fmt::Debug>(read: Result<T, Problem>) -> (String, String) {
    let problem = serde_json::to_value(read.unwrap_err()).unwrap();
    let [fault] = problem["errors"].as_array().unwrap().as_slice() else { panic!("{problem}") };
    let text = |of: &Value| of.as_str().unwrap().to_owned();
    assert_eq!(problem["status"], 422);
    (text(&fault["pointer"]), text(&fault["detail"]))
}

#[test]
fn a_query_is_read_into_types() {
    let read = things("name=caf%C3%A9+1&count=3&colour=deep_blue&since=-5&bright=true").unwrap();
    let (name, count, colour) = (Some("café 1".to_owned()), Some(3), Some(Colour::DeepBlue));
    assert_eq!(read, Things { name, count, colour, since: -5, bright: true });
    assert_eq!(things("since=1").unwrap().name, None);
}

#[test]
fn a_fault_names_its_parameter_and_what_there_is_instead() {
    let long = format!("{}=1&since=1", "n".repeat(4_000));
    for (query, pointer, part) in [
        (
            "since=1&cuont=2",
            "?cuont",
            "`cuont` is none: did you mean `count`? there are name, count, colour, since, bright",
        ),
        ("since=1&q=2", "?q", "`q` is none: there are name, count"),
        ("since=1&count=x", "?count", "is not a number that can stand here: invalid digit"),
        ("since=1&count=-1", "?count", "is not a number that can stand here"),
        ("since=1&count=99999999999999999999", "?count", "is not a number that can stand here: number too large"),
        ("since=1&colour=gren", "?colour", "`gren` is none: did you mean `green`? there are deep_blue, green"),
        ("since=1&bright=yes", "?bright", "`yes` is none: there are true, false"),
        ("since=1&since=2", "?since", "is given twice"),
        ("name=a", "?since", "is missing"),
        (&long, &format!("?{}", "n".repeat(64)), "`nnn"),
    ] {
        let (at, detail) = told(things(query));
        assert_eq!(at, pointer);
        assert!(detail.starts_with(part) && detail.len() < 200, "{query}: {detail}");
    }
    assert_eq!(told(things(&"a".repeat(QUERY_BYTES_MAX + 1))).0, "?");
}

#[test]
fn a_list_is_asked_for_a_page_of_what_fits() {
    let read: List<DeliveryFilter> = list("limit=3&status=dead&cursor=abc").unwrap();
    assert_eq!((read.limit, read.cursor.as_deref(), read.filter.statuses), (Some(3), Some("abc"), Statuses::DEAD));
    let read: List<EventFilter> = list("").unwrap();
    assert_eq!((read.limit, read.cursor, read.filter), (None, None, EventFilter::default()));
}

#[test]
fn a_list_says_what_can_be_asked_of_it() {
    for (query, pointer, part) in [
        ("statsu=dead", "?statsu", "`statsu` is none: did you mean `status`? there are status, type"),
        ("statsu=dead", "?statsu", "created_before, limit, cursor"),
        ("limt=1", "?limt", "did you mean `limit`?"),
        ("q=text", "?q", "`q` is none: there are status"),
        ("status=dead&status=queued", "?status", "is given twice"),
        ("limit=1&limit=2", "?limit", "is given twice"),
        ("reason=expird", "?reason", "did you mean `expired`? there are exhausted, expired, rejected, abandoned"),
        ("type=a..b", "?type", "`a..b`: segment 2 is empty"),
    ] {
        let (at, detail) = told(list::<DeliveryFilter>(query));
        assert_eq!(at, pointer);
        assert!(detail.contains(part), "{query}: {detail}");
    }
    assert!(told(list::<EventFilter>("status=dead")).1.contains("there are type, tenant_id, ordering_key"));
}
