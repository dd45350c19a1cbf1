//! How much a tenant may have queued and stored (G12).

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::Server;

fn event(tenant: &str, id: &str) -> Value {
    json!({ "tenant_id": tenant, "type": "a.b", "payload": { "text": "x".repeat(1_000) }, "id": id })
}

#[tokio::test]
async fn an_event_over_its_tenants_quota_is_refused_with_what_and_how_much() {
    let server = Server::start(&[("DOORSTEP_ALLOW_TARGETS", "127.0.0.0/8")]);
    let tenant = server.tenant(json!({ "quota": { "queued_deliveries": 2 } })).await;
    let at = format!("/v1/tenants/{tenant}");
    let to = json!({ "tenant_id": tenant, "url": "http://127.0.0.1:9/nobody" });
    let destination = server.post("/v1/destinations", &to).await;
    let id = destination.body["id"].as_str().unwrap().to_owned();
    assert_eq!(server.post(&format!("/v1/destinations/{id}/pause"), &json!({})).await.status, 200);

    // In a batch each event is judged by itself, and a repetition is answered as before.
    let events = ["1", "2", "3", "1"].map(|id| event(&tenant, id));
    let batch = json!({ "events": events });
    let answer = server.post("/v1/events/batch", &batch).await;
    let results = answer.body["results"].as_array().unwrap();
    assert_eq!((answer.status.as_u16(), results.len()), (200, 4));
    assert_eq!((&results[1]["deliveries"], &results[3]["duplicate"]), (&json!(1), &json!(true)), "{results:?}");
    let told = &results[2]["error"];
    assert_eq!((&told["status"], &told["code"]), (&json!(429), &json!("quota_exceeded")), "{told}");
    assert_eq!((&told["limit"], &told["used"]), (&json!(2), &json!(2)));
    assert_eq!(told["violated-policies"], json!(["queued_deliveries"]));

    let refused = server.post("/v1/events", &event(&tenant, "4")).await;
    assert_eq!((refused.status.as_u16(), refused.header("retry-after")), (429, Some("60")), "{refused:?}");
    assert_eq!(server.post("/v1/events", &event(&tenant, "2")).await.status, 202, "it was accepted before");
    let other = server.tenant(json!({})).await;
    assert_eq!(server.post("/v1/events", &event(&other, "4")).await.status, 202, "others have their own");

    let usage = server.get(&format!("{at}/usage")).await.body;
    assert_eq!(usage["queued_deliveries"], json!({ "used": 2, "limit": 2 }));
    let stored = usage["stored_bytes"]["used"].as_u64().unwrap();
    assert!(stored > 2 * 1_000 && usage["stored_bytes"]["limit"].is_u64(), "half of the room on the disk: {usage}");

    // The bytes count across a restart, and another limit is in force at once.
    let server = server.restart(&[("DOORSTEP_ALLOW_TARGETS", "127.0.0.0/8")]);
    let changed = server.patch(&at, &json!({ "quota": { "stored_bytes": stored + 100 } })).await;
    assert_eq!(changed.body["quota"], json!({ "stored_bytes": stored + 100 }));
    let refused = server.post("/v1/events", &event(&tenant, "4")).await;
    assert_eq!(refused.body["violated-policies"], json!(["stored_bytes"]), "{refused:?}");
    assert_eq!((&refused.body["limit"], &refused.body["used"]), (&json!(stored + 100), &json!(stored)));
    assert_eq!(server.patch(&at, &json!({ "quota": null })).await.body["quota"], Value::Null);
    assert_eq!(server.post("/v1/events", &event(&tenant, "4")).await.status, 202);

    assert_eq!(server.send(Method::DELETE, &format!("/v1/destinations/{id}"), &[], "").await.status, 204);
    assert_eq!(
        server.get(&format!("{at}/usage")).await.body["queued_deliveries"]["used"],
        0,
        "nothing is queued any more"
    );
    let wrong = server.patch(&at, &json!({ "quota": { "stored_bytes": 1u64 << 60 } })).await;
    assert_eq!(wrong.faults()[0].0, "/quota/stored_bytes");
}

#[tokio::test]
async fn the_configured_quota_is_for_tenants_that_have_none() {
    let server =
        Server::start(&[("DOORSTEP_STORED_BYTES_PER_TENANT_MAX", "2000"), ("DOORSTEP_QUEUED_PER_TENANT_MAX", "0")]);
    let (usual, special) =
        (server.tenant(json!({})).await, server.tenant(json!({ "quota": { "stored_bytes": 0 } })).await);
    assert_eq!(server.post("/v1/events", &event(&usual, "1")).await.status, 202);
    let refused = server.post("/v1/events", &event(&usual, "2")).await;
    assert_eq!((refused.status.as_u16(), &refused.body["limit"]), (429, &json!(2_000)), "{refused:?}");
    for n in 0..5 {
        assert_eq!(server.post("/v1/events", &event(&special, &format!("{n}"))).await.status, 202);
    }
    let usage = server.get(&format!("/v1/tenants/{special}/usage")).await.body;
    assert_eq!((&usage["queued_deliveries"]["limit"], &usage["stored_bytes"]["limit"]), (&Value::Null, &Value::Null));
}
