//! The API is judged by its own description: what that calls right is taken, what it calls wrong is refused, and every answer is one
//! that it describes (P5, section 12).

use std::process::Command;

use serde_json::json;

use crate::support::{Home, KEY, Server, in_repository, text, until};

/// Which requests are made up. Another one finds other faults: `schemathesis run --seed N` as below, against a server of your own.
const SEED: &str = "20261115";
/// Requests that are made up for each operation, beside those that its description leads to.
const EXAMPLES: &str = "15";

#[test]
fn the_api_is_as_it_describes_itself() {
    let home = Home::new();
    // The hooks ask for this preset by name, beside those that come with Doorstep.
    let policies = r#"{"weekend": {"strategy": "fixed"}}"#;
    let server = Server::start_with(&home, &["--allow-targets", "127.0.0.0/8", "--policies", policies]);
    let mut client = server.client();
    let tenant = client.tenant();
    // Nothing listens there.
    let destination = text(&client.destination(&tenant, "http://127.0.0.1:9/", json!({})), "id");
    let event = client.event(&tenant, json!({}));
    let delivery = until("its delivery", || {
        let page = client.read("/v1/deliveries");
        page["data"].get(0).map(|line| text(line, "id"))
    });
    let schemathesis = in_repository(".venv/bin/schemathesis");
    assert!(schemathesis.exists(), "there is no .venv with schemathesis: `make venv` makes it");
    let judged = Command::new(schemathesis)
        .current_dir(in_repository("e2e"))
        .args(["--config-file", "schemathesis.toml", "run"])
        .arg(format!("http://{}/openapi.json", server.address))
        .args(["--header", &format!("Authorization: Bearer {KEY}")])
        .args(["--checks", "all", "--phases", "examples,coverage,fuzzing,stateful"])
        // It never ends.
        .args(["--exclude-path", "/v1/stream"])
        .args(["--max-examples", EXAMPLES, "--seed", SEED, "--generation-database", "none", "--no-color"])
        // How fast this machine is says nothing about the API.
        .args(["--suppress-health-check", "all"])
        .env("DOORSTEP_TENANT", &tenant)
        .env("DOORSTEP_DESTINATION", &destination)
        .env("DOORSTEP_EVENT", &event)
        .env("DOORSTEP_DELIVERY", &delivery)
        .output()
        .unwrap();
    let told = [judged.stdout, judged.stderr].concat();
    assert!(judged.status.success(), "seed {SEED}:\n{}", String::from_utf8_lossy(&told));
}
