//! Whoever shows a credential that is not good is found in the log; the credential is not (S7, M5).

use std::fs;

use serde_json::{Value, json};

use crate::support::{Client, Home, Server, text};

/// A new key, and its ID.
fn key(client: &mut Client, more: Value) -> (String, String) {
    let mut body = json!({"name": "a key", "scopes": ["read"]});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let made = client.post("/v1/keys", body).expect(201);
    (text(&made, "id"), text(&made, "key"))
}

#[test]
fn a_refused_credential_is_logged_with_its_id_its_address_and_why() {
    let home = Home::new();
    let server = Server::start_with(&home, &["--log-format", "json"]);
    let mut client = server.client();
    let (revoked, revoked_key) = key(&mut client, json!({}));
    assert_eq!(client.ask("DELETE", &format!("/v1/keys/{revoked}"), &[], b"").unwrap().status, 204);
    let (elsewhere, elsewhere_key) = key(&mut client, json!({"source_cidrs": ["192.0.2.0/24"]}));
    let mut shows = |key: &str, status: u16| {
        let given = format!("Bearer {key}");
        let answer = client.ask("GET", "/v1/tenants", &[("authorization", &given)], b"").unwrap();
        assert_eq!(answer.status, status, "{}", answer.text());
    };
    shows(&revoked_key, 401);
    shows(&elsewhere_key, 403);
    let nonsense = "a-secret-of-something-else";
    (0..25).for_each(|_| shows(nonsense, 401));
    server.terminate();
    assert!(server.ended().success());

    let log = fs::read_to_string(home.path().join("log")).unwrap();
    for secret in [revoked_key.as_str(), &elsewhere_key, nonsense] {
        assert!(!log.contains(secret), "{secret} is in the log: {log}");
    }
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let warned = |message: &str| -> Vec<&Value> {
        lines.iter().filter(|line| line["message"] == message && line["level"] == "WARN").collect()
    };
    let refused = warned("a credential was refused");
    assert_eq!(refused.len(), 20, "{log}");
    for (line, id, why) in [(refused[0], json!(revoked), "not known"), (refused[1], json!(elsewhere), "this address")] {
        assert_eq!((&line["key_id"], &line["from"]), (&id, &json!("127.0.0.1")), "{line}");
        assert!(text(line, "reason").contains(why), "{line}");
    }
    assert!(refused[2]["key_id"].is_null() && text(refused[2], "reason").contains("look like a key"), "{}", refused[2]);
    let left_out: u64 = warned("more credentials were refused than are logged")
        .iter()
        .filter_map(|line| line["left_out"].as_u64())
        .sum();
    assert_eq!(left_out, 7, "{log}");
}

#[test]
fn a_portal_code_that_opens_nothing_is_logged_with_its_session_its_address_and_why() {
    let home = Home::new();
    let server = Server::start_with(&home, &["--log-format", "json"]);
    let mut client = server.client();
    let tenant_id = text(&client.post("/v1/tenants", json!({"name": "Acme"})).expect(201), "id");
    let made = client.post("/v1/portal-sessions", json!({"tenant_id": tenant_id})).expect(201);
    let (session_id, code) = (text(&made, "id"), text(&made, "code"));
    let mut enters = |code: &str, status: u16| client.post("/portal/session", json!({"code": code})).expect(status);
    enters(&code, 200);
    enters(&code, 401);
    let guess = format!("{session_id}_{}", "0".repeat(code.len() - session_id.len() - 1));
    (0..25).for_each(|_| drop(enters(&guess, 401)));
    server.terminate();
    assert!(server.ended().success());

    let log = fs::read_to_string(home.path().join("log")).unwrap();
    assert!(!log.contains(&code) && !log.contains(&guess), "{log}");
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let refused: Vec<&Value> = lines.iter().filter(|line| line["message"] == "a portal code was refused").collect();
    assert_eq!(refused.len(), 20, "a flood is counted with all other credentials: {log}");
    for line in refused {
        assert_eq!((&line["level"], &line["session_id"]), (&json!("WARN"), &json!(session_id)), "{line}");
        assert!(line["from"] == "127.0.0.1" && text(line, "reason").contains("works once"), "{line}");
    }
    let left_out = lines.iter().filter(|line| line["message"] == "more credentials were refused than are logged");
    assert_eq!(left_out.filter_map(|line| line["left_out"].as_u64()).sum::<u64>(), 6, "{log}");
}
