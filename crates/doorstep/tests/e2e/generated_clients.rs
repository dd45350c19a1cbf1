//! The API's description as other people's tools read it (P5): linters accept it, and the clients that are made from it create a tenant and a
//! destination, send an event, and read its delivery.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::support::{Home, KEY, Receiver, Server, in_repository, text};

/// Runs it to its end and returns what it said; fails if it does.
#[track_caller]
fn run(command: &mut Command) -> String {
    // These ask for news of themselves otherwise.
    let command = command.env("REDOCLY_TELEMETRY", "off").env("REDOCLY_SUPPRESS_UPDATE_NOTICE", "true");
    let done = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let told = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success(), "{command:?}\n{told}\n{}", String::from_utf8_lossy(&done.stderr));
    told
}

fn python(program: &str) -> Command {
    let there = in_repository(&format!(".venv/bin/{program}"));
    assert!(there.exists(), "there is no {program}: `make venv` fetches it");
    let mut command = Command::new(there);
    // One of them looks for another one.
    let path = std::env::join_paths(
        std::iter::once(in_repository(".venv/bin")).chain(std::env::split_paths(&std::env::var_os("PATH").unwrap())),
    );
    command.env("PATH", path.unwrap());
    command
}

fn node(program: &str) -> Command {
    let there = in_repository(&format!("e2e/node_modules/.bin/{program}"));
    assert!(there.exists(), "there is no {program}: `make examples` fetches it");
    Command::new(there)
}

fn description() -> std::path::PathBuf {
    in_repository("api/openapi.json")
}

#[test]
fn linters_accept_the_description() {
    run(python("openapi-spec-validator").arg(description()));
    run(node("redocly").arg("lint").arg(description()).args(["--extends", "recommended"]));
}

/// A server and a receiver; `client` is given where they are, and prints what it has read of its delivery.
fn sends_an_event(client: impl FnOnce(&[&str]) -> String) {
    let home = Home::new();
    let (server, receiver) = (Server::start(&home), Receiver::start());
    let told = client(&[&format!("http://{}", server.address), KEY, &receiver.url("/")]);
    let read: Value = serde_json::from_str(told.trim()).unwrap_or_else(|_| panic!("{told}"));
    assert_eq!((&read["status"], &read["attempts"]), (&"delivered".into(), &1.into()), "{read}");
    assert_eq!(read["event_id"], read["accepted"]);
    assert_eq!(receiver.requests.all()[0].header("webhook-id"), Some(text(&read, "event_id").as_str()));
}

#[test]
fn a_client_that_openapi_python_client_makes_sends_an_event() {
    let folder = tempfile::tempdir().unwrap();
    let package = folder.path().join("doorstep_client");
    let made = run(python("openapi-python-client")
        .args(["generate", "--meta", "none", "--fail-on-warning", "--path"])
        .arg(description())
        .arg("--output-path")
        .arg(&package));
    assert!(!made.contains("Warning"), "{made}");
    let script = in_repository("e2e/client_python.py");
    sends_an_event(|there| run(python("python").arg(script).arg(folder.path()).args(there)));
}

/// Puts the program `e2e/{name}.ts` beside what is made for it, lets the compiler judge it, and runs it.
fn run_typescript(folder: &Path, name: &str, there: &[&str]) -> String {
    let modules = in_repository("e2e/node_modules");
    std::os::unix::fs::symlink(modules, folder.join("node_modules")).unwrap();
    let program = folder.join(format!("{name}.ts"));
    std::fs::copy(in_repository(&format!("e2e/{name}.ts")), &program).unwrap();
    run(node("tsc")
        .current_dir(folder)
        .args(["--noEmit", "--strict", "--skipLibCheck", "--module", "esnext", "--moduleResolution", "bundler"])
        .args(["--target", "es2022", "--lib", "es2023,dom", "--types", "node"])
        .arg(&program));
    let built = folder.join(format!("{name}.mjs"));
    run(node("esbuild")
        .current_dir(folder)
        .args(["--bundle", "--platform=node", "--format=esm", "--log-level=error"])
        .arg(format!("--outfile={}", built.display()))
        .arg(&program));
    run(Command::new("node").arg(built).args(there))
}

#[test]
fn a_program_with_the_types_that_openapi_typescript_makes_sends_an_event() {
    let folder = tempfile::tempdir().unwrap();
    run(node("openapi-typescript").arg(description()).arg("-o").arg(folder.path().join("doorstep.ts")));
    sends_an_event(|there| run_typescript(folder.path(), "client_fetch", there));
}

#[test]
fn a_client_that_openapi_ts_makes_sends_an_event() {
    let folder = tempfile::tempdir().unwrap();
    run(node("openapi-ts")
        .current_dir(folder.path())
        .arg("-i")
        .arg(description())
        .arg("-o")
        .arg(folder.path().join("sdk"))
        .args(["-c", "@hey-api/client-fetch"]));
    sends_an_event(|there| run_typescript(folder.path(), "client_sdk", there));
}
