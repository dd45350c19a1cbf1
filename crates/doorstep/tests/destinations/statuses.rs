//! What a status means for one receiver (D5).

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{PATIENCE, Receiver, Server, text};

impl Server {
    /// The only delivery of this destination, once it has ended.
    async fn ended(&self, destination_id: &str) -> Value {
        let find = async {
            loop {
                let found = self.get(&format!("/v1/deliveries?destination_id={destination_id}")).await;
                if ["delivered", "dead"].contains(&found["data"][0]["status"].as_str().unwrap_or_default()) {
                    return found["data"][0].clone();
                }
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, find).await.expect("it did not end")
    }
}

#[tokio::test]
async fn a_destination_says_what_a_status_means_for_it() {
    let server = Server::start(&[]).await;
    let policy = json!({"strategy": "fixed", "base_ms": 1000, "floor_ms": 1000, "jitter": "none"});
    let send = async |mut receiver: Receiver, overrides: Value| {
        let settings = json!({"status_overrides": overrides, "policy": policy});
        let made = server.destination(&receiver.url, settings).await;
        assert_eq!(made["status_overrides"], overrides);
        let id = text(&made, "id");
        server.post("/v1/events", json!({"tenant_id": server.tenant_id, "type": "a.b", "payload": 1})).await;
        receiver.next().await;
        let ended = server.ended(&id).await;
        server.ask(Method::DELETE, &format!("/v1/destinations/{id}")).send().await.unwrap();
        (ended["status"].clone(), ended["reason"].clone(), ended["attempt_count"].clone())
    };
    // Each as it usually is, and as its receiver says it is.
    let rejected = |n: u32| (json!("dead"), json!("rejected"), json!(n));
    let delivered = |n: u32| (json!("delivered"), Value::Null, json!(n));
    assert_eq!(send(Receiver::answering(&[422, 200]).await, json!({})).await, rejected(1));
    assert_eq!(send(Receiver::answering(&[422, 200]).await, json!({"422": "transient"})).await, delivered(2));
    assert_eq!(send(Receiver::answering(&[500, 200]).await, json!({})).await, delivered(2));
    assert_eq!(send(Receiver::answering(&[500, 200]).await, json!({"500": "permanent"})).await, rejected(1));
}

#[tokio::test]
async fn what_a_status_cannot_mean_is_refused() {
    let server = Server::start(&[]).await;
    for overrides in [json!({"99": "transient"}), json!({"200": "permanent"})] {
        let new = server.new_destination("https://127.0.0.1/", json!({"status_overrides": overrides}));
        assert_eq!(server.refused(Method::POST, "/v1/destinations", new).await.0, "/status_overrides");
    }
}
