//! What the binary says of itself.

use std::fs;

use crate::support::{Server, run};

#[test]
fn the_binary_brings_its_description_completions_and_manual() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().to_str().unwrap();
    let document = run(&["openapi"], &[], at).json();
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1") && document["paths"]["/v1/events"].is_object());
    for shell in ["bash", "zsh", "fish"] {
        assert!(run(&["completions", shell], &[], at).ok().contains("rotate-secret"), "{shell}");
    }
    assert!(run(&["man"], &[], at).ok().contains(".SH SUBCOMMANDS"));
    assert_eq!(run(&["man", "--dir", "pages"], &[], at).ok(), "");
    let page = fs::read_to_string(dir.path().join("pages/doorstep-dest-create.1")).unwrap();
    assert!(page.contains("rate\\-limit") && !dir.path().join("pages/doorstep-bench-load.1").exists());
    run(&["completions", "cobol"], &[], at).ended(2);
}

/// Servers that are older than event types say that they have none.
#[test]
fn event_types_are_put_and_deleted() {
    let server = Server::start();
    let document = server.run(&["openapi"]).json();
    if document["paths"]["/v1/event-types"].is_null() {
        server.run(&["event-types", "list"]).ended(4);
        return;
    }
    let put = |more: &[&str]| server.run(&[&["event-types", "put", "invoice.paid", "--json"], more].concat()).json();
    let schema = ["--schema", r#"{"type": "object"}"#, "--schema-version", "1", "--ttl", "1h"];
    assert_eq!(put(&schema)["ttl_ms"], 3_600_000);
    assert_eq!(put(&["--description", "Paid"])["schemas"]["1"]["type"], "object", "what is not given stays");
    assert_eq!(server.run(&["event-types", "list", "-q"]).word(), "invoice.paid");
    assert!(server.run(&["event-types", "get", "invoice.paid"]).ok().contains("Paid"));
    let file = server.directory.path().join("types.yaml");
    fs::write(&file, "event_types: [{name: invoice.paid, description: Paid}, {name: a.b}]").unwrap();
    assert_eq!(server.run(&["apply", "-f", "types.yaml", "-q"]).word(), "a.b");
    server.run(&["event-types", "delete", "invoice.paid"]).ended(2);
    server.run(&["event-types", "delete", "invoice.paid", "--yes"]).ended(6);
    put(&["--archived"]);
    server.run(&["event-types", "delete", "invoice.paid", "--yes"]).ok();
}
