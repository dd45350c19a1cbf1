//! A tenant has a limited number of destinations (S8).

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::support::{Server, text};

#[tokio::test]
async fn of_many_that_are_made_at_once_no_more_than_may_be_come_to_be() {
    let server = Server::start(&["--destinations-per-tenant-max", "3"]).await;
    let make = |n: u32| {
        let body = server.new_destination(&format!("http://127.0.0.1:9/{n}"), json!({}));
        server.ask(Method::POST, "/v1/destinations").json(&body).send()
    };
    let answers = (0..12).map(make).collect::<JoinSet<_>>().join_all().await;
    let (made, refused): (Vec<_>, Vec<_>) =
        answers.into_iter().map(Result::unwrap).partition(|answer| answer.status() == StatusCode::CREATED);
    assert_eq!((made.len(), refused.len()), (3, 9));
    for answer in refused {
        assert_eq!(answer.status(), StatusCode::CONFLICT);
        let problem: Value = answer.json().await.unwrap();
        assert_eq!(text(&problem, "code"), "too_many_destinations");
        assert!(text(&problem, "detail").contains("has 3 destinations"), "{problem}");
    }
    let there = server.get("/v1/destinations").await;
    let there: Vec<String> = there["data"].as_array().unwrap().iter().map(|one| text(one, "id")).collect();
    assert_eq!(there.len(), 3);
    let one = format!("/v1/destinations/{}", there[0]);
    let changed = server.ask(Method::PATCH, &one).json(&json!({"name": "still"})).send().await.unwrap();
    assert_eq!(changed.status(), StatusCode::OK, "those that are there can be changed");
    assert_eq!(server.ask(Method::DELETE, &one).send().await.unwrap().status(), StatusCode::NO_CONTENT);
    assert_eq!(make(12).await.unwrap().status(), StatusCode::CREATED);
}
