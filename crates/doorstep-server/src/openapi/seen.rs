//! Answers that tests see, held against the description of the operation that gave them.

use std::sync::LazyLock;

use axum::body::Body;
use axum::response::Response;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Method, StatusCode};
use http_body_util::BodyExt;
use serde_json::Value;

use super::headers;
use super::refusals::CODES;

pub(crate) static DOCUMENT: LazyLock<Value> =
    LazyLock::new(|| serde_json::to_value(crate::router::document()).unwrap());

/// Panics if the operation's description does not have this answer: its status, its problem's code, or one of its headers.
pub(crate) async fn judge(method: &Method, path: &str, answer: Response) -> Response {
    let Some(operation) = operation(method, path) else { return answer };
    let (head, body) = answer.into_parts();
    let is_problem = head.headers.get(CONTENT_TYPE).is_some_and(|kind| kind == "application/problem+json");
    // A stream has no end: only a problem is read.
    let (code, body) = if is_problem {
        let bytes = body.collect().await.unwrap().to_bytes();
        let problem: Value = serde_json::from_slice(&bytes).unwrap();
        (Some(problem["code"].as_str().unwrap().to_owned()), Body::from(bytes))
    } else {
        (None, body)
    };
    if let Err(fault) = check(operation, head.status, &head.headers, code.as_deref()) {
        panic!("{method} {path}: {fault}");
    }
    Response::from_parts(head, body)
}

fn check(operation: &Value, status: StatusCode, headers: &HeaderMap, code: Option<&str>) -> Result<(), String> {
    let described = &operation["responses"][status.as_str()];
    if described.is_null() {
        return Err(format!("it does not describe {status} ({code:?})"));
    }
    let codes: Vec<&str> = described[CODES].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    match code {
        Some(code) if !codes.contains(&code) => {
            return Err(format!("{status} is not described with {code}: {codes:?}"));
        }
        None if !codes.is_empty() => return Err(format!("{status} is described as a problem, and is none")),
        Some(_) | None => {}
    }
    let is_described = |name: &str| described["headers"].get(name).is_some();
    match headers::ALL.iter().find(|told| headers.contains_key(told.name) && !is_described(told.name)) {
        Some(told) => Err(format!("{status} is not described with {}", told.name)),
        None => Ok(()),
    }
}

/// The operation at this path, if it is one.
pub(crate) fn operation(method: &Method, path: &str) -> Option<&'static Value> {
    let method = if method == Method::HEAD { &Method::GET } else { method };
    let paths = DOCUMENT["paths"].as_object().unwrap();
    let mut fitting: Vec<&String> = paths.keys().filter(|route| fits(route, path)).collect();
    // `/v1/events/batch` is no event.
    fitting.sort_by_key(|route| route.contains('{'));
    paths[*fitting.first()?].get(method.as_str().to_lowercase())
}

fn fits(route: &str, path: &str) -> bool {
    let (route, path): (Vec<&str>, Vec<&str>) = (route.split('/').collect(), path.split('/').collect());
    let parts = || route.iter().zip(&path);
    route.len() == path.len() && parts().all(|(part, given)| part == given || part.starts_with('{'))
}

#[test]
fn an_answer_that_is_not_described_is_found_out() {
    let of = |method: Method, path: &str| operation(&method, path).unwrap();
    let change = of(Method::PATCH, "/v1/tenants/ten_1");
    let headers = |name: &'static str| HeaderMap::from_iter([(name.parse().unwrap(), "x".parse().unwrap())]);
    let none = HeaderMap::new();
    let check = |status: u16, headers: &HeaderMap, code: Option<&str>| {
        check(change, StatusCode::from_u16(status).unwrap(), headers, code)
    };
    check(200, &headers("etag"), None).unwrap();
    check(412, &none, Some("changed_meanwhile")).unwrap();
    check(503, &headers("retry-after"), Some("busy")).unwrap();
    for (status, headers, code) in [
        (201, none.clone(), None),
        (418, none.clone(), Some("not_found")),
        (409, none.clone(), Some("not_dead")),
        (403, none.clone(), Some("bad_link")),
        (404, none.clone(), None),
        (200, headers("location"), None),
        (404, headers("retry-after"), Some("not_found")),
    ] {
        assert!(check(status, &headers, code).is_err(), "{status} {code:?}");
    }
    assert_eq!(of(Method::POST, "/v1/events/batch")["operationId"], "events_send_batch");
    assert_eq!(of(Method::HEAD, "/v1/events/evt_1")["operationId"], "events_get");
    assert!(operation(&Method::GET, "/v1/events/batch").is_none(), "it is no event's name");
    assert!(operation(&Method::PUT, "/v1/tenants").is_none() && operation(&Method::GET, "/v1").is_none());
}
