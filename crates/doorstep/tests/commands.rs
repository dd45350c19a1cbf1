//! What scripts rely on: exit codes, and what goes to which output.
#![expect(clippy::unwrap_used, reason = "a test stops where something is missing")]

use std::fs;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// Runs the command in an empty directory, with no variables but these.
fn run(dir: &TempDir, words: &[&str], env: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_doorstep"));
    command.args(words).current_dir(dir.path()).env_clear().envs(env.iter().copied()).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn each_kind_of_failure_has_its_exit_code_and_goes_to_standard_error() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("bad.toml"), "lissen = 1").unwrap();
    let cases: [(&[&str], i32, &str); 6] = [
        (&["nonsense"], 2, "unrecognized subcommand"),
        (&["policy", "show", "standart"], 2, "error: there is no preset \"standart\""),
        (&["policy", "simulate", "--outage", "1y"], 2, "is not a span of time"),
        (&["policy", "simulate", "--rate", "100000/s"], 2, "deliveries are too many to simulate"),
        (
            &["config", "show", "--config", "bad.toml"],
            3,
            "unknown key `lissen` in bad.toml line 1: did you mean `listen`?",
        ),
        (&["policy", "show", "@missing.json"], 1, "error: cannot read the policy in missing.json\n  because: "),
    ];
    for (words, code, told) in cases {
        let output = run(&dir, words, &[]);
        assert_eq!(output.status.code(), Some(code), "{words:?}");
        assert!(text(&output.stderr).contains(told), "{words:?}: {}", text(&output.stderr));
        assert_eq!(text(&output.stdout), "", "{words:?}");
    }
}

#[test]
fn the_configuration_is_found_and_its_sources_are_told() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(
        dir.path().join("doorstep.toml"),
        "# ours\nlog_format = 'json'\nadmin_key = 'a-long-administrators-key'\n",
    )
    .unwrap();
    let words = ["config", "show", "--sources", "--json", "--in-flight-max", "7"];
    let output = run(&dir, &words, &[("DOORSTEP_LISTEN", "127.0.0.1:9")]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
    for (pointer, expected) in [
        ("/listen/value", "127.0.0.1:9"),
        ("/listen/source/name", "DOORSTEP_LISTEN"),
        ("/in_flight_max/source/name", "--in-flight-max"),
        ("/log_format/source/path", "doorstep.toml"),
        ("/admin_key/value", "********"),
        ("/log_level/source/kind", "default"),
    ] {
        assert_eq!(shown.pointer(pointer).unwrap(), expected, "{pointer}");
    }
    assert_eq!(shown["log_format"]["source"]["line"], 2);
    assert_eq!(shown["in_flight_max"]["value"], 7);
}

#[test]
fn the_example_is_a_configuration() {
    let dir = tempfile::tempdir().unwrap();
    let example = run(&dir, &["config", "example"], &[]);
    fs::write(dir.path().join("doorstep.toml"), &example.stdout).unwrap();
    assert!(run(&dir, &["config", "show"], &[]).status.success());
}

#[test]
fn a_simulation_is_figures_and_a_picture() {
    let dir = tempfile::tempdir().unwrap();
    let words = ["policy", "simulate", "--outage", "5m", "--json", "--svg", "curve.svg"];
    let output = run(&dir, &words, &[]);
    let figures: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(figures["outage_ends_ms"], 330_000);
    assert_eq!(figures["with_gate"]["requests_per_second"].as_array().unwrap().len(), 631);
    assert_eq!(figures["deliveries"].as_array().unwrap().len(), 5);
    assert!(fs::read_to_string(dir.path().join("curve.svg")).unwrap().starts_with("<svg "));
}

#[test]
fn a_reader_who_has_seen_enough_is_no_failure() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_doorstep"));
    let mut process = command.args(["policy", "simulate", "--outage", "5m"]).stdout(Stdio::piped()).spawn().unwrap();
    drop(process.stdout.take());
    assert!(process.wait().unwrap().success());
}
