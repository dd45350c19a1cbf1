//! How much of its quota a receiver says is left, and until when: the `RateLimit` fields of the IETF draft, the
//! dictionary form of its older versions, and the `X-RateLimit-*` headers that came before both.

use sfv::{BareItem, Dictionary, FieldType, Item, List, ListEntry, Parameters, Parser};

use super::retry_after::{Number, digits, wait, wait_in_secs};
use super::{Field, Lines};
use crate::time::{Millis, Timestamp};

/// One quota that an answer tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Quota {
    remaining: Option<u64>,
    resets_in: Option<Millis>,
}

/// Every quota that the answer tells of, in whichever form. A malformed field tells of none.
pub(super) fn quotas(lines: &Lines<'_>, clock: Timestamp) -> Vec<Quota> {
    let mut quotas = match field::<List>(lines, Field::RateLimit) {
        Some(list) => named_quotas(&list, &policies(lines), clock),
        None => field::<Dictionary>(lines, Field::RateLimit).and_then(|d| only_quota(&d, clock)).into_iter().collect(),
    };
    quotas.extend(legacy_quota(lines, clock));
    quotas
}

/// When the quota that governs is full again. With the least left governs, and among equals the latest reset: so a
/// spent quota goes before any other. One that gives no count speaks only where the governing one gives no reset.
pub(super) fn governing_reset(quotas: &[Quota]) -> Option<Millis> {
    let with = |left: Option<u64>| quotas.iter().filter(move |q| q.remaining == left).filter_map(|q| q.resets_in).max();
    with(least_remaining(quotas)).or_else(|| with(None))
}

pub(super) fn least_remaining(quotas: &[Quota]) -> Option<u64> {
    quotas.iter().filter_map(|q| q.remaining).min()
}

/// Header lines of one name are one field (RFC 9651, 4.2): a malformed line spoils all of it.
fn field<T: FieldType>(lines: &Lines<'_>, name: Field) -> Option<T> {
    let whole = lines.of(name).collect::<Vec<_>>().join(", ");
    if whole.is_empty() { None } else { Parser::new(&whole).parse().ok() }
}

/// `RateLimit: "burst";r=0;t=5, "daily";r=900;t=3600`
fn named_quotas(list: &List, policies: &[Policy], clock: Timestamp) -> Vec<Quota> {
    named_items(list).filter_map(|(name, params)| named_quota(name, params, policies, clock)).collect()
}

fn named_quota(name: &str, params: &Parameters, policies: &[Policy], clock: Timestamp) -> Option<Quota> {
    let policy = policies.iter().find(|policy| policy.name == name);
    let remaining = count(params.get("r")?)?;
    // Bytes or connections left are no count of requests: such a quota speaks only once it is spent.
    if remaining > 0 && policy.is_some_and(|policy| !policy.in_requests) {
        return None;
    }
    let resets_in = match params.get("t") {
        Some(t) => seconds(t, clock),
        // Spent, and not until when: it is full again after one window at the latest.
        None if remaining == 0 => policy.and_then(|policy| policy.window),
        None => None,
    };
    Some(Quota { remaining: Some(remaining), resets_in })
}

/// `RateLimit: limit=100, remaining=0, reset=5`
fn only_quota(dictionary: &Dictionary, clock: Timestamp) -> Option<Quota> {
    let member = |key: &str| match dictionary.get(key)? {
        ListEntry::Item(item) => Some(&item.bare_item),
        ListEntry::InnerList(_) => None,
    };
    let remaining = member("remaining").and_then(count);
    let resets_in = member("reset").and_then(|reset| seconds(reset, clock));
    told(remaining, resets_in)
}

/// `X-RateLimit-Remaining: 0` and `X-RateLimit-Reset: 1771404540`, in all spellings: one quota, told once per spelling.
fn legacy_quota(lines: &Lines<'_>, clock: Timestamp) -> Option<Quota> {
    let remaining = lines.of(Field::QuotaRemaining).filter_map(digits).min();
    let resets_in = lines.of(Field::QuotaReset).filter_map(|value| wait(value, clock)).max();
    told(remaining, resets_in)
}

fn told(remaining: Option<u64>, resets_in: Option<Millis>) -> Option<Quota> {
    (remaining.is_some() || resets_in.is_some()).then_some(Quota { remaining, resets_in })
}

/// What `RateLimit-Policy: "burst";q=100;w=60` says of a quota beyond its size: its window and its unit.
struct Policy {
    name: String,
    window: Option<Millis>,
    in_requests: bool,
}

fn policies(lines: &Lines<'_>) -> Vec<Policy> {
    let list: List = field(lines, Field::RateLimitPolicy).unwrap_or_default();
    named_items(&list).filter_map(|(name, params)| policy(name, params)).collect()
}

fn policy(name: &str, params: &Parameters) -> Option<Policy> {
    count(params.get("q")?)?;
    let window = params.get("w").and_then(count).filter(|secs| *secs > 0).map(Millis::from_secs);
    let in_requests = params.get("qu").and_then(|unit| unit.as_string()).is_none_or(|unit| unit.as_str() == "requests");
    Some(Policy { name: name.to_owned(), window, in_requests })
}

fn named_items(list: &List) -> impl Iterator<Item = (&str, &Parameters)> {
    list.iter().filter_map(|entry| match entry {
        ListEntry::Item(Item { bare_item, params }) => Some((bare_item.as_string()?.as_str(), params)),
        ListEntry::InnerList(_) => None,
    })
}

fn count(item: &BareItem) -> Option<u64> {
    u64::try_from(item.as_integer()?).ok()
}

/// The draft counts seconds from now. A Unix time, which some send, is told by its size as in `Retry-After`.
fn seconds(item: &BareItem, clock: Timestamp) -> Option<Millis> {
    wait_in_secs(Number::whole(count(item)?), clock)
}
