//! Receivers that have to agree before anything is sent to them.

use std::sync::{Arc, Mutex};

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::support::{Received, Receiver, Server, text};

const AGREES: &str = "webhook-allowed-origin: *\r\nwebhook-allowed-rate: *\r\n";

/// Answers questions with headers that can be changed, and everything else with 200.
async fn receiver(answers: &Arc<Mutex<&'static str>>) -> Receiver {
    let answers = Arc::clone(answers);
    let answer = move |request: &Received| {
        let headers = if is_question(request) { *answers.lock().unwrap() } else { "" };
        format!("HTTP/1.1 200 OK\r\n{headers}content-length: 0\r\n\r\n")
    };
    Receiver::start(answer).await
}

fn is_question(request: &Received) -> bool {
    request.line.starts_with("OPTIONS ")
}

impl Server {
    async fn send_one(&self, id: &str) {
        let event = json!({"id": id, "tenant_id": self.tenant_id, "type": "a.b", "payload": {"n": 1}});
        self.post("/v1/events", event).await;
    }

    /// The one delivery that is not delivered.
    async fn waiting(&self) -> Value {
        let mut waiting = self.get("/v1/deliveries?status=queued,retry_scheduled").await;
        assert_eq!(waiting["data"].as_array().unwrap().len(), 1, "{waiting}");
        waiting["data"][0].take()
    }
}

#[tokio::test]
async fn nothing_is_sent_before_the_receiver_has_agreed_to_this_very_url() {
    let server = Server::start(&[]).await;
    let answers = Arc::new(Mutex::new("allow: OPTIONS, POST\r\n"));
    let mut receiver = receiver(&answers).await;
    let settings = json!({
        "verification": "cloudevents_options",
        "headers": {"authorization": "Bearer not-for-strangers"},
        "rate_limit": {"per_second": 2},
    });
    let made = server.destination(&receiver.url, settings).await;
    let path = format!("/v1/destinations/{}", text(&made, "id"));
    let question = receiver.next().await;
    assert_eq!(question.line, "OPTIONS /hook HTTP/1.1");
    assert_eq!(question.header("webhook-request-origin"), "127.0.0.1");
    assert_eq!(question.header("webhook-request-rate"), "120");
    assert!(!question.headers.contains_key("authorization"), "secrets are for those who have agreed");
    assert!(!question.headers.contains_key("webhook-signature"));

    server.send_one("evt-1").await;
    let asked = server.post(&format!("{path}/verify"), json!({})).await;
    assert!(is_question(&receiver.next().await), "an event does not go instead");
    assert_eq!((&asked["status"], &asked["suspension_reason"]), (&json!("suspended"), &json!("no_consent")));
    let consent = &asked["consent"];
    assert_eq!((&consent["given_at"], &consent["asked"]), (&Value::Null, &json!(2)));
    assert_eq!(consent["last_answer"], "it answered 200: the answer has no WebHook-Allowed-Origin header");
    assert!(consent["next_ask_at"].is_string(), "{consent}");
    assert_eq!(server.waiting().await["waiting_for"], "consent");
    let test = server.ask(Method::POST, &format!("{path}/test")).json(&json!({})).send().await.unwrap();
    assert_eq!(test.status(), StatusCode::CONFLICT);
    assert_eq!(text(&test.json().await.unwrap(), "code"), "no_consent");
    server.post(&format!("{path}/resume"), json!({})).await;
    assert_eq!(server.waiting().await["waiting_for"], "consent", "nobody else can agree");

    *answers.lock().unwrap() = "webhook-allowed-origin: 127.0.0.1\r\nwebhook-allowed-rate: 60\r\n";
    let agreed = server.post(&format!("{path}/verify"), json!({})).await;
    assert!(is_question(&receiver.next().await));
    assert_eq!((&agreed["status"], &agreed["suspension_reason"]), (&json!("active"), &Value::Null));
    assert_eq!((&agreed["consent"]["per_minute"], &agreed["consent"]["origin"]), (&json!(60), &json!("127.0.0.1")));
    let event = receiver.next().await;
    assert_eq!((event.line.as_str(), event.header("x-event-id")), ("POST /hook HTTP/1.1", "evt-1"));
    assert_eq!(event.header("webhook-request-origin"), "127.0.0.1");
    assert_eq!(event.header("authorization"), "Bearer not-for-strangers");

    *answers.lock().unwrap() = "";
    let change = json!({"url": format!("{}/other", receiver.url)});
    let moved = server.ask(Method::PATCH, &path).json(&change).send().await.unwrap();
    let moved: Value = moved.json().await.unwrap();
    assert_eq!((&moved["suspension_reason"], &moved["consent"]["given_at"]), (&json!("no_consent"), &Value::Null));
    assert_eq!(receiver.next().await.line, "OPTIONS /hook/other HTTP/1.1");
    server.send_one("evt-2").await;
    assert_eq!(server.waiting().await["waiting_for"], "consent");
    let back = json!({"verification": "none"});
    server.ask(Method::PATCH, &path).json(&back).send().await.unwrap();
    let event = receiver.next().await;
    assert_eq!(event.header("x-event-id"), "evt-2", "who need not agree any more is not asked");
    assert!(!event.headers.contains_key("webhook-request-origin"));
    let unasked = server.ask(Method::POST, &format!("{path}/verify")).send().await.unwrap();
    assert_eq!(text(&unasked.json().await.unwrap(), "code"), "needs_no_consent");
}

