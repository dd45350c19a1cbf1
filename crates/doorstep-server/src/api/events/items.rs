//! The events of a batch, as they stand there. Of more than a batch may have, none is kept.

use std::fmt;

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::BATCH_MAX;

#[derive(Debug)]
pub(crate) struct Items<'a>(pub(crate) Vec<&'a RawValue>);

impl<'de: 'a, 'a> Deserialize<'de> for Items<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Few;

        impl<'de> Visitor<'de> for Few {
            type Value = Items<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array of events")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Items<'de>, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = all.next_element()? {
                    if items.len() == BATCH_MAX {
                        return Err(A::Error::custom(format!(
                            "a batch has 1 to {BATCH_MAX} events, but this has more"
                        )));
                    }
                    items.push(item);
                }
                Ok(Items(items))
            }
        }

        deserializer.deserialize_seq(Few)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::events::NewBatch;
    use crate::body;
    use crate::object::Object;

    #[test]
    fn what_is_too_much_is_not_read_to_its_end() {
        let of = |n: usize, end: &str| format!("[{}{end}", vec!["1"; n].join(","));
        let all = of(BATCH_MAX, "]");
        assert_eq!(body::parse::<Items<'_>>(all.as_bytes()).unwrap().0.len(), BATCH_MAX);
        // Behind the one that is too many, nothing is looked at.
        for more in [of(BATCH_MAX + 1, "]"), of(BATCH_MAX + 1, ",nonsense")] {
            let told = serde_json::from_str::<Items<'_>>(&more).unwrap_err().to_string();
            assert!(told.contains("1 to 1000 events, but this has more"), "{told}");
        }
        let body = format!(r#"{{"events": {}}}"#, of(BATCH_MAX + 1, "]"));
        let problem = body::parse::<Object<NewBatch<'_>>>(body.as_bytes()).unwrap_err();
        let problem = serde_json::to_value(problem).unwrap();
        assert_eq!(
            (&problem["status"], &problem["errors"][0]["pointer"]),
            (&422.into(), &"/events".into()),
            "{problem}"
        );
    }
}
