//! Of several kinds of content, some makers of clients take the first: that is to be JSON.

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Value;

/// Written with `application/json` before its neighbours.
pub(super) struct JsonFirst<'a>(pub(super) &'a Value);

const JSON: &str = "application/json";

impl Serialize for JsonFirst<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Object(fields) => {
                let (first, others): (Vec<_>, Vec<_>) = fields.iter().partition(|(name, _)| *name == JSON);
                let mut map = serializer.serialize_map(Some(fields.len()))?;
                for (name, value) in first.into_iter().chain(others) {
                    map.serialize_entry(name, &JsonFirst(value))?;
                }
                map.end()
            }
            Value::Array(items) => serializer.collect_seq(items.iter().map(JsonFirst)),
            plain @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => plain.serialize(serializer),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn json_comes_first_and_nothing_is_lost() {
        let value = json!([{"content": {"application/cloudevents+json": 1, "application/json": [null, true]}}]);
        let text = serde_json::to_string(&JsonFirst(&value)).unwrap();
        assert_eq!(text, r#"[{"content":{"application/json":[null,true],"application/cloudevents+json":1}}]"#);
    }
}
