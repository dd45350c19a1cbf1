//! Without any configuration it starts and works (section 12).

use std::process::Command;

use serde_json::json;

use crate::support::{Home, Server};

/// `doorstep serve` with nothing but a free port.
fn start(home: &Home) -> Server {
    let mut command = Command::new(env!("CARGO_BIN_EXE_doorstep"));
    command.arg("serve").env_clear().env("DOORSTEP_LISTEN", "127.0.0.1:0");
    Server::spawn(command, home)
}

#[test]
fn the_first_start_prints_a_key_once_and_later_ones_none() {
    let home = Home::new();
    let first = start(&home);
    let printed = first.printed.all();
    let key = printed.iter().find_map(|line| line.strip_prefix("admin key: ")).expect("a key is printed").to_owned();
    let mut client = first.client().with_key(&key);
    let tenant = client.tenant();
    assert_eq!(first.client().with_key("dsk_wrong").get("/v1/tenants").status, 401);
    assert!(home.path().join("doorstep-data").is_dir());
    assert!(!first.log().contains(&key), "the key is not logged");
    first.terminate();
    assert!(first.ended().success());

    let second = start(&home);
    assert!(!second.printed.all().iter().any(|line| line.contains("key")), "{:?}", second.printed.all());
    let mut client = second.client().with_key(&key);
    let shown = client.read(&format!("/v1/tenants/{tenant}"));
    assert_eq!(shown["name"], json!("Acme"));
}

#[test]
fn a_directory_belongs_to_one_process() {
    let home = Home::new();
    let server = Server::start(&home);
    let mut command = Command::new(env!("CARGO_BIN_EXE_doorstep"));
    command.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(home.data()).env_clear();
    let refused = command.output().unwrap();
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(refused.stdout.is_empty(), "no key is printed by whoever cannot start: {refused:?}");
    assert_eq!(server.client().get("/healthz").status, 200);
    assert_eq!(server.client().get("/readyz").status, 200);
}
