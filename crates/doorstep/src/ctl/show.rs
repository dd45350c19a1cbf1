//! The server's objects, for people, for programs, and for pipes.

use anyhow::Context;
use doorstep_core::time::Timestamp;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::{Form, moment, table};
use crate::failure::Failure;

/// A cell of a table is cut here: a receiver's answer may be long.
const CELL_CHARS_MAX: usize = 100;

/// Objects whose fields have lines of their own, such as `learned.since`.
const SPREAD: &[&str] = &["learned", "recovering"];

/// How things of one kind are shown.
pub(super) struct Kind {
    /// What `--quiet` prints: a JSON pointer.
    pub(super) id: &'static str,
    /// Headings, and where what stands under them is found.
    pub(super) columns: &'static [(&'static str, &'static str)],
    /// A list within the object that is shown as a table below it.
    pub(super) within: Option<(&'static str, &'static [(&'static str, &'static str)])>,
}

pub(super) fn many(kind: &Kind, objects: &[Box<RawValue>], form: Form) -> Result<String, Failure> {
    match form {
        Form::Json => Ok(objects.iter().map(|object| format!("{}\n", object.get())).collect()),
        Form::Quiet => objects.iter().map(|object| id(kind, object.get())).collect(),
        Form::People => {
            let objects = objects.iter().map(|object| value(object.get())).collect::<Result<Vec<_>, _>>()?;
            Ok(rows(kind.columns, &objects, moment::now()))
        }
    }
}

pub(super) fn one(kind: &Kind, object: &str, form: Form) -> Result<String, Failure> {
    match form {
        Form::Json => Ok(format!("{}\n", object.trim_end())),
        Form::Quiet => id(kind, object),
        Form::People => people(kind, object, moment::now()),
    }
}

/// The columns without their headings.
pub(super) fn line(kind: &Kind, object: &str) -> Result<String, Failure> {
    let rows = rows(kind.columns, &[value(object)?], moment::now());
    Ok(rows.lines().skip(1).map(|line| format!("{line}\n")).collect())
}

fn id(kind: &Kind, object: &str) -> Result<String, Failure> {
    Ok(format!("{}\n", value(object)?.pointer(kind.id).and_then(Value::as_str).unwrap_or("-")))
}

fn value(object: &str) -> Result<Value, Failure> {
    Ok(serde_json::from_str(object).context("the answer is not what this version expects: is it a Doorstep server?")?)
}

fn rows(columns: &[(&str, &str)], objects: &[Value], now: Timestamp) -> String {
    let mut rows = vec![columns.iter().map(|(heading, _)| (*heading).to_owned()).collect()];
    for object in objects {
        let cell = |at: &str| object.pointer(at).map_or_else(|| "-".to_owned(), |value| short(cell(at, value, now)));
        rows.push(columns.iter().map(|(_, at)| cell(at)).collect());
    }
    table::aligned(&rows)
}

/// Field by field, in the server's order.
fn people(kind: &Kind, object: &str, now: Timestamp) -> Result<String, Failure> {
    let within = kind.within.map_or("", |(name, _)| name);
    let mut lines = Vec::new();
    for (name, raw) in in_order(object)? {
        if name == within {
            continue;
        }
        if SPREAD.contains(&name.as_str()) && raw.get().starts_with('{') {
            for (part, raw) in in_order(raw.get())? {
                lines.push(vec![format!("{name}.{part}"), shown(&part, &raw, now)?]);
            }
            continue;
        }
        let shown = shown(&name, &raw, now)?;
        lines.push(vec![name, shown]);
    }
    let mut text = table::aligned(&lines);
    if let Some((name, columns)) = kind.within
        && let Value::Array(objects) = &value(object)?[name]
        && !objects.is_empty()
    {
        text.push_str(&format!("\n{}", rows(columns, objects, now)));
    }
    Ok(text)
}

fn shown(name: &str, raw: &RawValue, now: Timestamp) -> Result<String, Failure> {
    let value = value(raw.get())?;
    let exact = value.as_str().filter(|_| is_time(name)).and_then(|text| Some((text, moment::exact(text)?)));
    Ok(match exact {
        Some((text, at)) => format!("{} ({text})", moment::relative(at, now)),
        // As it was written, on as many lines.
        None if value.is_object() => raw.get().lines().map(table::tame).collect::<Vec<_>>().join("\n"),
        None => cell(name, &value, now),
    })
}

