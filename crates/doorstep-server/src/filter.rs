//! What people ask for in lists: one grammar for the API, the commands and bulk actions.

use doorstep_core::similar::nearest;
use doorstep_core::store::{Codes, Statuses};

use crate::problem::Problem;

const STATUSES: [(&str, Statuses); 5] = [
    ("queued", Statuses::QUEUED),
    ("retry_scheduled", Statuses::RETRY_SCHEDULED),
    ("delivered", Statuses::DELIVERED),
    ("dead", Statuses::DEAD),
    ("failed", Statuses::RETRY_SCHEDULED.or(Statuses::DEAD)),
];

/// States with commas between them.
pub(crate) fn statuses(text: &str) -> Result<Statuses, Problem> {
    let one = |name: &str| {
        let known = STATUSES.iter().find(|(known, _)| *known == name).map(|(_, statuses)| *statuses);
        known.ok_or_else(|| {
            let names = STATUSES.map(|(known, _)| known);
            let near = nearest(name, names).map_or(String::new(), |near| format!("did you mean `{near}`? "));
            Problem::invalid_at("?status", format!("`{name}` is none: {near}there are {}", names.join(", ")))
        })
    };
    let mut all = text.split(',').map(str::trim).map(one);
    let first = all.next().unwrap_or(Ok(Statuses::ANY));
    all.fold(first, |sum, next| Ok(sum?.or(next?)))
}

/// `503`, or `5xx`.
pub(crate) fn codes(text: &str) -> Result<Codes, Problem> {
    let class = text.strip_suffix("xx").filter(|class| class.len() == 1);
    let codes = match class {
        Some(class) => class.parse().ok().map(|class: u16| Codes { from: class * 100, to: class * 100 + 99 }),
        None => text.parse().ok().map(Codes::one),
    };
    let codes = codes.filter(|codes| (100..=599).contains(&codes.from));
    codes.ok_or_else(|| Problem::invalid_at("?code", "is a status code, such as 503, or a class of them, such as 5xx"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_listed_with_commas() {
        assert_eq!(statuses("dead").unwrap(), Statuses::DEAD);
        assert_eq!(statuses("queued, delivered").unwrap(), Statuses::QUEUED.or(Statuses::DELIVERED));
        assert_eq!(statuses("failed,dead").unwrap(), Statuses::RETRY_SCHEDULED.or(Statuses::DEAD));
        for wrong in ["", "deda", "dead,", "in_flight"] {
            assert!(statuses(wrong).is_err(), "{wrong:?}");
        }
        let told = serde_json::to_string(&statuses("deliverd").unwrap_err()).unwrap();
        assert!(told.contains("did you mean `delivered`?"), "{told}");
    }

    #[test]
    fn a_code_is_one_or_a_class() {
        assert_eq!(codes("503").unwrap(), Codes::one(503));
        assert_eq!(codes("5xx").unwrap(), Codes { from: 500, to: 599 });
        for wrong in ["", "xx", "0xx", "6xx", "55xx", "99", "600", "70000", "5XX ", "é"] {
            assert!(codes(wrong).is_err(), "{wrong:?}");
        }
    }
}
