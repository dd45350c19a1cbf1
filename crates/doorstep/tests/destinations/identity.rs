//! Client certificates and roots of a destination (S3), and headers that open a door.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Receiver, Server, text};

const URL: &str = "https://127.0.0.1/hook";

/// A certificate and its key, in PEM.
fn certificate() -> (String, String) {
    let pem =
        |label: &str, der: &[u8]| format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", STANDARD.encode(der));
    let made = rcgen::generate_simple_self_signed(["doorstep".to_owned()]).unwrap();
    (pem("CERTIFICATE", made.cert.der()), pem("PRIVATE KEY", &made.signing_key.serialize_der()))
}

#[tokio::test]
async fn a_certificate_is_shown_by_its_name_and_its_key_never() {
    let server = Server::start(&[]).await;
    let (certificate, key) = certificate();
    let tls = json!({"client_certificate_pem": certificate, "client_key_pem": key, "ca_pem": certificate});
    let made = server.destination(URL, json!({"tls": tls})).await;
    let path = format!("/v1/destinations/{}", text(&made, "id"));
    let shown = server.get(&path).await;
    assert_eq!(text(&shown["tls"]["client_certificate"], "sha256").len(), 64);
    // What rcgen says unless it is told otherwise.
    assert_eq!(shown["tls"]["client_certificate"]["not_after"], "4096-01-01T00:00:00.000Z");
    assert_eq!(shown["tls"]["ca_pem"], certificate);
    let listed = server.get("/v1/destinations").await;
    for told in [&made, &shown, &listed] {
        assert!(!told.to_string().contains("PRIVATE"), "{told}");
    }

    let changed = server.ask(Method::PATCH, &path).json(&json!({"name": "Another"})).send().await.unwrap();
    let changed: Value = changed.json().await.unwrap();
    assert_eq!(changed["tls"], shown["tls"], "what is left out stays");
    let changed = server.ask(Method::PATCH, &path).json(&json!({"tls": null})).send().await.unwrap();
    let changed: Value = changed.json().await.unwrap();
    assert_eq!(changed["tls"], json!({"client_certificate": null, "ca_pem": null}));
}

#[tokio::test]
async fn what_could_not_be_shown_to_a_receiver_is_refused_when_it_is_set() {
    let server = Server::start(&[]).await;
    let (one, other) = (certificate(), certificate());
    let long = "x".repeat(40_000);
    for (tls, why) in [
        (json!({"client_certificate_pem": one.0}), "needs its key"),
        (json!({"client_key_pem": one.1}), "needs its certificate"),
        (json!({"client_certificate_pem": one.0, "client_key_pem": other.1}), "do not belong together"),
        (json!({"client_certificate_pem": "x", "client_key_pem": one.1}), "holds no certificate"),
        (json!({"ca_pem": long}), "is longer than"),
    ] {
        let new = server.new_destination(URL, json!({"tls": tls}));
        let (pointer, detail) = server.refused(Method::POST, "/v1/destinations", new).await;
        assert_eq!(pointer, "/tls");
        assert!(detail.contains(why), "{detail}");
        assert!(!detail.contains("PRIVATE"), "{detail}");
    }
    let made = server.destination(URL, json!({})).await;
    let path = format!("/v1/destinations/{}", text(&made, "id"));
    let change = json!({"tls": {"client_key_pem": one.1}});
    assert_eq!(server.refused(Method::PATCH, &path, change).await.0, "/tls");
}

#[tokio::test]
async fn secret_headers_do_not_move_to_another_host() {
    let (server, mut there) = (Server::start(&[]).await, Receiver::answering(&[200]).await);
    let mut elsewhere = Receiver::answering(&[200]).await;
    let made = server.destination(&there.url, json!({"headers": {"authorization": "Bearer s3cret"}})).await;
    let path = format!("/v1/destinations/{}", text(&made, "id"));
    let (pointer, _) = server.refused(Method::PATCH, &path, json!({"url": elsewhere.url})).await;
    assert_eq!(pointer, "/headers");
    let same_host = json!({"url": format!("{}/other?x=1", there.url)});
    assert!(server.ask(Method::PATCH, &path).json(&same_host).send().await.unwrap().status().is_success());
    server.post(&format!("{path}/test"), json!({})).await;
    assert_eq!(there.next().await.header("authorization"), "Bearer s3cret");
    let moved = json!({"url": elsewhere.url, "headers": {"authorization": "Bearer other"}});
    assert!(server.ask(Method::PATCH, &path).json(&moved).send().await.unwrap().status().is_success());
    server.post(&format!("{path}/test"), json!({})).await;
    assert_eq!(elsewhere.next().await.header("authorization"), "Bearer other");
}
