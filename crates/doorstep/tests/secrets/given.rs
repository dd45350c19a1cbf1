//! Everything that is given out once and lets somebody in: keys, portal sessions, links, secrets that the server makes.

use std::process::Command;

use reqwest::Method;
use serde_json::{Value, json};

use crate::{
    ADMIN_KEY, CLIENT, ED25519, EVENT_HEADERS, PUBLIC_URL, REFUSED, Receiver, Server, base64, http2, text, until,
};

/// The part of a text behind this, up to where it ends.
fn behind<'a>(whole: &'a str, mark: &str) -> &'a str {
    let (_, rest) = whole.split_once(mark).unwrap_or_else(|| panic!("no {mark} in {whole}"));
    rest.split(|c: char| !c.is_ascii_alphanumeric() && !"-_=%+/".contains(c)).next().unwrap()
}

/// Of `dsk_ID_SECRET_CHECK`.
fn secret_of_key(key: &str) -> String {
    key.rsplit('_').nth(1).unwrap().to_owned()
}

/// Uses each of them, well and badly, and returns what must not be found anywhere.
pub(crate) async fn used(
    server: &Server,
    receiver: &Receiver,
    secure: &http2::Receiver,
    tenant_id: &str,
) -> Vec<String> {
    let mut given = signing_secrets(server, receiver, tenant_id).await;
    let [token, note] = EVENT_HEADERS;
    until("a request over HTTP/2", async || secure.has_seen(&["HTTP/2.0", "webhook-signature: v1,", token, note]))
        .await;
    let seen = secure.seen.lock().unwrap().concat();
    given.push(behind(&seen, "webhook-signature: v1,").to_owned());
    given.extend(keys(server).await);
    given.extend(portal(server, tenant_id).await);
    given.extend(thin_link(server, receiver, tenant_id).await);
    given.extend(consent_link(server, secure, tenant_id).await);
    assert!(given.iter().all(|secret| secret.len() > 20), "{given:?}");
    given
}

async fn signing_secrets(server: &Server, receiver: &Receiver, tenant_id: &str) -> Vec<String> {
    let url = format!("http://{}/ok", receiver.address);
    let mut new = json!({"tenant_id": tenant_id, "url": url, "event_types": ["key.used"]});
    let made = server.post("/v1/destinations", &new).await;
    let rotate = format!("/v1/destinations/{}/secrets/rotate", text(&made, "id"));
    let rotated = server.post(&rotate, &json!({})).await;
    new["signing"] = json!({"algorithm": "ed25519"});
    new["secret"] = json!(format!("whsk_{}", base64(&ED25519[0])));
    let asymmetric = server.post("/v1/destinations", &new).await;
    let rotate = format!("/v1/destinations/{}/secrets/rotate", text(&asymmetric, "id"));
    server.post(&rotate, &json!({"secret": format!("whsk_{}", base64(&ED25519[1]))})).await;
    server.refused(Method::POST, &rotate, &json!({"secret": format!("whsk_{}", REFUSED[0])}).to_string()).await;
    let n_before = receiver.seen.lock().unwrap().len();
    let headers = json!({"x-shop-token": EVENT_HEADERS[0], "x-note": EVENT_HEADERS[1]});
    let event = json!({"tenant_id": tenant_id, "type": "key.used", "payload": 1, "headers": headers});
    server.post("/v1/events", &event).await;
    until("a request signed with Ed25519", async || {
        receiver.seen.lock().unwrap()[n_before..]
            .iter()
            .any(|request| request.contains("v1a,") && EVENT_HEADERS.iter().all(|header| request.contains(header)))
    })
    .await;
    [made, rotated].map(|answer| behind(&text(&answer, "secret"), "whsec_").to_owned()).into()
}

async fn keys(server: &Server) -> Vec<String> {
    let new = json!({"name": "reader", "scopes": ["read"]});
    let made = server.post("/v1/keys", &new).await;
    let path = format!("/v1/keys/{}", text(&made, "id"));
    let rotated = server.post(&format!("{path}/rotate"), &json!({"overlap_ms": 600_000})).await;
    let keys = [text(&made, "key"), text(&rotated, "key")];
    let use_all = async |expected: u16| {
        for key in &keys {
            let (status, _) = server.ask(Method::GET, "/v1/destinations", key, "", false).await;
            assert_eq!(status, expected);
            let (status, _) = server.ask(Method::GET, "/v1/destinations", &key[..key.len() - 1], "", false).await;
            assert_eq!(status, 401);
        }
    };
    use_all(200).await;
    let (status, _) = server.ask(Method::POST, "/v1/tenants", &keys[0], "{}", false).await;
    assert_eq!(status, 403);
    server.get(&path).await;
    let (status, _) = server.ask(Method::DELETE, &path, ADMIN_KEY, "", false).await;
    assert_eq!(status, 204);
    use_all(401).await;
    keys.map(|key| secret_of_key(&key)).into()
}

