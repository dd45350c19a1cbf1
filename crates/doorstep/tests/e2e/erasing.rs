//! A tenant's payloads are erased by forgetting their key, of which nothing stays (S6).

use std::process::Command;

use serde_json::json;

use crate::support::{Home, Server};

/// The sealed key of the only tenant, as somebody finds it who has the file.
fn sealed_key(home: &Home) -> Vec<u8> {
    let look = "import sqlite3, sys\nprint(sqlite3.connect(sys.argv[1]).execute('select hex(sealed) from tenant_keys').fetchone()[0])";
    let found = Command::new("python3").args(["-c", look]).arg(home.data().join("doorstep.db")).output().unwrap();
    assert!(found.status.success(), "{found:?}");
    let hex = String::from_utf8(found.stdout).unwrap();
    let bytes = hex.trim().as_bytes().chunks(2);
    bytes.map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap()).collect()
}

/// The files that contain these bytes.
fn holding(home: &Home, bytes: &[u8]) -> Vec<String> {
    let files = home.data().read_dir().unwrap().map(|file| file.unwrap().path());
    let holds = files.filter(|file| std::fs::read(file).unwrap().windows(bytes.len()).any(|part| part == bytes));
    holds.map(|file| file.display().to_string()).collect()
}

#[test]
fn nothing_of_an_erased_key_stays_in_the_data_directory() {
    let home = Home::new();
    let server = Server::start_with(&home, &["--encrypt-payloads", "true"]);
    let mut client = server.client();
    let tenant = client.tenant();
    client.event(&tenant, json!({ "id": "secret", "payload": { "of": "somebody" } }));
    client.get("/v1/events/secret").expect(200);
    let key = sealed_key(&home);
    assert!(key.len() > 32 && !holding(&home, &key).is_empty());
    let answer = client.ask("DELETE", &format!("/v1/tenants/{tenant}/payloads"), &[], b"").unwrap();
    assert_eq!(answer.status, 204, "{}", answer.text());
    assert_eq!(holding(&home, &key), Vec::<String>::new());
    client.get("/v1/events/secret").expect(404);
}
