//! Reading a request's body: bounded in size and time, and with the place of whatever is wrong in it.

use axum::body::{Body, HttpBody};
use axum::extract::{FromRequest, Request};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Extensions, HeaderMap};
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;
use std::sync::Arc;

use crate::app::App;
use crate::auth::caller::Caller;
use crate::bodies::Part;
use crate::object::Object;
use crate::problem::{Code, Problem};

/// Bodies of everything but events are at most this long.
pub(crate) const BODY_BYTES_MAX: usize = 256 * 1024;

/// So much of what is too long is read and thrown away.
const DISCARDED_BYTES_MAX: usize = 16 * 1024 * 1024;

/// A JSON body, read into `T`.
#[derive(Debug)]
pub(crate) struct Json<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<Arc<App>> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, Problem> {
        let (head, body) = request.into_parts();
        check_is_json(&head.headers)?;
        let bytes = read(app, &head.extensions, body, BODY_BYTES_MAX).await?;
        parse(&bytes).map(|Object(given)| Self(given))
    }
}

/// A JSON body that may be left out, or be null.
#[derive(Debug)]
pub(crate) struct OptionalJson<T>(pub(crate) T);

impl<T: DeserializeOwned + Default> FromRequest<Arc<App>> for OptionalJson<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, Problem> {
        let (head, body) = request.into_parts();
        let bytes = read(app, &head.extensions, body, BODY_BYTES_MAX).await?;
        if bytes.is_empty() {
            return Ok(Self(T::default()));
        }
        check_is_json(&head.headers)?;
        Ok(Self(parse::<Option<Object<T>>>(&bytes)?.map_or_else(T::default, |Object(given)| given)))
    }
}

pub(crate) fn check_is_json(headers: &HeaderMap) -> Result<(), Problem> {
    let given = headers.get(CONTENT_TYPE).map(|value| value.to_str().unwrap_or("?"));
    let essence = given.and_then(|given| given.split(';').next()).map(str::trim);
    let is_json = essence.is_none_or(|essence| {
        essence.eq_ignore_ascii_case("application/json") || essence.to_ascii_lowercase().ends_with("+json")
    });
    if is_json {
        return Ok(());
    }
    Err(Problem::new(Code::NotJson, "send the body as JSON, with the header `Content-Type: application/json`"))
}

/// The whole body, or why not. A body takes its time: whoever was let in with its head may have been shut out since.
pub(crate) async fn read(app: &App, of: &Extensions, body: Body, max: usize) -> Result<Bytes, Problem> {
    let (caller, within) = (of.get::<Caller>(), app.limits.body_within);
    let part = app.bodies.begin(caller.map(|caller| &caller.actor));
    let Ok(collected) = tokio::time::timeout(within, collect(body, max, part)).await else {
        let detail = format!("the body did not arrive within {} s: send it again", within.as_secs());
        return Err(Problem::new(Code::TooSlow, detail));
    };
    if caller.is_some_and(|caller| !caller.is_still_good(app)) {
        return Err(Problem::unauthorized("this credential ended while the body was on its way: ask for a new one"));
    }
    collected
}

/// The whole body, unless it is longer than `max`. What is too long is still read: a connection that is closed before
/// is reset, and the client would never see why.
async fn collect(mut body: Body, max: usize, mut part: Part<'_>) -> Result<Bytes, Problem> {
    let too_large = || Problem::too_large(format!("the body is longer than {max} bytes: make it shorter"));
    // Who announces more than that is told at once: nothing of it is asked for (`Expect: 100-continue`), or read.
    if body.size_hint().lower() > (max + DISCARDED_BYTES_MAX) as u64 {
        return Err(too_large());
    }
    let (mut frames, mut length) = (Vec::new(), 0);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Problem::malformed("the body broke off before its end: send it again"))?;
        let Ok(data) = frame.into_data() else { continue };
        length += data.len();
        if length > max + DISCARDED_BYTES_MAX {
            break;
        }
        if length > max {
            frames.clear();
        } else {
            // Most are there at once, and hold nothing up.
            if !body.is_end_stream() {
                part.take(data.len())?;
            }
            frames.push(data);
        }
    }
    if length > max {
        return Err(too_large());
    }
    // Mostly there is one, which needs no copy.
    Ok(if frames.len() == 1 { frames.swap_remove(0) } else { frames.concat().into() })
}

