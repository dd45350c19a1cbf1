//! Credentials that are guessed, figures that are nobody's business, and secrets where others could read them (S6, S7).

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::json;

use crate::support::{Client, Home, KEY, Server, text};

/// More than one address is allowed at once, however slow this machine is.
const MANY: usize = 200;

fn key(client: &mut Client, scopes: &[&str], more: serde_json::Value) -> String {
    let mut body = json!({"name": "a key", "scopes": scopes});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    text(&client.post("/v1/keys", body).expect(201), "key")
}

fn status(client: &mut Client, path: &str, key: &str) -> u16 {
    client.ask("GET", path, &[("authorization", &format!("Bearer {key}"))], b"").unwrap().status
}

#[test]
fn whoever_guesses_is_slowed_down_and_whoever_has_a_key_is_not() {
    let home = Home::new();
    let server = Server::start(&home);
    let mut client = server.client();
    let tenant = client.tenant();
    let reading = key(&mut client, &["read"], json!({}));
    let code = text(&client.post("/v1/portal-sessions", json!({"tenant_id": tenant})).expect(201), "code");

    let mut guesser = server.client();
    let answers: Vec<u16> =
        (0..MANY).map(|_| status(&mut guesser, "/v1/tenants", "a-guess-at-the-admin-key")).collect();
    assert!(answers[..100].iter().all(|status| *status == 401), "{answers:?}");
    assert_eq!(answers.last(), Some(&429), "{answers:?}");
    let refused = guesser.ask("GET", "/v1/tenants", &[("authorization", "Bearer nonsense")], b"").unwrap();
    assert_eq!(refused.expect(429)["code"], "too_many_refused_credentials");
    assert!(refused.header("retry-after").is_some());
    let guess = format!("{}0", &code[..code.len() - 1]);
    if guess != code {
        assert_eq!(guesser.post("/portal/session", json!({"code": guess})).status, 429, "codes are counted too");
    }

    assert_eq!(client.get("/v1/tenants").status, 200, "the admin key was used from here before");
    assert_eq!(status(&mut guesser, "/v1/tenants", &reading), 200);
    assert_eq!(guesser.post("/portal/session", json!({"code": code})).status, 200);
}

#[test]
fn the_admin_key_cannot_be_found_by_trying_on() {
    let home = Home::new();
    let server = Server::start(&home);
    let mut client = server.client();
    let answers: Vec<u16> = (0..MANY).map(|nth| status(&mut client, "/v1/tenants", &format!("guess-{nth}"))).collect();
    assert_eq!(answers.last(), Some(&429), "{answers:?}");
    // Each guess took the one that had come back meanwhile.
    let last: Vec<u16> = (0..5)
        .map(|_| {
            status(&mut client, "/v1/tenants", "x");
            status(&mut client, "/v1/tenants", KEY)
        })
        .collect();
    assert!(last.contains(&429), "the right one among many wrong ones is not recognised: {last:?}");
}

#[test]
fn metrics_are_for_the_operator() {
    let home = Home::new();
    let server = Server::start_with(&home, &["--metrics-listen", "127.0.0.1:0"]);
    let mut client = server.client();
    let tenant = client.tenant();
    let reading = key(&mut client, &["read"], json!({}));
    let of_tenant = key(&mut client, &["read"], json!({"tenant_id": tenant}));
    let sending = key(&mut client, &["ingest"], json!({}));
    for (key, expected) in [(&*reading, 200), (KEY, 200), ("nobody", 401), (&of_tenant, 403), (&sending, 403)] {
        assert_eq!(status(&mut client, "/metrics", key), expected);
    }

    let printed = server.printed.all();
    let address =
        printed.iter().find_map(|line| line.split_once("metrics at http://")).expect("its address is printed").1;
    let address: SocketAddr = address.trim_end_matches("/metrics").parse().unwrap();
    let mut scraper = Client::new(address).with_key("none");
    let shown = scraper.get("/metrics");
    assert!(shown.status == 200 && shown.text().contains("doorstep_events_total"), "{}", shown.text());
    assert_eq!((scraper.get("/healthz").status, scraper.get("/readyz").status), (200, 200));
    for path in ["/v1/tenants", "/openapi.json", "/portal/session", "/"] {
        assert_eq!(scraper.get(path).status, 404, "{path}");
    }
}

fn serve(home: &Home, options: &[&str], env: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_doorstep"));
    command.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(home.data()).args(options);
    command.env_clear().envs(env.iter().copied()).output().unwrap()
}

#[test]
fn secrets_in_arguments_and_short_admin_keys_are_refused() {
    let home = Home::new();
    let long = "a-long-key-that-everybody-can-read";
    for (options, env, told) in [
        (&["--admin-key", long][..], &[][..], "--admin-key is not accepted"),
        (&["--master-key", long], &[], "DOORSTEP_MASTER_KEY_FILE"),
        (&["--database-url", long], &[], "--database-url is not accepted"),
        (&[], &[("DOORSTEP_ADMIN_KEY", "short")], "24 to 256 printable ASCII characters"),
    ] {
        let refused = serve(&home, options, env);
        let said = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(3), "{said}");
        assert!(said.contains(told) && !said.contains(long), "{said}");
        assert!(refused.stdout.is_empty() && !home.data().exists(), "nothing was begun");
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn what_is_kept_is_for_its_owner_alone() {
    let home = Home::new();
    let server = Server::start(&home);
    assert_eq!(mode(&home.data()), 0o700);
    for file in fs::read_dir(home.data()).unwrap() {
        let path = file.unwrap().path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
    assert!(!server.log().contains("chmod"), "{}", server.log());
    server.terminate();
    assert!(server.ended().success());
    fs::set_permissions(home.data(), fs::Permissions::from_mode(0o755)).unwrap();
    let server = Server::start(&home);
    assert!(server.log().contains("chmod 700"), "{}", server.log());
}

/// The store cannot be opened, after the key has been made.
#[test]
fn an_admin_key_is_not_lost_with_a_first_start_that_fails() {
    let home = Home::new();
    let in_the_way = home.data().join("doorstep.db");
    fs::create_dir_all(&in_the_way).unwrap();
    let failed = serve(&home, &[], &[]);
    assert_eq!(failed.status.code(), Some(1), "{failed:?}");
    assert!(failed.stdout.is_empty(), "no key is shown that will not be valid: {failed:?}");
    fs::remove_dir(&in_the_way).unwrap();

    let mut command = Command::new(env!("CARGO_BIN_EXE_doorstep"));
    command.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(home.data()).env_clear();
    let server = Server::spawn(command, &home);
    let printed = server.printed.all();
    let key = printed.iter().find_map(|line| line.strip_prefix("admin key: ")).expect("a key is printed");
    assert_eq!(server.client().with_key(key).get("/v1/tenants").status, 200);
}
