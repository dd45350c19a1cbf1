//! Secrets reach commands by variables and files. As arguments they are refused, since `ps` shows those to everybody.

use std::fs;

use crate::support::{KEY, Ran, Server, run, run_reading};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const NOT_ACCEPTED: &str = "is not accepted, because other users of this machine can read the arguments of a process";

/// It failed like this, said why, and did not repeat the secret.
#[track_caller]
fn refused(ran: &Ran, code: i32, told: &str) {
    assert_eq!(ran.ended(code), "");
    assert!(ran.told().contains(told), "{}", ran.told());
    assert!(!ran.told().contains(SECRET) && !ran.told().contains(KEY), "{}", ran.told());
}

#[test]
fn an_api_key_comes_from_a_file_or_a_variable_and_not_as_an_argument() {
    let server = Server::start();
    let at = server.directory.path().to_str().unwrap();
    fs::write(server.directory.path().join("key"), format!("{KEY}\n")).unwrap();
    fs::write(server.directory.path().join("wrong"), "wrong").unwrap();
    fs::write(server.directory.path().join("long"), "x".repeat(70_000)).unwrap();
    let list = |words: &[&str], env: &[(&str, &str)], input: &str| {
        run_reading(
            &[&["tenants", "list", "-q"], words].concat(),
            &[env, &[("DOORSTEP_URL", server.base())]].concat(),
            at,
            input,
        )
    };
    let by_file = ["--key-file", "key"];
    for (words, env, input) in [
        (&by_file[..], &[][..], ""),
        (&["--key-file", "-"], &[], KEY),
        (&[], &[("DOORSTEP_API_KEY", KEY)], ""),
        (&[], &[("DOORSTEP_API_KEY_FILE", "key")], ""),
        (&[], &[("DOORSTEP_ADMIN_KEY", KEY)], ""),
        (&[], &[("DOORSTEP_ADMIN_KEY_FILE", "key")], ""),
        // A flag counts more than a variable, and that of the command more than the server's.
        (&by_file, &[("DOORSTEP_API_KEY", "wrong")], ""),
        (&[], &[("DOORSTEP_API_KEY", KEY), ("DOORSTEP_ADMIN_KEY", "wrong")], ""),
        (&[], &[("DOORSTEP_API_KEY", ""), ("DOORSTEP_ADMIN_KEY", KEY)], ""),
    ] {
        list(words, env, input).ok();
    }
    let both = [("DOORSTEP_API_KEY", KEY), ("DOORSTEP_API_KEY_FILE", "key")];
    for (words, env, code, told) in [
        (&["--key", KEY][..], &[][..], 2, NOT_ACCEPTED),
        (
            &["--key", KEY],
            &[],
            2,
            "set DOORSTEP_API_KEY, or name a file that holds it with --key-file or DOORSTEP_API_KEY_FILE",
        ),
        (&[], &[], 5, "no API key: set DOORSTEP_API_KEY, or name a file"),
        (&["--key-file", "missing"], &[], 1, "cannot read missing"),
        (&["--key-file", "long"], &[], 2, "long holds more than 65536 bytes"),
        (&["--key-file", "wrong"], &[("DOORSTEP_API_KEY", KEY)], 5, "does not look like a key"),
        (&[], &[("DOORSTEP_API_KEY_FILE", "missing")], 1, "cannot read missing"),
        (&[], &both, 2, "both `DOORSTEP_API_KEY` and `DOORSTEP_API_KEY_FILE` are set"),
    ] {
        refused(&list(words, env, ""), code, told);
    }
    let send = ["send", "a.b", "--data", "-", "--key-file", "-"];
    refused(
        &run_reading(&send, &[("DOORSTEP_URL", server.base())], at, KEY),
        2,
        "only one thing can come from standard input",
    );
}

#[test]
fn a_signing_secret_comes_from_a_file_or_a_variable_and_not_as_an_argument() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().to_str().unwrap();
    fs::write(dir.path().join("secret"), format!("{SECRET}\r\n")).unwrap();
    let sign = ["sign", "--id", "evt_1", "--timestamp", "1700000000"];
    let by_file = [("DOORSTEP_SIGNING_SECRET_FILE", "secret")];
    let signed = run(&sign, &[("DOORSTEP_SIGNING_SECRET", SECRET)], at);
    fs::write(dir.path().join("headers"), signed.ok()).unwrap();
    let verify = ["verify", "--headers", "@headers", "--body", "{}", "--now", "1700000000"];
    for words in [&sign[..], &verify] {
        run(words, &by_file, at).ok();
        run(&[words, &["--secret-file", "secret"]].concat(), &[], at).ok();
        run_reading(&[words, &["--secret-file", "-"]].concat(), &[], at, SECRET).ok();
        let argument = [words, &["--secret", SECRET]].concat();
        refused(&run(&argument, &by_file, at), 2, NOT_ACCEPTED);
        refused(
            &run(&argument, &[], at),
            2,
            "name a file that holds it with --secret-file or DOORSTEP_SIGNING_SECRET_FILE",
        );
        refused(&run(words, &[], at), 2, "no signing secret: set DOORSTEP_SIGNING_SECRET");
    }
    let twice = [&sign[..], &["--secret-file", "-", "--body", "-"]].concat();
    refused(&run_reading(&twice, &[], at, SECRET), 2, "only one thing can come from standard input");
    let twice = ["verify", "--headers", "-", "--body", "-"];
    refused(&run_reading(&twice, &by_file, at, "x"), 2, "only one thing can come from standard input");
}