/// Reads JSON; a fault names its place.
pub(crate) fn parse<'de, T: serde::Deserialize<'de>>(bytes: &'de [u8]) -> Result<T, Problem> {
    // The straight way first: nearly every body is right, and keeping track of the place costs time.
    serde_json::from_slice(bytes).map_err(|fault| describe::<T>(bytes, &fault))
}

fn describe<'de, T: serde::Deserialize<'de>>(bytes: &'de [u8], plain: &serde_json::Error) -> Problem {
    if !plain.is_data() {
        return Problem::malformed(format!("the body is not JSON: {plain}"));
    }
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    match serde_path_to_error::deserialize::<_, T>(&mut reader) {
        Ok(_) => Problem::malformed(format!("the body cannot be read: {plain}")),
        Err(fault) => {
            let place = pointer(fault.path());
            let told = fault.into_inner().to_string();
            let told = without_value(without_position(&told));
            match missing_field(&told) {
                Some(name) => Problem::invalid_at(format!("{place}/{name}"), "is missing"),
                None => Problem::invalid_at(place, told),
            }
        }
    }
}

fn pointer(path: &serde_path_to_error::Path) -> String {
    use serde_path_to_error::Segment;
    let mut pointer = String::new();
    for segment in path {
        match segment {
            Segment::Seq { index } => pointer.push_str(&format!("/{index}")),
            Segment::Map { key } => {
                pointer.push('/');
                pointer.push_str(&key.replace('~', "~0").replace('/', "~1"));
            }
            Segment::Enum { .. } | Segment::Unknown => {}
        }
    }
    pointer
}

/// What is not there has no place of its own: serde tells of the object that lacks it.
fn missing_field(message: &str) -> Option<&str> {
    message.strip_prefix("missing field `")?.strip_suffix('`')
}

/// Lines and columns of a body that a program made help nobody; the pointer says it better.
fn without_position(message: &str) -> &str {
    message.rfind(" at line ").map_or(message, |at| &message[..at])
}

/// A value of the wrong type is not repeated: it may be a secret.
fn without_value(message: &str) -> String {
    match message.strip_prefix("invalid type: ").and_then(|rest| rest.rsplit_once(", expected ")) {
        Some((given, expected)) => {
            let kind = given.split(['"', '`']).next().unwrap_or_default().trim_end();
            format!("invalid type: {kind}, expected {expected}")
        }
        None => message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "it is only read into")]
    struct Thing {
        n: u32,
        #[serde(default)]
        list: Vec<BTreeMap<String, u8>>,
    }

    fn said(json: &str) -> String {
        serde_json::to_string(&parse::<Thing>(json.as_bytes()).unwrap_err()).unwrap()
    }

    #[test]
    fn a_fault_names_its_place() {
        let problem = said(r#"{"n": 1, "list": [{}, {"a/b": 300}]}"#);
        assert!(problem.contains(r#""pointer":"/list/1/a~1b""#) && problem.contains(r#""status":422"#), "{problem}");
        assert!(!problem.contains("line 1"), "{problem}");
        let problem = said(r#"{"n": "hush, expected, \" at line `x`"}"#);
        assert!(problem.contains("invalid type: string, expected u32") && !problem.contains("hush"), "{problem}");
        let problem = said(r#"{"n": 1, "m": 2}"#);
        assert!(problem.contains("unknown field `m`") && problem.contains(r#""pointer":"/m""#), "{problem}");
        let problem = said(r#"{"list": []}"#);
        assert!(problem.contains(r#""pointer":"/n","detail":"is missing""#), "{problem}");
    }

    #[test]
    fn what_is_not_json_is_said_to_be_so() {
        for broken in ["", "{", "[1", "\u{feff}{}", "{\"n\":1} x"] {
            let problem = said(broken);
            assert!(problem.contains("malformed_request"), "{broken:?}: {problem}");
        }
    }
}
