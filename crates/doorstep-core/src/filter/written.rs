//! JSON as its author wrote it: names stay in order, and a name given twice is still there to be refused.

use std::fmt;

use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Number;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Written {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Written>),
    Object(Vec<(String, Written)>),
}

impl Serialize for Written {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Number(value) => value.serialize(serializer),
            Self::Text(value) => serializer.serialize_str(value),
            Self::List(values) => serializer.collect_seq(values),
            Self::Object(entries) => serializer.collect_map(entries.iter().map(|(key, value)| (key, value))),
        }
    }
}

impl<'de> Deserialize<'de> for Written {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyJson)
    }
}

struct AnyJson;

impl<'de> Visitor<'de> for AnyJson {
    type Value = Written;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E>(self) -> Result<Written, E> {
        Ok(Written::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Written, E> {
        Ok(Written::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Written, E> {
        Ok(Written::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Written, E> {
        Ok(Written::Number(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Written, E> {
        Number::from_f64(value).map(Written::Number).ok_or_else(|| E::custom("a number has to be finite"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Written, E> {
        Ok(Written::Text(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Written, E> {
        Ok(Written::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Written, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = seq.next_element()? {
            values.push(value);
        }
        Ok(Written::List(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Written, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Written::Object(entries))
    }
}
