//! How fast a tenant's producers may send (G12).

use serde_json::{Value, json};

use crate::support::Server;

#[tokio::test]
async fn a_producer_over_its_rate_is_told_when_to_come_back() {
    let server = Server::start(&[]);
    let limited = server.tenant(json!({ "ingest_rate": { "per_second": 1, "burst": 3 } })).await;
    let free = server.tenant(json!({})).await;
    let event = |tenant: &str| json!({ "tenant_id": tenant, "type": "a.b", "payload": {} });
    let taken = server.post("/v1/events", &event(&limited)).await;
    assert_eq!(taken.status, 202);
    assert_eq!(taken.header("ratelimit-policy"), Some("\"ingest\";q=3;w=3"));
    assert_eq!(taken.header("ratelimit"), Some("\"ingest\";r=2;t=1"));

    // Two are left; a second may pass meanwhile, but not four.
    let batch = json!({ "events": vec![event(&limited); 7] });
    let answer = server.post("/v1/events/batch", &batch).await;
    let results = answer.body["results"].as_array().unwrap();
    assert_eq!(answer.status, 200);
    assert_eq!(results[0]["duplicate"], false);
    assert_eq!((&results[6]["error"]["status"], &results[6]["error"]["retry_after"]), (&json!(429), &json!(1)));

    let mut refused = server.post("/v1/events", &event(&limited)).await;
    while refused.status == 202 {
        // A second has passed meanwhile.
        refused = server.post("/v1/events", &event(&limited)).await;
    }
    assert_eq!((refused.status.as_u16(), refused.header("retry-after")), (429, Some("1")), "{refused:?}");
    assert_eq!(refused.header("ratelimit"), Some("\"ingest\";r=0;t=1"));
    assert_eq!(refused.body["type"], "https://iana.org/assignments/http-problem-types#quota-exceeded");
    assert_eq!(refused.body["violated-policies"], json!(["ingest"]));

    let other = server.post("/v1/events", &event(&free)).await;
    assert_eq!((other.status.as_u16(), other.header("ratelimit")), (202, None), "others are not held up");
    let lifted = server.patch(&format!("/v1/tenants/{limited}"), &json!({ "ingest_rate": null })).await;
    assert_eq!(lifted.body["ingest_rate"], Value::Null);
    assert_eq!(server.post("/v1/events", &event(&limited)).await.status, 202);
}

#[tokio::test]
async fn the_configured_rate_is_for_tenants_that_have_none() {
    let server = Server::start(&[("DOORSTEP_INGEST_PER_SECOND", "5")]);
    let usual = server.tenant(json!({})).await;
    let special = server.tenant(json!({ "ingest_rate": { "per_second": 100 } })).await;
    for (tenant, policy) in [(usual, "\"ingest\";q=5;w=1"), (special, "\"ingest\";q=100;w=1")] {
        let event = json!({ "tenant_id": tenant, "type": "a.b", "payload": {} });
        assert_eq!(server.post("/v1/events", &event).await.header("ratelimit-policy"), Some(policy));
    }
    let wrong = server.post("/v1/tenants", &json!({ "name": "x", "ingest_rate": { "per_second": 0 } })).await;
    assert_eq!(wrong.faults()[0].0, "/ingest_rate/per_second");
}
