//! Structs that are read from objects alone. Derived readers also take an array, with the fields in their order: nobody
//! means that, and it would tie the order of fields in the code to the API.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::field::Field;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Object<T>(pub(crate) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Entries<T> {
            type Value = T;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<T, A::Error> {
                T::deserialize(MapAccessDeserializer::new(entries))
            }
        }

        deserializer.deserialize_map(Entries(PhantomData)).map(Self)
    }
}

/// For `#[serde(deserialize_with = "object::field")]`.
pub(crate) fn field<'de, T, D>(deserializer: D) -> Result<Field<T>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    Ok(match Field::<Object<T>>::deserialize(deserializer)? {
        Field::Absent => Field::Absent,
        Field::Null => Field::Null,
        Field::Given(Object(value)) => Field::Given(value),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    struct Pair {
        a: u8,
        b: Option<u8>,
    }

    #[derive(Deserialize)]
    struct Outer {
        #[serde(default, deserialize_with = "field")]
        pair: Field<Pair>,
    }

    #[test]
    fn an_array_is_not_an_object() {
        let read = |json: &str| serde_json::from_str::<Object<Pair>>(json).map(|object| object.0);
        assert_eq!(read(r#"{"a": 1}"#).unwrap(), Pair { a: 1, b: None });
        for wrong in ["[1, 2]", "[]", "null", "7", "\"a\""] {
            assert!(read(wrong).unwrap_err().to_string().contains("expected an object"), "{wrong}");
        }
        let read = |json: &str| serde_json::from_str::<Outer>(json).map(|outer| outer.pair);
        assert_eq!(read("{}").unwrap(), Field::Absent);
        assert_eq!(read(r#"{"pair": null}"#).unwrap(), Field::Null);
        assert_eq!(read(r#"{"pair": {"a": 1, "b": 2}}"#).unwrap(), Field::Given(Pair { a: 1, b: Some(2) }));
        assert!(read(r#"{"pair": [1, 2]}"#).is_err());
    }
}
