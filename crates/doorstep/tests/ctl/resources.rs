//! Each group of commands, once through.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::support::{Server, receiver, run};

const NOWHERE: &str = "http://127.0.0.1:9/";

#[test]
fn tenants_are_made_changed_and_listed() {
    let server = Server::start();
    let id = server.run(&["tenants", "create", "Acme", "--weight", "3", "-q"]).word();
    assert!(id.starts_with("ten_"), "{id}");
    server.run(&["tenants", "create", "Bolt"]).ok();
    let changed = server.run(&["tenants", "update", &id, "--contact-email", "ops@acme.example", "--json"]).json();
    assert_eq!((&changed["weight"], &changed["contact_email"]), (&3.into(), &"ops@acme.example".into()));
    let shown = server.run(&["tenants", "get", &id]);
    assert!(shown.ok().contains("contact_email  ops@acme.example\n"), "{}", shown.ok());

    let table = server.run(&["tenants", "list"]);
    let lines: Vec<&str> = table.ok().lines().collect();
    assert_eq!(lines.len(), 3);
    assert!(
        lines[0].starts_with("ID ")
            && lines[1].contains("Acme")
            && lines[2].ends_with("ago") | lines[2].ends_with("now")
    );
    assert_eq!(lines[1].find("Acme"), lines[0].find("NAME"), "columns stand under their headings");

    let lines = server.run(&["tenants", "list", "--json"]).lines();
    assert_eq!(lines.iter().map(|tenant| tenant["name"].as_str().unwrap()).collect::<Vec<_>>(), ["Acme", "Bolt"]);
    assert!(lines[0]["created_at"].as_str().unwrap().ends_with('Z'));
    let first = server.run(&["tenants", "list", "-q", "--limit", "1"]);
    assert_eq!(first.word(), id);
    let cursor = first.told().trim().rsplit(' ').next().unwrap().to_owned();
    assert_eq!(server.run(&["tenants", "list", "--all", "--json", "--cursor", &cursor]).lines().len(), 1);
}