#[tokio::test]
async fn a_receiver_may_agree_later_with_the_link_that_came_with_the_question() {
    let server = Server::start(&[]).await;
    let answers = Arc::new(Mutex::new(""));
    let mut receiver = receiver(&answers).await;
    let made = server.destination(&receiver.url, json!({"verification": "cloudevents_options"})).await;
    let path = format!("/v1/destinations/{}", text(&made, "id"));
    let link = receiver.next().await.header("webhook-request-callback").to_owned();
    assert!(link.starts_with(&format!("{}{path}/consent?expires=", server.base())), "{link}");
    server.send_one("evt-1").await;

    let other = server.destination(&receiver.url, json!({"verification": "cloudevents_options", "event_types": ["x"]}));
    let other = text(&other.await, "id");
    assert!(is_question(&receiver.next().await));
    for forged in [link.replace(&text(&made, "id"), &other), format!("{link}A"), link.replace("expires=1", "expires=2")]
    {
        let answer = server.fetch(&forged).await;
        assert_eq!(answer.status(), StatusCode::FORBIDDEN, "{forged}");
    }
    let wrong = reqwest::Client::new().post(&link).header("webhook-allowed-rate", "none").send().await.unwrap();
    assert_eq!(wrong.status(), StatusCode::UNPROCESSABLE_ENTITY);
    let wrong: Value = wrong.json().await.unwrap();
    assert_eq!(wrong["errors"][0]["pointer"], "webhook-allowed-rate:", "a header is told by its name and a colon");
    assert_eq!(server.waiting().await["waiting_for"], "consent");

    let agreed = reqwest::Client::new().post(&link).header("webhook-allowed-rate", "600").send().await.unwrap();
    assert_eq!(agreed.json::<Value>().await.unwrap(), json!({"url": receiver.url, "per_minute": 600}));
    assert_eq!(receiver.next().await.header("x-event-id"), "evt-1");
    let shown = server.get(&path).await;
    assert_eq!((&shown["consent"]["per_minute"], &shown["consent"]["asked"]), (&json!(600), &json!(0)));
    let visited: Value = server.fetch(&link).await.json().await.unwrap();
    assert_eq!(visited["per_minute"], Value::Null, "a visit in a browser is as good, and the last word counts");

    let change = json!({"url": format!("{}/other", receiver.url)});
    server.ask(Method::PATCH, &path).json(&change).send().await.unwrap();
    assert_eq!(server.fetch(&link).await.status(), StatusCode::FORBIDDEN, "it was for another URL");
}

#[tokio::test]
async fn consent_outlasts_a_restart_and_who_has_not_agreed_is_asked_again() {
    let answers = Arc::new(Mutex::new(AGREES));
    let mut receiver = receiver(&answers).await;
    let mut server = Server::start(&[]).await;
    let settings = json!({"verification": "cloudevents_options"});
    let agreed = text(&server.destination(&receiver.url, settings.clone()).await, "id");
    assert!(is_question(&receiver.next().await));
    server.send_one("evt-1").await;
    assert_eq!(receiver.next().await.header("x-event-id"), "evt-1");
    *answers.lock().unwrap() = "";
    let other_url = format!("{}/other", receiver.url);
    let silent = text(&server.destination(&other_url, settings).await, "id");
    assert_eq!(receiver.next().await.line, "OPTIONS /hook/other HTTP/1.1");

    server.restart();
    assert_eq!(receiver.next().await.line, "OPTIONS /hook/other HTTP/1.1", "the other one need not be asked");
    server.send_one("evt-2").await;
    assert_eq!(receiver.next().await.line, "POST /hook HTTP/1.1");
    let held = server.get(&format!("/v1/deliveries?destination_id={silent}")).await;
    assert_eq!(held["data"][0]["waiting_for"], "consent", "{held}");
    assert!(server.get(&format!("/v1/destinations/{agreed}")).await["consent"]["given_at"].is_string());
}

/// The operator's choice, whatever the tenant's.
#[tokio::test]
async fn an_operator_can_require_consent_of_every_new_destination() {
    let server = Server::start(&["--require-verification", "true"]).await;
    let answers = Arc::new(Mutex::new("allow: OPTIONS, POST\r\n"));
    let mut receiver = receiver(&answers).await;
    let new = server.new_destination(&receiver.url, json!({"verification": "none"}));
    assert_eq!(server.refused(Method::POST, "/v1/destinations", new).await.0, "/verification");

    let made = server.destination(&receiver.url, json!({})).await;
    assert_eq!(
        (&made["verification"], &made["status"]),
        (&json!("cloudevents_options"), &json!("suspended")),
        "{made}"
    );
    let path = format!("/v1/destinations/{}", text(&made, "id"));
    assert!(is_question(&receiver.next().await));
    for none in [json!("none"), Value::Null] {
        let change = json!({"verification": none});
        assert_eq!(server.refused(Method::PATCH, &path, change).await.0, "/verification");
    }
    let changed = server.ask(Method::PATCH, &path).json(&json!({"name": "another"})).send().await.unwrap();
    assert_eq!(changed.status(), StatusCode::OK, "the rest may be changed");
    server.send_one("evt-1").await;
    assert_eq!(server.waiting().await["waiting_for"], "consent");
    *answers.lock().unwrap() = AGREES;
    server.post(&format!("{path}/verify"), json!({})).await;
    assert!(is_question(&receiver.next().await));
    assert_eq!(receiver.next().await.header("webhook-id"), "evt-1", "after that it is sent");
}
