//! Names and values as something that serde reads from: so that a fault knows its parameter, and what could stand there instead.

use std::fmt::{self, Display};
use std::str::FromStr;
use std::vec::IntoIter;

use doorstep_core::similar::none_of;
use serde::de::value::{MapAccessDeserializer, StringDeserializer};
use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, Error, IntoDeserializer, MapAccess, Visitor};
use serde::forward_to_deserialize_any;

use super::at;
use crate::problem::Problem;

pub(super) fn read<T: DeserializeOwned>(given: Vec<(String, String)>) -> Result<T, Problem> {
    let pairs = Pairs { left: given.into_iter(), read: None };
    T::deserialize(MapAccessDeserializer::new(pairs))
        .map_err(|fault| at(fault.name.as_deref().unwrap_or_default(), fault.detail))
}

/// What is wrong, and under which name.
#[derive(Debug)]
struct Fault {
    name: Option<String>,
    detail: String,
}

impl Fault {
    fn new(name: Option<&str>, detail: impl Display) -> Self {
        Self { name: name.map(str::to_owned), detail: detail.to_string() }
    }
}

impl Error for Fault {
    fn custom<T: Display>(told: T) -> Self {
        Self::new(None, told)
    }

    fn unknown_field(name: &str, known: &'static [&'static str]) -> Self {
        Self::new(Some(name), none_of(name, known))
    }

    fn unknown_variant(given: &str, known: &'static [&'static str]) -> Self {
        Self::new(None, none_of(given, known))
    }

    fn missing_field(name: &'static str) -> Self {
        Self::new(Some(name), "is missing")
    }

    fn duplicate_field(name: &'static str) -> Self {
        Self::new(Some(name), "is given twice: give it once")
    }
}

impl Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

impl std::error::Error for Fault {}

struct Pairs {
    left: IntoIter<(String, String)>,
    /// A pair whose name was read and whose value is next.
    read: Option<(String, String)>,
}

impl<'de> MapAccess<'de> for Pairs {
    type Error = Fault;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Fault> {
        self.read = self.left.next();
        let Some((name, _)) = &self.read else { return Ok(None) };
        let name: StringDeserializer<Fault> = name.clone().into_deserializer();
        seed.deserialize(name).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Fault> {
        let (name, text) = self.read.take().unwrap_or_default();
        seed.deserialize(Text(text)).map_err(|fault| Fault { name: fault.name.or(Some(name)), ..fault })
    }
}

/// A value: text, and whatever that can be read as.
struct Text(String);

impl Text {
    fn number<T: FromStr<Err: Display>>(&self) -> Result<T, Fault> {
        self.0
            .parse()
            .map_err(|fault: T::Err| Fault::new(None, format!("is not a number that can stand here: {fault}")))
    }
}

macro_rules! numbers {
    ($($method:ident $visit:ident,)*) => {
        $(
            fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
                visitor.$visit(self.number()?)
            }
        )*
    };
}

impl<'de> Deserializer<'de> for Text {
    type Error = Fault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_string(self.0)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        visitor.visit_enum(IntoDeserializer::<Fault>::into_deserializer(self.0))
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        let read = self.0.parse().map_err(|_| Fault::new(None, none_of(&self.0, &["true", "false"])))?;
        visitor.visit_bool(read)
    }

    numbers! {
        deserialize_u8 visit_u8,
        deserialize_u16 visit_u16,
        deserialize_u32 visit_u32,
        deserialize_u64 visit_u64,
        deserialize_i8 visit_i8,
        deserialize_i16 visit_i16,
        deserialize_i32 visit_i32,
        deserialize_i64 visit_i64,
        deserialize_f32 visit_f32,
        deserialize_f64 visit_f64,
    }

    forward_to_deserialize_any! {
        char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}
