//! The description is the list of routes that the matrix of callers is made from: a route beside it would be open, and nobody would see it. And what
//! stands before all routes, whoever may ask.

use std::collections::BTreeSet;

use axum::Router;
use axum::body::Body;
use axum::response::IntoResponse;
use axum::routing::get;
use futures_util::FutureExt;
use http::{HeaderValue, StatusCode};
use serde_json::Value;
use tokio::sync::oneshot;

use super::to_its_end;
use crate::auth::world::{ADMIN, World};
use crate::openapi::seen::DOCUMENT;

/// What the description does not have: itself, the page that shows it, and the way there. Whoever adds a line here says in the matrix of callers who may ask.
const OUTSIDE: [&str; 5] = ["/", "/openapi.json", "/docs", "/docs/page.css", "/docs/page.js"];
const METHODS: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"];

/// Every path that the router knows. It tells them when it is shown, and nowhere else.
fn paths<S>(router: &Router<S>) -> BTreeSet<String> {
    let shown = format!("{router:?}");
    let (_, own) = shown.split_once("node: Node").unwrap();
    let (own, _) = own.split_once("fallback_router").unwrap();
    let quoted = own.split('"').skip(1).step_by(2);
    quoted.map(str::to_owned).collect()
}

fn described() -> BTreeSet<String> {
    DOCUMENT["paths"].as_object().unwrap().keys().cloned().collect()
}

#[tokio::test]
async fn the_servers_address_leads_to_the_page_about_its_api() {
    let world = World::new().await;
    let answer = world.answer("GET", "/", &[], Value::Null).await;
    assert_eq!(
        (answer.status(), &answer.headers()["location"]),
        (StatusCode::SEE_OTHER, &HeaderValue::from_static("/docs"))
    );
}

#[tokio::test]
async fn no_route_stands_beside_the_description_but_the_description_itself() {
    let world = World::new().await;
    let mut expected = described();
    expected.extend(OUTSIDE.map(str::to_owned));
    assert_eq!(paths(&world.router), expected);
    let more = world.router.clone().route("/v1/secret/{id}", get(|| async { "open" }));
    let more = more.nest("/below", Router::new().route("/it", get(|| async { "open" })));
    assert!(paths(&more).is_superset(&["/v1/secret/{id}", "/below/it"].map(str::to_owned).into()), "{more:?}");
}

/// A method that was added to a path beside the description would not be seen by its path.
#[tokio::test]
async fn no_path_answers_to_a_method_that_is_not_described() {
    let world = World::new().await;
    for path in paths(&world.router) {
        for method in METHODS {
            let as_get = if method == "HEAD" { "GET" } else { method };
            let outside = OUTSIDE.contains(&path.as_str()) && as_get == "GET";
            if outside || DOCUMENT["paths"][&path].get(as_get.to_lowercase()).is_some() {
                continue;
            }
            // Who may do everything is still told that there is no such method.
            let answer = world.answer(method, &path, &[], Value::Null).await;
            assert_eq!(answer.status(), StatusCode::METHOD_NOT_ALLOWED, "{method} {path}");
        }
    }
}

#[tokio::test]
async fn a_request_whose_client_has_gone_comes_to_its_end() {
    let (go_on, going_on) = oneshot::channel::<()>();
    let (done, is_done) = oneshot::channel();
    let mut answered = Box::pin(to_its_end(async {
        going_on.await.unwrap();
        done.send(()).unwrap();
        StatusCode::OK.into_response()
    }));
    assert!(answered.as_mut().now_or_never().is_none());
    drop(answered);
    go_on.send(()).unwrap();
    is_done.await.unwrap();
}

#[tokio::test]
async fn a_panic_is_an_answer_and_not_the_end_of_the_connection() {
    let answer = to_its_end(async { panic!("on purpose") }).await;
    assert_eq!(answer.status(), StatusCode::INTERNAL_SERVER_ERROR);
}

#[tokio::test]
async fn it_comes_to_its_end_with_a_key_and_without_one() {
    let world = World::new().await;
    for path in ["/v1/tenants", "/portal/session"] {
        let (rest, coming) = oneshot::channel::<&str>();
        let body = futures_util::stream::once(async { coming.await.map_err(std::io::Error::other) });
        let request = http::Request::post(path).header("authorization", format!("Bearer {ADMIN}"));
        let request = request.header("content-type", "application/json").body(Body::from_stream(body)).unwrap();
        let mut answered = Box::pin(world.call(request));
        assert!(answered.as_mut().now_or_never().is_none(), "{path}: its body is not there yet");
        drop(answered);
        assert!(rest.send("{}").is_ok(), "{path}: nobody reads it any more");
    }
}
