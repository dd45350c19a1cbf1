//! Event types against patterns, in SQL: `event_type match patterns`, with commas between the patterns.

use doorstep_core::route::{EventType, TypePattern, TypePatterns};
use doorstep_core::search::read_types;
use rusqlite::functions::{Context, FunctionFlags};
use rusqlite::types::Value;
use rusqlite::{Connection, Result};

/// What SQLite calls for `x match y`, with `y` first.
const FUNCTION: &str = "match";

pub(super) fn register(sql: &Connection) -> Result<()> {
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC | FunctionFlags::SQLITE_DIRECTONLY;
    sql.create_scalar_function(FUNCTION, 2, flags, matches)
}

fn matches(call: &Context<'_>) -> Result<bool> {
    // The patterns are the same for every row: they are read once.
    let patterns = call
        .get_or_create_aux(0, |text| -> std::result::Result<TypePatterns, Fault> { Ok(read_types(text.as_str()?)?) })?;
    let name: std::result::Result<EventType, _> = call.get_raw(1).as_str()?.parse();
    name.map(|name| patterns.matches(&name)).map_err(|fault| rusqlite::Error::UserFunctionError(Box::new(fault)))
}

type Fault = Box<dyn std::error::Error + Send + Sync>;

/// How a search asks for types. A single name needs no patterns.
pub(super) fn term(types: Option<&TypePatterns>) -> (&'static str, Option<Value>) {
    let Some(types) = types else { return ("e.event_type match ", None) };
    let texts: Vec<&str> = types.iter().map(TypePattern::as_str).collect();
    let is_name = texts.len() == 1 && !texts[0].contains('*');
    (if is_name { "e.event_type = " } else { "e.event_type match " }, Some(Value::Text(texts.join(","))))
}