fn cell(name: &str, value: &Value, now: Timestamp) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) if is_time(name) => {
            moment::exact(text).map_or_else(|| table::tame(text), |at| moment::relative(at, now))
        }
        Value::String(text) => table::tame(text),
        Value::Array(values) if values.is_empty() => "-".to_owned(),
        Value::Array(values) if values.iter().all(Value::is_string) => {
            table::tame(&values.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(","))
        }
        Value::Object(fields) if fields.is_empty() => "-".to_owned(),
        other => table::tame(&other.to_string()),
    }
}

fn short(cell: String) -> String {
    match cell.char_indices().nth(CELL_CHARS_MAX) {
        Some((end, _)) => format!("{}…", cell.get(..end).unwrap_or_default()),
        None => cell,
    }
}

fn is_time(name: &str) -> bool {
    name.ends_with("_at") || name.ends_with("until") || name.ends_with("/at") || name == "at" || name == "since"
}

/// An object's fields as they were written.
fn in_order(object: &str) -> Result<Vec<(String, Box<RawValue>)>, Failure> {
    struct Fields;
    impl<'de> Visitor<'de> for Fields {
        type Value = Vec<(String, Box<RawValue>)>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
            let mut fields = Vec::new();
            while let Some(field) = map.next_entry()? {
                fields.push(field);
            }
            Ok(fields)
        }
    }
    let fields = serde_json::Deserializer::from_str(object).deserialize_map(Fields);
    Ok(fields.context("the answer is not what this version expects: is it a Doorstep server?")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: Kind = Kind {
        id: "/id",
        columns: &[("ID", "/id"), ("MADE", "/made_at")],
        within: Some(("attempts", &[("NO", "/number"), ("STARTED", "/started_at")])),
    };
    const OBJECT: &str = r#"{"id":"dlv_1","made_at":"1970-01-01T00:00:00.000Z","note":null,"b":{"z":1.0,"a":2},"types":["a","b"],
        "attempts":[{"number":1,"started_at":"1970-01-01T00:01:00.000Z"}]}"#;

    #[test]
    fn people_see_fields_in_the_servers_order_and_times_from_here() {
        let shown = people(&KIND, OBJECT, Timestamp::from_secs(120)).unwrap();
        let expected = "id       dlv_1\nmade_at  2m ago (1970-01-01T00:00:00.000Z)\nnote     -\nb        {\"z\":1.0,\"a\":2}\n\
                        types    a,b\n\nNO  STARTED\n1   1m ago\n";
        assert_eq!(shown, expected);
        assert_eq!(
            rows(KIND.columns, &[value(OBJECT).unwrap()], Timestamp::from_secs(120)),
            "ID     MADE\ndlv_1  2m ago\n"
        );
    }

    #[test]
    fn what_was_learned_has_a_line_for_each_of_its_fields() {
        let object =
            r#"{"learned":{"per_second":4.5,"since":"1970-01-01T00:00:00.000Z","next_probe_at":null},"id":"dst_1"}"#;
        let expected = "learned.per_second     4.5\nlearned.since          2m ago (1970-01-01T00:00:00.000Z)\n\
                        learned.next_probe_at  -\nid                     dst_1\n";
        assert_eq!(people(&KIND, object, Timestamp::from_secs(120)).unwrap(), expected);
        assert_eq!(people(&KIND, r#"{"learned":null}"#, Timestamp(0)).unwrap(), "learned  -\n");
    }

    #[test]
    fn what_receivers_said_neither_fills_nor_steers_the_screen() {
        let said = serde_json::json!({"id": format!("\u{9b}2J{}", "é".repeat(500))});
        let table = rows(&[("ID", "/id")], &[said], Timestamp(0));
        assert_eq!(table, format!("ID\n\u{fffd}2J{}…\n", "é".repeat(CELL_CHARS_MAX - 3)));
        let nested = people(&KIND, "{\"b\":{\"a\":\"\u{9b}2J\"}}", Timestamp(0)).unwrap();
        assert!(!nested.contains('\u{9b}'), "{nested:?}");
    }

    #[test]
    fn pipes_get_ids_and_programs_what_the_server_wrote() {
        assert_eq!(one(&KIND, OBJECT, Form::Quiet).unwrap(), "dlv_1\n");
        assert_eq!(one(&KIND, OBJECT, Form::Json).unwrap(), format!("{OBJECT}\n"));
    }
}