async fn portal(server: &Server, tenant_id: &str) -> Vec<String> {
    let made = server.post("/v1/portal-sessions", &json!({"tenant_id": tenant_id})).await;
    let code = text(&made, "code");
    let enter = |code: &str| {
        let request = reqwest::Client::new().post(format!("{}/portal/session", server.base));
        request.header("content-type", "application/json").body(json!({"code": code}).to_string()).send()
    };
    let entered = enter(&code).await.unwrap();
    let cookie = entered.headers()["set-cookie"].to_str().unwrap().to_owned();
    let cookie = cookie.split(';').next().unwrap();
    for wrong in [&*code, &code[..code.len() - 1]] {
        server.heard(enter(wrong).await.unwrap(), 401).await;
    }
    let look = |cookie: &str, from: &str| {
        let request = reqwest::Client::new().get(format!("{}/v1/destinations", server.base));
        request.header("cookie", cookie).header("sec-fetch-site", from).send()
    };
    server.heard(look(cookie, "same-origin").await.unwrap(), 200).await;
    server.heard(look(&cookie[..cookie.len() - 1], "same-origin").await.unwrap(), 401).await;
    let left = reqwest::Client::new().delete(format!("{}/portal/session", server.base));
    let left = left.header("cookie", cookie).header("sec-fetch-site", "same-origin").send();
    server.heard(left.await.unwrap(), 204).await;
    server.heard(look(cookie, "same-origin").await.unwrap(), 401).await;
    [&*code, cookie].map(|text| text.rsplit('_').next().unwrap().to_owned()).into()
}

async fn thin_link(server: &Server, receiver: &Receiver, tenant_id: &str) -> Vec<String> {
    let url = format!("http://{}/ok", receiver.address);
    let thin = json!({"tenant_id": tenant_id, "url": url, "event_types": ["thin.sent"], "payload_mode": "thin"});
    server.post("/v1/destinations", &thin).await;
    server.post("/v1/events", &json!({"tenant_id": tenant_id, "type": "thin.sent", "payload": {"much": 1}})).await;
    let link = || {
        let seen = receiver.seen.lock().unwrap();
        let request = seen.iter().find(|request| request.contains("\"payload_url\""))?;
        let body: Value = serde_json::from_str(request.split_once("\r\n\r\n")?.1).ok()?;
        Some(text(&body, "payload_url"))
    };
    until("a link", async || link().is_some()).await;
    let link = link().unwrap().replace(PUBLIC_URL, &server.base);
    server.heard(reqwest::get(&link).await.unwrap(), 200).await;
    for forged in [format!("{link}A"), link.replace("expires=", "expires=1")] {
        server.heard(reqwest::get(&forged).await.unwrap(), 403).await;
    }
    vec![behind(&link, "signature=").to_owned()]
}

async fn consent_link(server: &Server, secure: &http2::Receiver, tenant_id: &str) -> Vec<String> {
    let tls = json!({"client_certificate_pem": CLIENT.certificate_pem, "client_key_pem": CLIENT.key_pem(),
        "ca_pem": secure.identity.certificate_pem});
    let asked = json!({"tenant_id": tenant_id, "url": secure.url, "event_types": ["asked.first"], "tls": tls,
        "verification": "cloudevents_options"});
    let made = server.post("/v1/destinations", &asked).await;
    let callback = || {
        let seen = secure.seen.lock().unwrap();
        let lines = seen.iter().flat_map(|request| request.lines());
        lines.filter_map(|line| line.strip_prefix("webhook-request-callback: ")).next().map(str::to_owned)
    };
    until("a question", async || callback().is_some()).await;
    let link = callback().unwrap().replace(PUBLIC_URL, &server.base);
    let follow = |link: &str, rate: &str| reqwest::Client::new().post(link).header("webhook-allowed-rate", rate).send();
    server.heard(follow(&format!("{link}A"), "60").await.unwrap(), 403).await;
    server.heard(follow(&link, "none").await.unwrap(), 422).await;
    server.heard(follow(&link, "60").await.unwrap(), 200).await;
    server.get(&format!("/v1/destinations/{}", text(&made, "id"))).await;
    vec![behind(&link, "signature=").to_owned()]
}

/// What the commands print that look at things, and that are refused.
pub(crate) fn commands(server: &Server, mut doorstep: impl FnMut() -> Command) -> Vec<u8> {
    let mut said = Vec::new();
    for (words, key, code) in [
        (&["tenants", "list"][..], ADMIN_KEY, 0),
        (&["dest", "list", "--json"], ADMIN_KEY, 0),
        (&["events", "list", "--json"], ADMIN_KEY, 0),
        (&["deliveries", "list", "--json"], ADMIN_KEY, 0),
        (&["keys", "list", "--json"], ADMIN_KEY, 0),
        (&["audit", "list", "--json"], ADMIN_KEY, 0),
        (&["config", "show", "--json", "--sources"], ADMIN_KEY, 0),
        (&["tenants", "list"], REFUSED[1], 5),
        (&["tenants", "list", "--json"], REFUSED[1], 5),
    ] {
        let mut command = doorstep();
        let output =
            command.args(words).env("DOORSTEP_URL", &server.base).env("DOORSTEP_API_KEY", key).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{words:?}: {output:?}");
        assert!(!output.stdout.is_empty() || !output.stderr.is_empty(), "{words:?}");
        said.extend([output.stdout, output.stderr].concat());
    }
    said
}
