//! Files that were damaged, cut, changed or lost: what the operator is told, and what goes on all the same.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output};

use rusqlite::Connection;
use serde_json::{Value, json};

use crate::support::{Home, KEY, Listener, Server, text, until};

fn database(home: &Home) -> Connection {
    Connection::open(home.data().join("doorstep.db")).unwrap()
}

fn doorstep(home: &Home, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_doorstep"));
    command.args(words).arg("--data-dir").arg(home.data()).env_clear().env("DOORSTEP_ADMIN_KEY", KEY);
    command.current_dir(home.path()).output().unwrap()
}

fn check_deep(home: &Home) -> Output {
    doorstep(home, &["check", "--deep"])
}

/// A start that is refused: what is said of it.
#[track_caller]
fn refused(home: &Home) -> String {
    let output = doorstep(home, &["serve", "--listen", "127.0.0.1:0"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(!said.to_lowercase().contains("create table"), "no SQL: {said}");
    assert!(!said.contains("panicked"), "{said}");
    let last = said.lines().last().unwrap_or_default().to_owned();
    assert!(last.len() < 1_000, "{last}");
    last
}

fn stop(server: Server) {
    server.terminate();
    assert!(server.ended().success());
}

fn warnings(server: &Server) -> String {
    let ready = server.client().read("/readyz");
    assert_eq!(ready["ready"], json!(true), "{ready}");
    ready["warnings"].to_string()
}

/// The first of many events for a destination that takes twenty a second was changed on disk.
#[test]
fn a_payload_that_was_changed_on_disk_is_not_sent_and_holds_nobody_up() {
    let home = Home::new();
    let (server, listener) = (Server::start(&home), Listener::start(&[]));
    let mut client = server.client();
    let tenant = client.tenant();
    let settings = json!({"rate_limit": {"per_second": 20, "burst": 1}});
    let destination = text(&client.destination(&tenant, &listener.url("/"), settings), "id");
    client.tell(&destination, "pause");
    let events: Vec<String> = (0..61).map(|n| client.event(&tenant, json!({"payload": {"n": n}}))).collect();
    stop(server);
    let changed = r#"update events set payload = cast('{"n":1000000}' as blob) where id = ?1"#;
    assert_eq!(database(&home).execute(changed, [&events[0]]).unwrap(), 1);

    let server = Server::start(&home);
    let mut client = server.client();
    client.tell(&destination, "resume");
    for event in &events[1..] {
        listener.wait_for(event, 200);
    }
    let waiting = client.delivery_waiting(&destination, &events[0], "unreadable_payload");
    assert_eq!((&waiting["attempt_count"], &waiting["request_count"]), (&json!(0), &json!(0)), "it has cost nothing");
    assert!(waiting["until"].is_string() && waiting["status"] == "queued", "{waiting}");
    assert!(listener.of(&events[0]).is_empty(), "what is not as it was accepted is not signed and sent");
    let log = server.log();
    let line = log.lines().find(|line| line.contains("a payload cannot be read")).unwrap_or_else(|| panic!("{log}"));
    for name in [&text(&waiting, "id"), &events[0], &destination, &tenant, "damaged or changed on disk"] {
        assert!(line.contains(name), "{name} is not in {line}");
    }
    assert!(warnings(&server).contains("payloads could not be read"), "{}", warnings(&server));
    let metrics = client.get("/metrics").text();
    let counted = metrics.lines().find_map(|line| line.strip_prefix("doorstep_unreadable_payloads_total "));
    assert!(counted.is_some_and(|n| n.parse::<u64>().unwrap() > 0), "{metrics}");

    let deep = check_deep(&home);
    let said = String::from_utf8(deep.stdout).unwrap();
    assert_eq!(deep.status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("{}: a payload cannot be read", events[0])), "{said}");
    assert!(said.contains(&format!("{} of {}", text(&waiting, "id"), events[0])), "{said}");

    // It can be ended by hand like any other.
    client.post(&format!("/v1/deliveries/{}/abandon", text(&waiting, "id")), "").expect(200);
    stop(server);
}

#[test]
fn those_behind_it_with_the_same_ordering_key_wait_and_other_keys_go() {
    let home = Home::new();
    let (server, listener) = (Server::start(&home), Listener::start(&[]));
    let mut client = server.client();
    let tenant = client.tenant();
    let destination = text(&client.destination(&tenant, &listener.url("/"), json!({"ordering": "by_key"})), "id");
    client.tell(&destination, "pause");
    let [first, second, other] =
        ["a", "a", "b"].map(|key| client.event(&tenant, json!({"ordering_key": key, "payload": {}})));
    stop(server);
    database(&home).execute("update events set payload = zeroblob(2) where id = ?1", [&first]).unwrap();

    let server = Server::start(&home);
    let mut client = server.client();
    client.tell(&destination, "resume");
    listener.wait_for(&other, 200);
    let waiting = client.delivery_waiting(&destination, &first, "unreadable_payload");
    client.delivery_waiting(&destination, &second, "ordering");
    assert_eq!(listener.records.len(), 1);
    client.post(&format!("/v1/deliveries/{}/abandon", text(&waiting, "id")), "").expect(200);
    listener.wait_for(&second, 200);
}

#[test]
fn a_log_that_was_cut_or_damaged_is_reported_with_numbers() {
    for case in ["cut", "flipped"] {
        let home = Home::new();
        let server = Server::start(&home);
        let mut client = server.client();
        let tenant = client.tenant();
        let sent: BTreeSet<String> = (0..120).map(|_| client.event(&tenant, json!({}))).collect();
        server.kill();
        let log = home.data().join("doorstep.db-wal");
        let mut bytes = std::fs::read(&log).unwrap();
        let (third, half) = (bytes.len() / 3, bytes.len() / 2);
        match case {
            "cut" => bytes.truncate(half),
            _ => bytes[third] ^= 0xff,
        }
        std::fs::write(&log, bytes).unwrap();

        let server = Server::start(&home);
        let mut client = server.client();
        let there: BTreeSet<String> = listed(&client.read("/v1/events?limit=200"));
        assert!(there.is_subset(&sent) && there.len() < sent.len(), "{case}: {} of {}", there.len(), sent.len());
        let missing = format!("{} acknowledged events", sent.len() - there.len());
        let said = server.log();
        assert!(said.contains("data is missing: at least") && said.contains(&missing), "{case}: {said}");
        assert!(said.contains("did not close the database: checked its structure"), "{case}: {said}");
        assert!(warnings(&server).contains(&missing), "{case}: {}", warnings(&server));
        assert!(client.get("/metrics").text().contains("doorstep_store_warnings 1"), "{case}");
        let kept = home.data().read_dir().unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
        assert!(kept.into_iter().any(|name| name.starts_with("doorstep.db-wal.kept-at-")), "{case}: a copy of the log");
        client.event(&tenant, json!({}));
        let deep = String::from_utf8(check_deep(&home).stdout).unwrap();
        assert!(deep.contains(&missing), "{case}: {deep}");
        stop(server);

        let server = Server::start(&home);
        assert!(warnings(&server).contains(&missing), "{case}: it is said until somebody acknowledges it");
        stop(server);
        std::fs::remove_file(home.data().join("doorstep.commits")).unwrap();
        assert_eq!(warnings(&Server::start(&home)), "[]", "{case}");
    }
}

fn listed(page: &Value) -> BTreeSet<String> {
    page["data"].as_array().unwrap().iter().map(|event| text(event, "id")).collect()
}

#[test]
fn a_directory_that_cannot_be_used_is_told_in_plain_words() {
    let home = Home::new();
    stop(Server::start(&home));
    let version = |version: i64| database(&home).pragma_update(None, "user_version", version).unwrap();
    let right: i64 = database(&home).pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
    version(0);
    let said = refused(&home);
    assert!(said.contains("has tables (activity, ") && said.contains("restore this file from a backup"), "{said}");
    version(99);
    assert!(refused(&home).contains("was written by a newer Doorstep (schema 99"));
    version(right);

    let file = |name: &str| home.data().join(name);
    let keep = |from: &Path, to: &Path| std::fs::rename(from, to).unwrap();
    keep(&file("doorstep.db"), &file("away.db"));
    for empty in [false, true] {
        if empty {
            std::fs::write(file("doorstep.db"), "").unwrap();
        }
        let said = refused(&home);
        assert!(said.contains("is missing or empty") && said.contains("restore"), "{said}");
    }
    std::fs::write(file("doorstep.db"), "a letter to a friend ".repeat(500)).unwrap();
    let said = refused(&home);
    assert!(said.contains("it is no SQLite database, or its first page is damaged"), "{said}");
    let deep = check_deep(&home);
    assert_eq!(deep.status.code(), Some(1), "{deep:?}");
    keep(&file("away.db"), &file("doorstep.db"));
    let deep = check_deep(&home);
    assert_eq!(deep.status.code(), Some(0), "{}", String::from_utf8_lossy(&deep.stdout));
    assert!(String::from_utf8_lossy(&deep.stderr).contains("checking payloads: 0 of 0"), "it shows how far it is");
    stop(Server::start(&home));
}

/// A tenant with two destinations, of which the second is paused.
fn one_of_two_paused(server: &Server, listener: &Listener) -> (String, String, String) {
    let mut client = server.client();
    let tenant = client.tenant();
    let [sound, paused] = [(); 2].map(|()| text(&client.destination(&tenant, &listener.url("/"), json!({})), "id"));
    client.tell(&paused, "pause");
    (tenant, sound, paused)
}

/// Runs the statement that deletes a damaged row, out of the message that offers it.
fn delete_as_told(home: &Home, said: &str) {
    let (_, statement) = said.split_once("or delete it (").unwrap();
    let (statement, _) = statement.split_once(')').unwrap();
    assert_eq!(database(home).execute(statement, []).unwrap(), 1, "{statement}");
}

/// With something queued for the destination, and another destination beside it.
#[test]
fn a_destination_whose_secrets_were_damaged_is_named_with_what_to_do() {
    let home = Home::new();
    let (server, listener) = (Server::start(&home), Listener::start(&[]));
    let (tenant, sound, damaged) = one_of_two_paused(&server, &listener);
    let mut client = server.client();
    let held = client.event(&tenant, json!({}));
    client.delivery_in(&sound, &held, "delivered");
    stop(server);
    // Sealed for one destination, and moved to another.
    let moved = "update destinations set secrets = (select secrets from destinations order by id limit 1)";
    assert_eq!(database(&home).execute(moved, []).unwrap(), 2);

    let said = refused(&home);
    for part in [&damaged, &tenant, "it was damaged, changed, or moved", "restore its row from a backup, or delete it"]
    {
        assert!(said.contains(part), "{part} is not in: {said}");
    }
    assert!(!said.contains(&sound), "{said}");
    let deep = check_deep(&home);
    let found = String::from_utf8(deep.stdout).unwrap();
    assert!(found.contains(&format!("{damaged}: a destination's secrets cannot be read")), "{found}");

    delete_as_told(&home, &said);
    let server = Server::start(&home);
    let mut client = server.client();
    let event = client.event(&tenant, json!({}));
    client.delivery_in(&sound, &event, "delivered");
    client.get(&format!("/v1/destinations/{damaged}")).expect(404);
}

#[test]
fn a_damaged_gate_is_named_and_so_is_a_count_of_commits_that_is_gone() {
    let home = Home::new();
    let (server, listener) = (Server::start(&home), Listener::start(&[]));
    let (tenant, sound, damaged) = one_of_two_paused(&server, &listener);
    stop(server);
    assert_eq!(database(&home).execute("update gates set state = x'7b'", []).unwrap(), 1, "one was paused");

    let said = refused(&home);
    for part in ["gates", &damaged, &tenant, "pause the destination again if it was paused"] {
        assert!(said.contains(part), "{part} is not in: {said}");
    }
    assert!(!said.contains(&sound), "{said}");
    delete_as_told(&home, &said);
    std::fs::remove_file(home.data().join("doorstep.commits")).unwrap();
    let server = Server::start(&home);
    let mut client = server.client();
    let event = client.event(&tenant, json!({}));
    client.delivery_in(&sound, &event, "delivered");
    client.delivery_in(&damaged, &event, "delivered");
    let log = server.log();
    assert!(log.contains("the count of commits is missing or damaged"), "{log}");
}

/// Its row was damaged, not its payload.
#[test]
fn damage_that_stops_a_destination_is_told_by_readyz() {
    let home = Home::new();
    let (server, listener) = (Server::start(&home), Listener::start(&[]));
    let mut client = server.client();
    let tenant = client.tenant();
    let destination = text(&client.destination(&tenant, &listener.url("/"), json!({})), "id");
    client.tell(&destination, "pause");
    client.event(&tenant, json!({}));
    stop(server);
    assert_eq!(database(&home).execute("update deliveries set attempts = -1", []).unwrap(), 1);
    let server = Server::start(&home);
    server.client().tell(&destination, "resume");
    until("a warning", || warnings(&server).contains("the database is damaged").then_some(()));
}
