//! What destinations get by default, and the most that they may be given: the operator's word, the tenant's, their own.

use serde_json::{Value, json};

use crate::support::{Home, Listener, Receiver, Server, text};

const POLICIES: &str = r#"{"weekend": {"strategy": "fixed", "base_ms": 60000, "window_ms": 600000}}"#;

fn serve(home: &Home, options: &[&str]) -> Server {
    Server::start_with(home, &[&["--allow-targets", "127.0.0.0/8"], options].concat())
}

/// The fields of a destination that have a default.
fn in_force(shown: &Value) -> Value {
    json!([shown["policy"], shown["timeout_ms"], shown["concurrency"], shown["rate_limit"]])
}

#[test]
fn a_destination_follows_its_own_settings_then_its_tenants_and_then_the_operators() {
    let home = Home::new();
    let options = ["--policies", POLICIES, "--default-policy", "weekend", "--default-timeout-ms", "7000"];
    let server = serve(&home, &options);
    let (mut client, listener) = (server.client(), Listener::start(&[]));
    let tenant = client.tenant();
    let plain = client.destination(&tenant, &listener.url("/"), json!({}));
    let usual_rate = json!({"per_second": 1000.0, "burst": 100});
    assert_eq!(in_force(&plain), json!(["weekend", 7000, 10, usual_rate]));
    let own = json!({"policy": "patient", "timeout_ms": 3000, "concurrency": 2, "rate_limit": {"per_second": 5}});
    let own = client.destination(&tenant, &listener.url("/"), own);
    assert_eq!(in_force(&own), json!(["patient", 3000, 2, {"per_second": 5.0, "burst": 1}]));

    let defaults = json!({"defaults": {"policy": "brief", "timeout_ms": 9000, "concurrency": 4}});
    let changed = client.patch(&format!("/v1/tenants/{tenant}"), defaults.clone()).expect(200);
    assert_eq!(changed["defaults"], defaults["defaults"]);
    let (plain, own) = (text(&plain, "id"), text(&own, "id"));
    let mut shown = |id: &str| in_force(&client.read(&format!("/v1/destinations/{id}")));
    assert_eq!(shown(&plain), json!(["brief", 9000, 4, usual_rate]));
    assert_eq!(shown(&own)[0], "patient");
    let back =
        client.patch(&format!("/v1/destinations/{own}"), json!({"policy": null, "timeout_ms": null})).expect(200);
    assert_eq!(in_force(&back)[0], "brief");
    assert_eq!(in_force(&back)[1], 9000);

    // After a restart without that preset, a destination that has its name keeps it and gets the default.
    client.patch(&format!("/v1/destinations/{own}"), json!({"policy": "weekend"})).expect(200);
    server.kill();
    let server = Server::start(&home);
    let shown = server.client().read(&format!("/v1/destinations/{own}"));
    assert_eq!(shown["policy"], "weekend");
    assert!(server.log().contains("its policy is not configured any more"), "{}", server.log());
    let refused = server
        .client()
        .post("/v1/destinations", json!({"tenant_id": tenant, "url": listener.url("/"), "policy": "weekend"}));
    assert!(refused.expect(422)["errors"][0]["detail"].as_str().unwrap().contains("there is no preset \"weekend\""));
}

#[test]
fn over_the_operators_maxima_a_destination_is_refused_and_an_older_one_is_cut() {
    let home = Home::new();
    let server = Server::start(&home);
    let (mut client, listener) = (server.client(), Listener::start(&[]));
    let tenant = client.tenant();
    let much =
        json!({"timeout_ms": 300_000, "concurrency": 1000, "rate_limit": {"per_second": 100_000, "burst": 100_000}});
    let older = text(&client.destination(&tenant, &listener.url("/"), much.clone()), "id");
    server.terminate();
    server.ended();

    let maxima = ["--timeout-max-ms", "20000", "--concurrency-max", "16", "--rate-per-second-max", "1000"];
    let server = serve(&home, &maxima);
    let mut client = server.client();
    let cut = client.read(&format!("/v1/destinations/{older}"));
    assert_eq!(in_force(&cut), json!(["standard", 20_000, 16, {"per_second": 1000.0, "burst": 1000}]));
    let mut body = much;
    body["tenant_id"] = json!(tenant);
    body["url"] = json!(listener.url("/"));
    let refused = client.post("/v1/destinations", body).expect(422);
    let faults: Vec<(&str, &str)> = refused["errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|fault| (fault["pointer"].as_str().unwrap(), fault["detail"].as_str().unwrap()))
        .collect();
    assert_eq!(
        faults,
        [
            ("/concurrency", "must be between 1 and 16 requests at once, but is 1000"),
            ("/rate_limit/per_second", "must be between 0.001 and 1000, but is 100000"),
            ("/timeout_ms", "must be between 100 and 20000 milliseconds, but is 300000"),
        ]
    );
    let tenants =
        client.patch(&format!("/v1/tenants/{tenant}"), json!({"defaults": {"timeout_ms": 30_000}})).expect(422);
    assert_eq!(tenants["errors"][0]["pointer"], "/defaults/timeout_ms");
}

#[test]
fn the_gate_and_the_record_keep_to_the_operators_numbers() {
    let home = Home::new();
    let options = [
        "--breaker-failures-in-row",
        "2",
        "--ambiguous-attempts-max",
        "2",
        "--response-body-max-bytes",
        "5",
        "--quarantine-gone-in-row",
        "1",
    ];
    let server = serve(&home, &options);
    let receiver = Receiver::answering(|peer, request| {
        use std::io::Write;
        let status = request.path.trim_start_matches('/');
        peer.write_all(format!("HTTP/1.1 {status} Said\r\ncontent-length: 10\r\n\r\n0123456789").as_bytes())
    });
    let mut client = server.client();
    let tenant = client.tenant();
    let often = json!({"strategy": "fixed", "base_ms": 20, "jitter": "none", "window_ms": 600_000});
    let mut make = |status: u16| {
        let settings = json!({"policy": often, "event_types": [format!("s{status}")]});
        text(&client.destination(&tenant, &receiver.url(&format!("/{status}")), settings), "id")
    };
    let (failing, doubtful, gone) = (make(500), make(404), make(410));
    let events: Vec<String> =
        [500, 404, 410].iter().map(|status| client.event(&tenant, json!({"type": format!("s{status}")}))).collect();
    client.destination_in(&failing, "failing");
    let dead = client.delivery_in(&doubtful, &events[1], "dead");
    assert_eq!((&dead["reason"], &dead["request_count"]), (&json!("rejected"), &json!(2)));
    client.destination_in(&gone, "suspended");
    let attempt = &client.delivery_in(&gone, &events[2], "dead")["attempts"][0];
    let kept = attempt.to_string();
    assert!(kept.contains("01234") && !kept.contains("012345"), "{kept}");
}
