//! Behind a reverse proxy, a key's ranges and the audit log mean the client and not the proxy.

use serde_json::json;

use crate::support::{Client, Home, Server, text};

const NEAR: &str = "203.0.113.9";
const FAR: &str = "198.51.100.66";

/// The status of a request that comes with this header.
fn looks(client: &mut Client, header: (&str, &str)) -> u16 {
    client.ask("GET", "/v1/tenants", &[header], b"").unwrap().status
}

/// A key that may be used from near alone.
fn limited(server: &Server) -> Client {
    let key = json!({"name": "near", "scopes": ["admin"], "source_cidrs": ["203.0.113.0/24"]});
    let made = server.client().post("/v1/keys", key).expect(201);
    server.client().with_key(&text(&made, "key"))
}

#[test]
fn a_client_is_known_by_what_the_proxy_added_and_not_by_what_it_wrote_itself() {
    let home = Home::new();
    let server = Server::start_with(&home, &["--trusted-proxies", "127.0.0.0/8, ::1"]);
    let mut client = limited(&server);
    for (header, status) in [
        (("x-forwarded-for", NEAR.to_owned()), 200),
        (("x-forwarded-for", format!("{FAR}, {NEAR}")), 200),
        (("x-forwarded-for", format!("{FAR}, {NEAR}, 127.0.0.9")), 200),
        (("x-forwarded-for", format!("{NEAR}, {FAR}")), 403),
        (("forwarded", format!("for={FAR}, for=\"{NEAR}:4711\";proto=https")), 200),
        (("forwarded", format!("for={NEAR}, for={FAR}")), 403),
        (("x-forwarded-for", "nonsense".to_owned()), 403),
        (("accept", "*/*".to_owned()), 403),
    ] {
        assert_eq!(looks(&mut client, (header.0, &header.1)), status, "{header:?}");
    }
    client.ask("POST", "/v1/tenants", &[("x-forwarded-for", NEAR)], br#"{"name":"Acme"}"#).unwrap().expect(201);
    let log = server.client().read("/v1/audit?action=tenant.create");
    assert_eq!(log["data"][0]["from"], NEAR);
}

#[test]
fn nobody_is_believed_unless_the_operator_says_so() {
    let home = Home::new();
    let server = Server::start_with(&home, &["--trusted-proxies", "10.0.0.0/8"]);
    let mut client = limited(&server);
    assert_eq!(looks(&mut client, ("x-forwarded-for", NEAR)), 403);
    assert_eq!(looks(&mut client, ("forwarded", &format!("for={NEAR}"))), 403);
}
