//! `sign` and `verify`, without a server.

use std::fs;

use crate::support::run;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

#[test]
fn what_was_signed_verifies_and_what_was_changed_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().to_str().unwrap();
    fs::write(dir.path().join("body"), "{\"a\":1}").unwrap();
    fs::write(dir.path().join("changed"), "{\"a\": 1}").unwrap();
    fs::write(dir.path().join("secret"), format!("{SECRET}\n")).unwrap();
    fs::write(dir.path().join("bare"), "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
    let words = ["sign", "--secret-file", "secret", "--id", "evt_1", "--timestamp", "1700000000", "--body", "@body"];
    let signed = run(&words, &[], at);
    assert!(signed.ok().starts_with("webhook-id: evt_1\nwebhook-timestamp: 1700000000\nwebhook-signature: v1,"));
    fs::write(dir.path().join("headers"), signed.ok()).unwrap();
    let curl = run(&[&words[..], &["--curl", "http://localhost:3000/"]].concat(), &[], at);
    assert!(curl.ok().starts_with("curl -X POST 'http://localhost:3000/'") && curl.ok().ends_with("'@body'\n"));

    let verify = |body: &str, more: &[&str]| {
        run(
            &[&["verify", "--headers", "@headers", "--body", body], more].concat(),
            &[("DOORSTEP_SIGNING_SECRET", SECRET)],
            at,
        )
    };
    let then = ["--now", "1700000010"];
    assert_eq!(verify("@body", &then).ok(), "ok: the signature fits\n");
    for (body, more, told) in [
        ("@changed", &then[..], "fits the body as compact JSON"),
        ("@body", &["--now", "1700000400"], "too old by 100 s"),
        ("@body", &["--now", "1700000400", "--tolerance", "10s"], "too old by 390 s"),
        ("@body", &["--now", "1700000000", "--secret-file", "bare"], "with `whsec_` in front"),
        ("@body", &["--now", "1700000000", "--headers", "webhook-id: x"], "cannot be used multiple times"),
    ] {
        let ran = verify(body, more);
        assert!(ran.told().contains(told), "{body} {more:?}: {}", ran.told());
    }
    verify("@changed", &then).ended(1);
    let report = verify("@changed", &["--json", "--now", "1700000000"]);
    assert!(
        report.ended(1).starts_with(r#"{"ok":false,"reason":"the signature does not match"#),
        "{}",
        report.ended(1)
    );
}
