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
/// Without a credential: a portal session's code is all that anybody has to send then.
pub(crate) const OPEN_BODY_BYTES_MAX: usize = 4 * 1024;

/// So much of what is too long is read and thrown away, with a credential and without.
const DISCARDED_BYTES_MAX: usize = 16 * 1024 * 1024;
const OPEN_DISCARDED_BYTES_MAX: usize = 256 * 1024;
/// What the first piece of a longer body gets room for, at least.
const FIRST_ROOM: usize = 1024;

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

/// A body that has arrived. What it takes is counted until this is dropped.
#[derive(Debug)]
pub(crate) struct Received {
    bytes: Bytes,
    _part: Part,
}

impl std::ops::Deref for Received {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The whole body, or why not. The credential is checked again at the end: it may have been revoked while the body arrived.
pub(crate) async fn read(app: &App, of: &Extensions, body: Body, max: usize) -> Result<Received, Problem> {
    let (caller, within) = (of.get::<Caller>(), app.limits.body_within);
    let bounds = match caller {
        Some(_) => Bounds { max, discarded: DISCARDED_BYTES_MAX },
        None => Bounds { max: max.min(OPEN_BODY_BYTES_MAX), discarded: OPEN_DISCARDED_BYTES_MAX },
    };
    let part = app.bodies.begin(caller.map(|caller| &caller.actor));
    let Ok(collected) = tokio::time::timeout(within, collect(body, bounds, part)).await else {
        let detail = format!("the body did not arrive within {} s: send it again", within.as_secs());
        return Err(Problem::new(Code::TooSlow, detail));
    };
    if caller.is_some_and(|caller| !caller.is_still_good(app)) {
        return Err(Problem::unauthorized("this credential ended while the body was on its way: ask for a new one"));
    }
    collected
}

#[derive(Clone, Copy, Debug)]
struct Bounds {
    max: usize,
    discarded: usize,
}

/// The whole body, unless it is longer than it may be. What is too long is still read: a connection that is closed before
/// is reset, and the client would never see why.
///
/// A frame is a slice of the buffer that the connection was read into, and keeps all of it, however short the frame is. So frames are copied into one
/// buffer, which grows with what has arrived, and its whole capacity is counted.
async fn collect(mut body: Body, bounds: Bounds, mut part: Part) -> Result<Received, Problem> {
    let Bounds { max, discarded } = bounds;
    let too_large = || Problem::too_large(format!("the body is longer than {max} bytes: make it shorter"));
    let announced = body.size_hint();
    // Who announces more than that is told at once: nothing of it is asked for (`Expect: 100-continue`), or read.
    if announced.lower() > (max + discarded) as u64 {
        return Err(too_large());
    }
    let room_max = announced.exact().and_then(|n| usize::try_from(n).ok()).map_or(max, |n| n.min(max));
    let (mut whole, mut length) = (Vec::new(), 0);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Problem::malformed("the body broke off before its end: send it again"))?;
        let Ok(data) = frame.into_data() else { continue };
        length += data.len();
        if length > max + discarded {
            break;
        }
        if length > max {
            whole = Vec::new();
            part.clear();
            continue;
        }
        if whole.is_empty() && body.is_end_stream() {
            // Nearly every body comes in one piece. Its connection reads nothing more before it is answered, so that it holds this one buffer.
            return Ok(Received { bytes: data, _part: part });
        }
        make_room(&mut whole, data.len(), room_max, &mut part)?;
        whole.extend_from_slice(&data);
    }
    if length > max {
        return Err(too_large());
    }
    Ok(Received { bytes: whole.into(), _part: part })
}

/// Room for `more` bytes. It doubles, so that copying stays linear, and is never more than the body may need.
fn make_room(whole: &mut Vec<u8>, more: usize, max: usize, part: &mut Part) -> Result<(), Problem> {
    let (capacity, needed) = (whole.capacity(), whole.len() + more);
    if needed <= capacity {
        return Ok(());
    }
    let wanted = needed.max(2 * capacity).max(FIRST_ROOM).min(max.max(needed));
    part.take(wanted - capacity)?;
    whole.reserve_exact(wanted - whole.len());
    Ok(())
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

    /// A body in these pieces, each a slice of a buffer of its own that is much larger.
    fn dribbled(pieces: usize) -> Body {
        let piece = || Bytes::from(vec![b'x'; 64 * 1024]).slice(..1);
        let frames = (0..pieces).map(move |_| Ok::<_, std::convert::Infallible>(piece()));
        Body::from_stream(futures_util::stream::iter(frames))
    }

    #[tokio::test]
    async fn a_dribbled_body_takes_what_has_arrived_and_no_more() {
        let bodies = crate::bodies::Bodies::default();
        let bounds = Bounds { max: 10_000, discarded: 10_000 };
        let received = collect(dribbled(9_000), bounds, bodies.begin(None)).await.unwrap();
        assert_eq!(
            (received.len(), received._part.bytes()),
            (9_000, 10_000),
            "it never has more room than it may need"
        );
        drop(received);
        let short = collect(dribbled(20), bounds, bodies.begin(None)).await.unwrap();
        assert_eq!((short.len(), short._part.bytes()), (20, FIRST_ROOM));
        drop(short);
        assert_eq!(bodies.held(), (0, 0));
        let long = collect(dribbled(10_001), bounds, bodies.begin(None)).await.unwrap_err();
        assert_eq!(long.status(), http::StatusCode::PAYLOAD_TOO_LARGE);
        assert_eq!(bodies.held(), (0, 0));
    }

    #[tokio::test]
    async fn what_was_announced_is_not_made_room_for_before_it_comes() {
        let (bodies, bounds) = (crate::bodies::Bodies::default(), Bounds { max: 1 << 20, discarded: 0 });
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        let first = [Ok::<_, std::convert::Infallible>(http_body::Frame::data(Bytes::from_static(b"x")))];
        let rest = futures_util::stream::once(async move {
            let _ = ended.await;
            Ok(http_body::Frame::data(Bytes::from(vec![b'x'; 99_999])))
        });
        let frames = futures_util::StreamExt::chain(futures_util::stream::iter(first), rest);
        let body = Body::new(Announced(http_body_util::StreamBody::new(Box::pin(frames)), 100_000));
        let mut collecting = std::pin::pin!(collect(body, bounds, bodies.begin(None)));
        assert!(futures_util::FutureExt::now_or_never(collecting.as_mut()).is_none());
        assert_eq!(bodies.held(), (FIRST_ROOM, 1));
        end.send(()).unwrap();
        let received = collecting.await.unwrap();
        assert_eq!((received.len(), bodies.held()), (100_000, (100_000, 1)));
    }

    /// A body with a `Content-Length`.
    struct Announced<B>(B, u64);

    impl<B: HttpBody + Unpin> HttpBody for Announced<B> {
        type Data = B::Data;
        type Error = B::Error;

        fn poll_frame(
            mut self: std::pin::Pin<&mut Self>,
            context: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<Result<http_body::Frame<B::Data>, B::Error>>> {
            std::pin::Pin::new(&mut self.0).poll_frame(context)
        }

        fn size_hint(&self) -> http_body::SizeHint {
            http_body::SizeHint::with_exact(self.1)
        }
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
