//! A field of a change: left out, taken away, or given (RFC 7396).

use serde::{Deserialize, Deserializer};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Field<T> {
    /// As it was.
    #[default]
    Absent,
    /// As if it had never been given.
    Null,
    Given(T),
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Field<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Option::deserialize(deserializer)?.map_or(Self::Null, Self::Given))
    }
}

impl<T> Field<T> {
    /// The new value, if there is one: `default` where it was taken away.
    pub(crate) fn or_default(self, default: impl FnOnce() -> T) -> Option<T> {
        match self {
            Self::Absent => None,
            Self::Null => Some(default()),
            Self::Given(value) => Some(value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct Change {
        #[serde(default)]
        n: Field<u8>,
    }

    #[test]
    fn left_out_is_not_the_same_as_null() {
        let read = |json: &str| serde_json::from_str::<Change>(json).unwrap().n;
        assert_eq!(read("{}"), Field::Absent);
        assert_eq!(read(r#"{"n": null}"#), Field::Null);
        assert_eq!(read(r#"{"n": 7}"#), Field::Given(7));
        assert_eq!(read(r#"{"n": null}"#).or_default(|| 3), Some(3));
    }
}