#[test]
fn destinations_are_steered_from_the_command_line() {
    let server = Server::start();
    server.run(&["tenants", "create", "Acme"]).ok();
    let url = receiver();
    let made = server.run(&[
        "dest",
        "create",
        "--url",
        &url,
        "--name",
        "billing",
        "--event-types",
        "invoice.*,a.b",
        "--rate-limit",
        "600/m",
        "--pinned-pace",
        "30/m",
        "--timeout",
        "5s",
        "--policy",
        "patient",
        "--header",
        "authorization: Bearer x",
        "--filter",
        r#"{"amount": {"gt": 5}}"#,
        "--json",
    ]);
    let made = made.json();
    let id = made["id"].as_str().unwrap();
    assert!(made["secret"].as_str().unwrap().starts_with("whsec_"));
    assert_eq!((&made["rate_limit"]["per_second"], &made["pinned_pace"]["per_second"]), (&10.0.into(), &0.5.into()));
    let shown = server.run(&["dest", "get", id]);
    let is_pinned = |line: &str| line.starts_with("pinned_pace ") && line.ends_with(r#" {"per_second":0.5}"#);
    assert!(shown.ok().lines().any(is_pinned), "{}", shown.ok());
    let unpinned = server.run(&["dest", "update", id, "--pinned-pace", "none", "--json"]).json();
    assert_eq!(unpinned["pinned_pace"], serde_json::Value::Null);
    assert_eq!((&made["timeout_ms"], &made["headers"]["authorization"]), (&5_000.into(), &"***".into()));
    let changed =
        server.run(&["dest", "update", id, "--concurrency", "2", "--data", r#"{"filter": null}"#, "--json"]).json();
    assert_eq!((&changed["concurrency"], &changed["filter"]), (&2.into(), &serde_json::Value::Null));
    assert_eq!(changed["name"], "billing", "what was not given stays");

    assert!(server.run(&["dest", "pause", id]).ok().contains(" paused "));
    for verb in ["resume", "probe", "clear-throttle"] {
        assert_eq!(server.run(&["dest", verb, id, "-q"]).word(), id, "{verb}");
    }
    assert_eq!(server.run(&["dest", "clear-throttle", id, "--forget-learned", "-q"]).word(), id);
    let audit = server.run(&["audit", "list", "--json"]).lines();
    let clearings = audit.iter().filter(|entry| entry["action"] == "destination.clear_throttle");
    let forgot: Vec<bool> = clearings.map(|entry| entry["changes"]["forget_learned"]["after"] == true).collect();
    assert_eq!(forgot, [true, false], "newest first");
    assert!(server.run(&["dest", "test", id, "--type", "a.b", "--data", "{}"]).ok().starts_with("success: 200 after "));
    let unasked = server.run(&["dest", "verify", id]);
    unasked.ended(6);
    assert!(unasked.told().contains("nobody has to agree"), "{}", unasked.told());
    server.run(&["dest", "update", id, "--verification", "cloudevents_options"]).ok();
    let asked = server.run(&["dest", "verify", id]);
    assert_eq!(asked.ended(1), "");
    assert!(asked.told().contains("the answer has no WebHook-Allowed-Origin header"), "{}", asked.told());
    server.run(&["dest", "update", id, "--verification", "none"]).ok();
    let secret = server.run(&["dest", "rotate-secret", id, "--overlap", "1h", "-q"]).word();
    assert!(secret.starts_with("whsec_") && secret != made["secret"].as_str().unwrap());
    assert_eq!(server.run(&["destinations", "list", "-q"]).word(), id);

    let refused = server.run(&["dest", "delete", id]);
    assert_eq!(refused.ended(2), "");
    assert!(refused.told().contains("confirm it with --yes"), "{}", refused.told());
    let some = server.run(&["dest", "delete", id, "dst_nonsense", "--yes"]);
    assert_eq!(some.ended(8), format!("{id}: deleted\n"));
    server.run(&["dest", "get", id]).ended(4);

    let gone = server.run(&["dest", "create", "--url", NOWHERE, "-q"]).word();
    let tested = server.run(&["dest", "test", &gone]);
    assert!(tested.ended(1).starts_with("transient: "), "{}", tested.ended(1));
}

#[test]
fn events_and_deliveries_are_found_ended_and_sent_again() {
    let server = Server::start();
    let tenant = server.run(&["tenants", "create", "Acme", "-q"]).word();
    let destination = server.run(&["dest", "create", "--url", NOWHERE, "-q"]).word();
    server.run(&["dest", "pause", &destination]).ok();
    let sent = server.run(&["events", "send", "invoice.paid", "--data", r#"{"n": 1.50}"#, "--json"]).json();
    let event = sent["id"].as_str().unwrap();
    let got = server.run(&["events", "get", event, "--json"]);
    assert!(got.ok().contains(r#"{"n": 1.50}"#), "the payload is what was sent: {}", got.ok());
    assert_eq!(server.run(&["events", "list", "--tenant", &tenant, "--type", "invoice.paid", "-q"]).word(), event);

    let query = ["deliveries", "list", "--destination", &destination, "--tenant", &tenant, "--type", "invoice.paid"];
    let found = |more: &[&str]| server.run(&[&query, more].concat()).lines();
    let queued = found(&["--status", "queued", "--created-after", "1h", "--json"]);
    let id = queued[0]["id"].as_str().unwrap();
    assert_eq!(queued.len(), 1);
    assert!(found(&["--created-before", "1h", "--json"]).is_empty());
    assert!(found(&["--status", "dead", "--json"]).is_empty());

    assert!(server.run(&["deliveries", "abandon", id]).told().contains("--yes"));
    server.run(&["deliveries", "abandon", id, "--yes", "--note", "a test"]).ok();
    assert_eq!(found(&["--status", "dead", "--reason", "abandoned", "--json"]).len(), 1);
    server.run(&["deliveries", "retry", id]).ok();
    let shown = server.run(&["deliveries", "get", id, "--json"]).json();
    assert_eq!(shown["status"], "queued");
    assert!(server.run(&["deliveries", "get", id]).ok().contains("waiting_for"));
}

#[test]
fn keys_open_what_they_are_good_for_until_they_are_revoked() {
    let server = Server::start();
    let tenant = server.run(&["tenants", "create", "Acme", "-q"]).word();
    let made = server.run(&[
        "keys",
        "create",
        "billing",
        "--scopes",
        "ingest,read",
        "--tenant",
        &tenant,
        "--expires",
        "90d",
        "--json",
    ]);
    let made = made.json();
    let (id, key) = (made["id"].as_str().unwrap(), made["key"].as_str().unwrap());
    assert!(key.starts_with("dsk_") && made["expires_at"].is_string());
    server.run_with(&["events", "list"], key).ok();
    server.run_with(&["keys", "list"], key).ended(5);
    assert!(server.run(&["keys", "create", "ops", "--scopes", "operate", "-q"]).word().starts_with("dsk_"));
    assert_eq!(server.run(&["keys", "list", "--json"]).lines().len(), 2);
    server.run(&["keys", "revoke", id]).ended(2);
    assert_eq!(server.run(&["keys", "revoke", id, "--yes"]).ok(), format!("{id}: revoked\n"));
    server.run_with(&["events", "list"], key).ended(5);

    let log = server.run(&["audit", "list", "--resource", id, "--json"]).lines();
    let actions: Vec<_> = log.iter().map(|line| line["action"].as_str().unwrap()).collect();
    assert_eq!(actions, ["key.revoke", "key.create"]);
    assert!(server.run(&["audit", "list", "--action", "key.revoke"]).ok().contains(id));
}

#[test]
fn lists_are_narrowed_by_the_same_words_as_in_the_api() {
    let server = Server::start();
    let tenant = server.run(&["tenants", "create", "Acme", "-q"]).word();
    for types in ["invoice.*", "*"] {
        let destination = server.run(&["dest", "create", "--url", NOWHERE, "--event-types", types, "-q"]).word();
        server.run(&["dest", "pause", &destination]).ok();
    }
    let sent = |kind: &str| {
        let sent = server.run(&["send", kind, "--data", "{}", "--json"]).json();
        sent["id"].as_str().unwrap().to_owned()
    };
    let (paid, added, made) = (sent("invoice.paid"), sent("invoice.line.added"), sent("order.made"));
    let found = |words: &[&str]| {
        let lines = server.run(&[words, &["--json"]].concat()).lines();
        let id = |line: &serde_json::Value| line.get("event_id").unwrap_or(&line["id"]).as_str().unwrap().to_owned();
        lines.iter().map(id).collect::<Vec<_>>()
    };
    assert_eq!(found(&["events", "list", "--type", "invoice.*"]), [&*added, &*paid]);
    assert_eq!(found(&["events", "list", "--type", "*.paid", "--type", "*.made", "--since", "1h"]), [&*made, &*paid]);
    assert!(found(&["events", "list", "--until", "1h"]).is_empty());
    assert_eq!(found(&["deliveries", "list", "--event", &paid]), [&*paid, &*paid]);
    assert_eq!(found(&["deliveries", "list", "--type", "order.*,x", "--status", "dead", "--status", "queued"]), [made]);

    let query = ["deliveries", "list", "--status", "failed", "--type", "*.paid", "--tenant", &tenant];
    let nothing = server.run(&query);
    nothing.ok();
    let asked = format!("status=retry_scheduled,dead&type=*.paid&tenant_id={tenant}");
    assert_eq!(nothing.told(), format!("-- nothing fits {asked}\n"));
    assert_eq!(server.run(&[&query[..], &["-q"]].concat()).told(), "", "programs are told nothing");
}

#[test]
fn keys_are_changed_and_rotated_and_stay_what_they_are_for() {
    let server = Server::start();
    let made = server.run(&["keys", "create", "billing", "--scopes", "read", "--expires", "1d", "--json"]).json();
    let (id, key) = (made["id"].as_str().unwrap(), made["key"].as_str().unwrap());
    let words = ["keys", "update", id, "--name", "ledger", "--source-cidrs", "127.0.0.0/8,10.0.0.0/8", "--json"];
    let changed = server.run(&words).json();
    assert_eq!((&changed["name"], &changed["version"]), (&"ledger".into(), &2.into()));
    assert_eq!((&changed["expires_at"], &changed["scopes"]), (&made["expires_at"], &made["scopes"]));
    let words = ["keys", "update", id, "--expires", "never", "--source-cidrs", "", "--json"];
    let changed = server.run(&words).json();
    assert!(changed["expires_at"].is_null() && changed["source_cidrs"].as_array().unwrap().is_empty(), "{changed}");

    let second = server.run(&["keys", "rotate", id, "--overlap", "1h", "-q"]).word();
    server.run_with(&["events", "list"], key).ok();
    server.run_with(&["events", "list"], &second).ok();
    let third = server.run(&["keys", "rotate", id, "--if-match", "4", "-q"]).word();
    server.run_with(&["events", "list"], &second).ended(5);
    server.run_with(&["events", "list"], &third).ok();
    server.run(&["keys", "rotate", id, "--if-match", "4"]).ended(6);
    assert!(server.run(&["keys", "get", id]).ok().contains("version           5\n"));
}

#[test]
fn a_change_to_what_was_not_seen_is_refused() {
    let server = Server::start();
    server.run(&["tenants", "create", "Acme"]).ok();
    let made = server.run(&["dest", "create", "--url", NOWHERE, "--json"]).json();
    let id = made["id"].as_str().unwrap();
    let version = server.run(&["dest", "get", id, "--json"]).json()["version"].to_string();
    let words = ["dest", "update", id, "--concurrency", "3", "--if-match", &version];
    server.run(&words).ok();
    server.run(&words).ended(6);
    let shown = server.run(&["dest", "get", id, "--json"]).json();
    assert_eq!(shown["concurrency"], 3);
    server.run(&["dest", "update", id, "--concurrency", "4", "--if-match", &format!("\"{}\"", shown["version"])]).ok();

    let put = |words: &[&str]| server.run(&[&["event-types", "put", "a.b", "--description"], words].concat());
    put(&["one", "--if-match", "1"]).ended(4);
    put(&["one"]).ok();
    put(&["two", "--if-match", "1"]).ok();
    put(&["three", "--if-match", "1"]).ended(6);
    let shown = server.run(&["event-types", "get", "a.b", "--json"]).json();
    assert_eq!((&shown["description"], &shown["version"]), (&"two".into(), &2.into()));

    let tenant = server.run(&["tenants", "create", "Bolt", "-q"]).word();
    let weigh = |weight: &str| server.run(&["tenants", "update", &tenant, "--weight", weight, "--if-match", "1"]);
    weigh("2").ok();
    weigh("3").ended(6);
    assert_eq!(server.run(&["tenants", "get", &tenant, "--json"]).json()["weight"], 2);
}

#[test]
fn what_was_changed_since_it_was_seen_is_not_deleted() {
    let server = Server::start();
    server.run(&["tenants", "create", "Acme"]).ok();
    let id = server.run(&["dest", "create", "--url", NOWHERE, "-q"]).word();
    server.run(&["event-types", "put", "a.b", "--archived"]).ok();
    for (group, name) in [("dest", id.as_str()), ("event-types", "a.b")] {
        let delete = |words: &[&str]| server.run(&[&[group, "delete", name, "--yes"], words].concat());
        let version = server.run(&[group, "get", name, "--json"]).json()["version"].to_string();
        delete(&["--if-match", "99"]).ended(6);
        delete(&["another", "--if-match", &version]).ended(2);
        server.run(&[group, "get", name]).ok();
        delete(&["--if-match", &version]).ok();
        server.run(&[group, "get", name]).ended(4);
    }
}

#[test]
fn programs_are_told_a_failure_as_a_line_of_json() {
    let server = Server::start();
    std::fs::write(server.directory.path().join("wrong"), "wrong\n").unwrap();
    for (words, code, member, told) in [
        (&["tenants", "get", "ten_nonsense", "--json"][..], 4, "code", "not_found"),
        (&["tenants", "create", "", "--json"], 1, "/errors/0/pointer", "/name"),
        (&["tenants", "list", "--key-file", "wrong", "--json"], 5, "code", "unauthorized"),
        (&["tenants", "list", "--key", "wrong", "--json"], 2, "code", "usage"),
        (&["tenants", "list", "--server", "http://127.0.0.1:9", "--json"], 7, "code", "unreachable"),
        (&["dest", "create", "--data", "{", "--url", NOWHERE, "--json"], 2, "code", "usage"),
        (&["send", "a.b", "--tenant", "ten_nonsense", "--json"], 1, "code", "invalid_request"),
    ] {
        let ran = server.run(words);
        assert_eq!(ran.ended(code), "", "{words:?}");
        let lines: Vec<&str> = ran.told().lines().collect();
        let problem: serde_json::Value = serde_json::from_str(lines[0]).unwrap_or_else(|_| panic!("{}", ran.told()));
        let member = if member.starts_with('/') { member.to_owned() } else { format!("/{member}") };
        assert_eq!(problem.pointer(&member), Some(&told.into()), "{words:?}: {problem}");
        assert!(problem["detail"].is_string() && lines.len() == 1, "{}", ran.told());
    }
    let some = server.run(&["keys", "revoke", "key_nonsense", "key_sense", "--yes", "--json"]);
    assert_eq!(some.ended(4), "");
    let told: Vec<serde_json::Value> = some.told().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&told[0]["id"], &told[1]["id"], told.len()), (&"key_nonsense".into(), &"key_sense".into(), 3));
}

#[test]
fn a_portal_is_a_link_to_this_server() {
    let server = Server::start();
    let tenant = server.run(&["tenants", "create", "Acme", "-q"]).word();
    let link = server.run(&["portal", &tenant, "--expires-in", "10m"]).word();
    let start = format!("{}/portal/#code=", server.base());
    assert!(link.starts_with(&start), "{link}");
    let quiet = server.run(&["portal", &tenant, "-q"]);
    assert!(quiet.word().starts_with(&start) && quiet.told().is_empty(), "{}{}", quiet.ok(), quiet.told());
}

/// What comes of following a link to a portal.
fn followed(server: &Server, link: &str) -> String {
    let (_, code) = link.split_once("#code=").unwrap();
    let host = server.base().strip_prefix("http://").unwrap();
    let body = serde_json::json!({ "code": code }).to_string();
    let mut stream = TcpStream::connect(host).unwrap();
    let head =
        format!("POST /portal/session HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\nconnection: close");
    stream.write_all(format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split(' ').nth(1).unwrap_or_default().to_owned()
}

#[test]
fn all_sessions_of_a_tenant_end_and_no_others() {
    let server = Server::start();
    let [acme, bolt] = ["Acme", "Bolt"].map(|name| server.run(&["tenants", "create", name, "-q"]).word());
    let portal = |tenant: &str| server.run(&["portal", tenant, "-q"]).word();
    let (ended, other) = (portal(&acme), portal(&bolt));
    assert_eq!(server.run(&["portal", &acme, "--end-all"]).ok(), format!("{acme}: ended\n"));
    let codes = [ended, other, portal(&acme)].map(|link| followed(&server, &link));
    assert_eq!(codes, ["401", "200", "200"]);
    server.run(&["portal", "ten_nonsense", "--end-all"]).ended(1);
    server.run(&["portal", &acme, "--end-all", "--expires-in", "10m"]).ended(2);
}

#[test]
fn payloads_are_erased_by_whoever_is_sure() {
    let server = Server::start_with(&["--encrypt-payloads", "true"]);
    let tenant = server.run(&["tenants", "create", "Acme", "-q"]).word();
    server.run(&["send", "a.b", "--id", "one", "--data", "{}"]).ok();
    server.run(&["events", "get", "one"]).ok();
    let unsure = server.run(&["tenants", "erase-payloads", &tenant]);
    assert_eq!(unsure.ended(2), "");
    server.run(&["events", "get", "one"]).ok();
    assert_eq!(server.run(&["tenants", "erase-payloads", &tenant, "--yes"]).ok(), format!("{tenant}: erased\n"));
    server.run(&["events", "get", "one"]).ended(4);
    server.run(&["tenants", "erase-payloads", &tenant, "--yes"]).ended(6);
}

#[test]
fn a_secret_of_ones_own_comes_from_a_file_and_links_have_a_key_of_their_own() {
    let server = Server::start();
    server.run(&["tenants", "create", "Acme"]).ok();
    let create = |mode: &str| server.run(&["dest", "create", "--url", NOWHERE, "--payload-mode", mode, "-q"]).word();
    let (full, thin) = (create("full"), create("thin"));
    let rotate = |words: &[&str]| server.run(&[&["dest", "rotate-secret"], words].concat());

    let secret = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    std::fs::write(server.directory.path().join("secret"), format!("{secret}\n")).unwrap();
    assert_eq!(rotate(&[&full, "--secret-file", "secret", "-q"]).word(), secret);
    assert!(rotate(&[&full, "--secret-file", "missing"]).told().contains("cannot read missing"));

    assert_eq!(rotate(&[&thin, "--links"]).ok(), format!("{thin}: rotated\n"));
    let never = rotate(&[&full, "--links"]);
    never.ended(6);
    assert!(never.told().contains("there are no links"), "{}", never.told());
    rotate(&[&thin, "--links", "--overlap", "1h"]).ended(2);
}

#[test]
fn failures_have_the_promised_numbers() {
    let server = Server::start();
    std::fs::write(server.directory.path().join("wrong"), "wrong\n").unwrap();
    for (words, code, told) in [
        (&["tenants", "get", "ten_nonsense"][..], 4, ""),
        (&["tenants", "list", "--key-file", "wrong"], 5, ""),
        (&["dest", "create", "--url", NOWHERE], 4, "doorstep tenants create"),
        (&["dest", "create", "--header", "x"], 2, "is not a header"),
        (&["deliveries", "list", "--created-after", "soon"], 2, "`soon` is not a time"),
        (&["deliveries", "list", "--json", "--quiet"], 2, "cannot be used with"),
        (&["deliveries", "list", "--status", "deda"], 2, "--status: `deda` is none: did you mean `dead`?"),
        (
            &["deliveries", "list", "--destination", "billing"],
            2,
            "--destination: \"billing\" is not a destination's ID",
        ),
        (&["events", "list", "--type", "inv*"], 2, "--type: `inv*`: `*` stands for whole segments only"),
        (&["tenants", "create", ""], 1, "/name"),
        (&["tenants", "list", "--server", "http://127.0.0.1:9"], 7, "is the server running?"),
    ] {
        let ran = server.run(words);
        assert_eq!(ran.ended(code), "", "{words:?}");
        assert!(ran.told().contains(told), "{words:?}: {}", ran.told());
    }
    assert!(run(&["tenants", "list"], &[], ".").told().contains("no API key"));
}
