//! `doorstep.toml`: flat keys, each with the line that it stands in.

use std::path::Path;

use serde_json::Value;
use toml::de::{DeString, DeTable, DeValue};

use super::{ConfigFaults, Given, Givens, KEYS, Origin, Shape, similar, text_file};

pub(super) fn read(path: &Path, faults: &mut ConfigFaults) -> Givens {
    match text_file::read(path) {
        Ok(text) => parse(path, &text, faults),
        Err(fault) => {
            faults.add(format!("the configuration file {} cannot be read: {fault}", path.display()));
            Givens::new()
        }
    }
}

fn parse(path: &Path, text: &str, faults: &mut ConfigFaults) -> Givens {
    // What can be read is read, so that one missing quote does not hide every other fault.
    let (table, broken) = DeTable::parse_recoverable(text);
    for fault in &broken {
        let line = line_of(text, fault.span().map_or(0, |span| span.start));
        faults.add(format!("{} line {line}: {}", path.display(), fault.message()));
    }
    let mut given = Givens::new();
    for (name, value) in table.get_ref() {
        let line = line_of(text, name.span().start);
        let Some(key) = KEYS.iter().find(|key| key.name == name.get_ref()) else {
            let name = name.get_ref();
            let instead = similar::suggestion(name, KEYS.iter().map(|key| key.name));
            faults.add(format!("unknown key `{name}` in {} line {line}{instead}", path.display()));
            continue;
        };
        match as_text(key.shape, value.get_ref()) {
            Some(text) => {
                given.insert(key.name, Given { text, origin: Origin::File { path: path.to_owned(), line } });
            }
            None if broken.is_empty() => {
                let kind = value.get_ref().type_str();
                faults.add(format!("{} in {} line {line} cannot be of type {kind}", key.name, path.display()));
            }
            // Half a value, whose fault is told already.
            None => {}
        }
    }
    given
}

/// A value as a flag or a variable would write it.
fn as_text(shape: Shape, value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::Table(_) if shape == Shape::Json => as_json(value).map(|json| json.to_string()),
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => {
            i64::from_str_radix(number.as_str(), number.radix()).ok().map(|number| number.to_string())
        }
        DeValue::Array(items) => {
            let items: Option<Vec<String>> = items.iter().map(|item| as_text(shape, item.get_ref())).collect();
            Some(items?.join(","))
        }
        DeValue::Boolean(value) if shape == Shape::Switch => Some(value.to_string()),
        DeValue::Float(_) | DeValue::Boolean(_) | DeValue::Datetime(_) | DeValue::Table(_) => None,
    }
}

/// A table as JSON writes it. There are no dates in it.
fn as_json(value: &DeValue<'_>) -> Option<Value> {
    Some(match value {
        DeValue::String(text) => Value::from(text.as_ref()),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix()).ok()?.into(),
        DeValue::Float(number) => number.as_str().parse::<f64>().ok()?.into(),
        DeValue::Boolean(value) => Value::from(*value),
        DeValue::Array(items) => items.iter().map(|item| as_json(item.get_ref())).collect::<Option<Vec<_>>>()?.into(),
        DeValue::Table(fields) => {
            let field = |(name, value): (&toml::Spanned<DeString<'_>>, &toml::Spanned<DeValue<'_>>)| {
                Some((name.get_ref().to_string(), as_json(value.get_ref())?))
            };
            Value::Object(fields.iter().map(field).collect::<Option<_>>()?)
        }
        DeValue::Datetime(_) => return None,
    })
}

fn line_of(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1
}
