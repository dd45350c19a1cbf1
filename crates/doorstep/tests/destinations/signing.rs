//! How a destination's requests are signed (S1), and that their receiver can tell.

use std::time::SystemTime;

use doorstep_core::signature::{TOLERANCE_DEFAULT, VerifyingKey, verify};
use doorstep_core::time::Timestamp;
use reqwest::Method;
use serde_json::json;

use crate::support::{Received, Receiver, Server, text};

fn verifies(got: &Received, secret: &str) -> bool {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let now = Timestamp::from_secs(i64::try_from(now).unwrap());
    let key: VerifyingKey = secret.parse().unwrap();
    let header = |name: &str| got.headers.get(name).map(String::as_bytes);
    verify(header, &got.body, &[key], now, TOLERANCE_DEFAULT).is_ok()
}

#[tokio::test]
async fn with_ed25519_only_the_public_key_is_ever_shown_and_it_verifies() {
    let (server, mut receiver) = (Server::start(&[]).await, Receiver::answering(&[200]).await);
    let made = server.destination(&receiver.url, json!({"signing": {"algorithm": "ed25519"}})).await;
    let secret = text(&made, "secret");
    assert!(secret.starts_with("whpk_"), "{secret}");
    let path = format!("/v1/destinations/{}", text(&made, "id"));
    let shown = server.get(&path).await;
    assert_eq!(shown["signing"]["algorithm"], "ed25519");

    server.post(&format!("{path}/test"), json!({})).await;
    let got = receiver.next().await;
    assert!(got.header("webhook-signature").starts_with("v1a,"));
    assert!(verifies(&got, &secret));

    let rotated = server.post(&format!("{path}/secrets/rotate"), json!({})).await;
    let new = text(&rotated, "secret");
    assert!(new.starts_with("whpk_") && new != secret);
    server.post(&format!("{path}/test"), json!({})).await;
    let got = receiver.next().await;
    assert!(verifies(&got, &new) && verifies(&got, &secret), "the old one signs along");
    for told in [made, shown, rotated] {
        assert!(!told.to_string().contains("whsk_"), "{told}");
    }
}

#[tokio::test]
async fn other_header_styles_come_beside_the_standard_one() {
    let (server, mut receiver) = (Server::start(&[]).await, Receiver::answering(&[200]).await);
    let made = server.destination(&receiver.url, json!({"signing": {"also": ["github", "stripe"]}})).await;
    server.post(&format!("/v1/destinations/{}/test", text(&made, "id")), json!({})).await;
    let got = receiver.next().await;
    assert!(verifies(&got, &text(&made, "secret")));
    assert!(got.header("x-hub-signature-256").starts_with("sha256="));
    assert!(got.header("stripe-signature").starts_with("t="));
}

#[tokio::test]
async fn a_style_that_the_algorithm_cannot_sign_is_refused_when_it_is_set() {
    let server = Server::start(&[]).await;
    let signing = json!({"signing": {"algorithm": "ed25519", "also": ["github"]}});
    let new = server.new_destination("https://127.0.0.1/", signing);
    let (pointer, detail) = server.refused(Method::POST, "/v1/destinations", new).await;
    assert_eq!(pointer, "/signing");
    assert!(detail.contains("needs a shared secret"), "{detail}");
}
