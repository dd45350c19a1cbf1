//! Whatever is sent, the answer says what is wrong and where, and nothing breaks (S8, P5, section 12).

use serde_json::{Value, json};

use crate::support::{Answer, Client, Home, Server, text};

/// A problem as RFC 9457 and section 12 have it; its code, and where.
#[track_caller]
fn problem(answer: &Answer, what: &str) -> (u16, String, Vec<String>) {
    assert!((400..500).contains(&answer.status), "{what}: {} {}", answer.status, answer.text());
    assert_eq!(answer.header("content-type"), Some("application/problem+json"), "{what}");
    let said = answer.expect(answer.status);
    assert_eq!(said["status"], answer.status, "{what}: {said}");
    for field in ["type", "title", "detail"] {
        assert!(said[field].as_str().is_some_and(|text| !text.is_empty()), "{what}: {field} in {said}");
    }
    let errors = said["errors"].as_array().cloned().unwrap_or_default();
    (answer.status, text(&said, "code"), errors.iter().map(|error| text(error, "pointer")).collect())
}

/// Sends it and expects this status, code and, unless it is empty, this pointer.
#[track_caller]
fn refused(client: &mut Client, method: &str, path: &str, body: &[u8], expected: (u16, &str, &str)) {
    let what = format!("{method} {path} {}", String::from_utf8_lossy(&body[..body.len().min(200)]));
    let (status, code, pointers) = problem(&client.ask(method, path, &[], body).unwrap(), &what);
    assert_eq!((status, &*code), (expected.0, expected.1), "{what}");
    let pointers = pointers.join(" ");
    assert_eq!(pointers, expected.2, "{what}");
}

const MALFORMED: (u16, &str, &str) = (400, "malformed_request", "");

const fn invalid(pointer: &str) -> (u16, &str, &str) {
    (422, "invalid_request", pointer)
}

#[test]
fn bad_tenants_are_refused_at_the_field() {
    let home = Home::new();
    let server = Server::start(&home);
    let mut client = server.client();
    let id = client.tenant();
    let path = format!("/v1/tenants/{id}");
    let long = format!(r#"{{"name":"{}"}}"#, "x".repeat(201));
    let cases: &[(&str, (u16, &str, &str))] = &[
        ("", MALFORMED),
        ("{", MALFORMED),
        ("{\"name\":\"a\"} x", MALFORMED),
        ("nonsense", MALFORMED),
        ("\u{feff}{}", MALFORMED),
        ("[]", invalid("")),
        ("null", invalid("")),
        ("{}", invalid("/name")),
        (r#"{"name":null}"#, invalid("/name")),
        (r#"{"name":5}"#, invalid("/name")),
        (r#"{"name":""}"#, invalid("/name")),
        (r#"{"name":"a\nb"}"#, invalid("/name")),
        (r#"{"name":"a\u0000"}"#, invalid("/name")),
        (&long, invalid("/name")),
        (r#"{"name":"a","nmae":"b"}"#, invalid("/nmae")),
        (r#"{"name":"a","weight":0}"#, invalid("/weight")),
        (r#"{"name":"a","weight":-1}"#, invalid("/weight")),
        (r#"{"name":"a","weight":1.5}"#, invalid("/weight")),
        (r#"{"name":"a","weight":99999999999999999999}"#, invalid("/weight")),
        (r#"{"name":"a","weight":"1"}"#, invalid("/weight")),
        (r#"{"name":"a","contact_email":"nobody"}"#, invalid("/contact_email")),
        (r#"{"name":"a","contact_email":"a@b\r\nbcc: c@d"}"#, invalid("/contact_email")),
        (r#"{"name":"","weight":0,"contact_email":"x"}"#, invalid("/name /contact_email /weight")),
    ];
    for (body, expected) in cases {
        refused(&mut client, "POST", "/v1/tenants", body.as_bytes(), *expected);
    }
    refused(&mut client, "POST", "/v1/tenants", b"{\"name\":\"\xff\xfe\"}", MALFORMED);
    refused(&mut client, "POST", "/v1/tenants", &vec![b' '; 300_000], (413, "too_large", ""));
    refused(&mut client, "PATCH", &path, br#"{"weight":0}"#, invalid("/weight"));
    assert_eq!(client.read("/v1/tenants")["data"].as_array().unwrap().len(), 1, "nothing came of all that");
}

#[test]
fn bad_destinations_are_refused_at_the_field() {
    let home = Home::new();
    let server = Server::start(&home);
    let mut client = server.client();
    let tenant = client.tenant();
    let deep = |n| (0..n).fold(json!({"a": 1}), |inner, _| json!({"and": [inner]}));
    let cases: &[(Value, &str)] = &[
        (json!({"url": null}), "/url"),
        (json!({"url": "not a URL"}), "/url"),
        (json!({"url": 7}), "/url"),
        (json!({"url": format!("http://127.0.0.1/{}", "x".repeat(2_048))}), "/url"),
        (json!({"url": "http://127.0.0.1/a\u{0}b"}), "/url"),
        (json!({"tenant_id": "nonsense"}), "/tenant_id"),
        (json!({"name": ""}), "/name"),
        (json!({"name": "x".repeat(201)}), "/name"),
        (json!({"event_types": []}), "/event_types"),
        (json!({"event_types": "invoice.*"}), "/event_types"),
        (json!({"event_types": ["in voice"]}), "/event_types"),
        (json!({"event_types": vec!["a"; 10_000]}), "/event_types"),
        (json!({"filter": 5}), "/filter"),
        (json!({"policy": "standart"}), "/policy"),
        (json!({"policy": {"strategy": "fixed", "base_ms": 0}}), "/policy"),
        (json!({"policy": {"strategy": "schedule", "delays_ms": []}}), "/policy"),
        (json!({"policy": {"strategy": "fixed", "base_ms": 1000, "max_attempts": 0}}), "/policy"),
        (json!({"policy": {"strategy": "fixed", "base_ms": 1000, "window_ms": u64::MAX}}), "/policy"),
        (json!({"status_overrides": {"999": "transient"}}), "/status_overrides"),
        (json!({"concurrency": 0}), "/concurrency"),
        (json!({"concurrency": 1_000_000}), "/concurrency"),
        (json!({"concurrency": -1}), "/concurrency"),
        (json!({"rate_limit": {"per_second": 0}}), "/rate_limit/per_second"),
        (json!({"rate_limit": {"per_second": -5}}), "/rate_limit/per_second"),
        (json!({"rate_limit": {"per_second": 5, "burst": 0}}), "/rate_limit/burst"),
        (json!({"timeout_ms": 0}), "/timeout_ms"),
        (json!({"timeout_ms": 10_000_000}), "/timeout_ms"),
        (json!({"ordering": "sometimes"}), "/ordering"),
        (json!({"headers": {"host": "evil.example"}}), "/headers"),
        (json!({"headers": {"webhook-id": "x"}}), "/headers"),
        (json!({"headers": {"X_Event_Id": "x"}}), "/headers"),
        (json!({"headers": {"x-a": "b\r\nx-injected: 1"}}), "/headers"),
        (json!({"headers": {"x a": "b"}}), "/headers"),
        (json!({"headers": {"x-a": "x".repeat(5_000)}}), "/headers"),
        (json!({"secret": "hunter2"}), "/secret"),
        (json!({"secret": "whsec_AAAA"}), "/secret"),
        (json!({"signing": {"algorithm": "md5"}}), "/signing/algorithm"),
        (json!({"nonsense": 1}), "/nonsense"),
    ];
    for (change, pointer) in cases {
        let mut body = json!({"tenant_id": tenant, "url": "http://127.0.0.1:9/"});
        body.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let answer = client.post("/v1/destinations", &body);
        let (status, code, pointers) = problem(&answer, &change.to_string());
        assert_eq!((status, &*code), (422, "invalid_request"), "{change}: {}", answer.text());
        assert!(pointers.len() == 1 && pointers[0].starts_with(pointer), "{change}: {pointers:?}");
        assert!(!answer.text().contains("hunter2"), "a secret is not repeated");
    }
    for depth in [50, 2_000] {
        let body =
            format!(r#"{{"tenant_id":"{tenant}","url":"http://127.0.0.1:9/","filter":{}}}"#, deep(depth.min(100)));
        let body =
            if depth > 100 { body.replace("{\"a\":1}", &("[".repeat(depth) + &"]".repeat(depth))) } else { body };
        problem(&client.post("/v1/destinations", body), "a deep filter");
    }
    assert_eq!(client.read("/v1/destinations")["data"], json!([]));
}

#[test]
fn bad_events_are_refused_at_the_field() {
    let home = Home::new();
    let server = Server::start(&home);
    let mut client = server.client();
    let tenant = client.tenant();
    let large = format!("\"{}\"", "x".repeat(256 * 1024 - 1));
    let too_large = (413, "too_large", "");
    let cases: &[(&str, (u16, &str, &str))] = &[
        (r#""payload":1"#, invalid("/type")),
        (r#""type":"","payload":1"#, invalid("/type")),
        (r#""type":"a b","payload":1"#, invalid("/type")),
        (r#""type":"a..b","payload":1"#, invalid("/type")),
        (r#""type":7,"payload":1"#, invalid("/type")),
        (r#""type":"a""#, invalid("/payload")),
        (r#""type":"a","payload":1,"payload_base64":"AA==","content_type":"a/b""#, invalid("/payload_base64")),
        (r#""type":"a","payload_base64":"AA==""#, invalid("/content_type")),
        (r#""type":"a","payload_base64":"!","content_type":"a/b""#, invalid("/payload_base64")),
        (r#""type":"a","payload_base64":"AA==","content_type":"a/b\r\nx: y""#, invalid("/content_type")),
        (r#""type":"a","payload":1,"id":"""#, invalid("/id")),
        (r#""type":"a","payload":1,"id":"a.b""#, invalid("/id")),
        (r#""type":"a","payload":1,"id":"a b""#, invalid("/id")),
        (r#""type":"a","payload":1,"id":5"#, invalid("/id")),
        (r#""type":"a","payload":1,"ordering_key":"""#, invalid("/ordering_key")),
        (r#""type":"a","payload":1,"produced_at":"yesterday""#, invalid("/produced_at")),
        (r#""type":"a","payload":1,"ttl_ms":0"#, invalid("/ttl_ms")),
        (r#""type":"a","payload":1,"ttl_ms":-1"#, invalid("/ttl_ms")),
        (r#""type":"a","payload":1,"ttl_ms":1.5"#, invalid("/ttl_ms")),
        (r#""type":"a","payload":1,"ttl_ms":18446744073709551615"#, invalid("/ttl_ms")),
        (r#""type":"a","payload":1,"ttl_ms":18446744073709551616"#, invalid("/ttl_ms")),
        (r#""type":"a","payload":1,"headers":{"host":"x"}"#, invalid("/headers")),
        (r#""type":"a","payload":1,"headers":{"x-a":5}"#, invalid("/headers/x-a")),
        (r#""type":"a","payload":1,"payloda":2"#, invalid("/payloda")),
        (r#""type":"a","payload":{"a":1,}"#, MALFORMED),
        (r#""type":"a","payload":01"#, MALFORMED),
        (r#""type":"a","payload":NaN"#, MALFORMED),
        (&format!(r#""type":"a","payload":{large}"#), too_large),
        (&format!(r#""type":"a","payload":"{}""#, "x".repeat(1 << 20)), too_large),
    ];
    for (fields, expected) in cases {
        let body = format!(r#"{{"tenant_id":"{tenant}",{fields}}}"#);
        refused(&mut client, "POST", "/v1/events", body.as_bytes(), *expected);
    }
    let body = [br#"{"tenant_id":""#, tenant.as_bytes(), b"\",\"type\":\"a\",\"payload\":\"\xff\"}"].concat();
    refused(&mut client, "POST", "/v1/events", &body, MALFORMED);
    let body = br#"{"tenant_id":"ten_00000000000000000000000000","type":"a","payload":1}"#;
    refused(&mut client, "POST", "/v1/events", body, (404, "not_found", "/tenant_id"));
    let body = br#"{"tenant_id":"ten_00000000000000000000000000","url":"http://127.0.0.1:9/"}"#;
    refused(&mut client, "POST", "/v1/destinations", body, (404, "not_found", "/tenant_id"));

    // GET /v1/events/batch could not find it.
    let body = json!({"tenant_id": tenant, "type": "a", "payload": 1, "id": "batch"});
    refused(&mut client, "POST", "/v1/events", body.to_string().as_bytes(), invalid("/id"));
    let results = client.post("/v1/events/batch", json!({"events": [body]})).expect(200);
    assert_eq!(results["results"][0]["error"]["errors"][0]["pointer"], "/events/0/id", "{results}");

    let batch = |n: usize| {
        let event = json!({"tenant_id": tenant, "type": "a", "payload": 1});
        json!({"events": vec![event; n]}).to_string()
    };
    refused(&mut client, "POST", "/v1/events/batch", batch(1_001).as_bytes(), invalid("/events"));
    refused(&mut client, "POST", "/v1/events/batch", batch(0).as_bytes(), invalid("/events"));
    refused(&mut client, "POST", "/v1/events/batch", b"{}", invalid("/events"));
    refused(&mut client, "POST", "/v1/events/batch", br#"{"events":5}"#, invalid("/events"));
    refused(&mut client, "POST", "/v1/events/batch", &vec![b' '; 9 << 20], too_large);
    assert_eq!(client.read("/v1/events")["data"], json!([]), "nothing came of all that");
    let results = client.post("/v1/events/batch", batch(1_000)).expect(200);
    assert_eq!(results["results"].as_array().unwrap().len(), 1_000, "a thousand are a batch");
}

#[test]
fn a_payload_may_be_nested_as_deeply_as_it_fits_or_is_refused_but_never_harms() {
    let home = Home::new();
    let server = Server::start(&home);
    let mut client = server.client();
    let tenant = client.tenant();
    // A filter has to look into payloads.
    client.destination(&tenant, "http://127.0.0.1:9/", json!({"filter": {"a.b": 1}}));
    for deep in ["[".repeat(100_000) + &"]".repeat(100_000), "{\"a\":".repeat(40_000) + "1" + &"}".repeat(40_000)] {
        let answer = client.post("/v1/events", format!(r#"{{"tenant_id":"{tenant}","type":"a","payload":{deep}}}"#));
        assert!([202, 400, 422].contains(&answer.status), "{} {}", answer.status, answer.text());
    }
    let body = "[".repeat(200_000);
    problem(&client.post("/v1/tenants", &body), "a deep body");
    problem(&client.post("/v1/events/batch", format!("{{\"events\":[{body}")), "a deep batch");
    assert_eq!(client.get("/healthz").status, 200);
}

#[test]
fn without_the_right_key_there_is_nothing_to_see() {
    let home = Home::new();
    let server = Server::start(&home);
    let mut client = server.client();
    let tenant = client.tenant();
    for (method, path) in [
        ("GET", "/v1/tenants"),
        ("POST", "/v1/tenants"),
        ("POST", "/v1/events"),
        ("POST", "/v1/events/batch"),
        ("GET", "/v1/deliveries"),
        ("GET", "/v1/stream"),
        ("GET", &format!("/v1/tenants/{tenant}")),
    ] {
        for header in ["Bearer wrong", "Bearer ", "Basic dXNlcjpwYXNz", "", "Bearer\u{e9}", &"x".repeat(10_000)] {
            let answer = client.ask(method, path, &[("authorization", header)], b"").unwrap();
            assert_eq!(problem(&answer, path).0, 401, "{method} {path} {header:?}");
            assert!(answer.header("www-authenticate").is_some());
        }
        let bare = format!("{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n");
        assert_eq!(client.exchange(bare.as_bytes()).unwrap().status, 401, "{method} {path}");
    }
    for open in ["/healthz", "/readyz"] {
        let bare = format!("GET {open} HTTP/1.1\r\nhost: x\r\n\r\n");
        assert_eq!(client.exchange(bare.as_bytes()).unwrap().status, 200, "{open}");
    }
}

#[test]
fn what_is_not_there_or_not_for_this_method_is_told_apart() {
    let home = Home::new();
    let server = Server::start(&home);
    let mut client = server.client();
    let id = "00000000000000000000000000";
    let not_found = (404, "not_found", "");
    for (method, path) in [
        ("GET", format!("/v1/tenants/ten_{id}")),
        ("GET", format!("/v1/destinations/dst_{id}")),
        ("PATCH", format!("/v1/destinations/dst_{id}")),
        ("DELETE", format!("/v1/destinations/dst_{id}")),
        ("POST", format!("/v1/destinations/dst_{id}/pause")),
        ("POST", format!("/v1/destinations/dst_{id}/test")),
        ("POST", format!("/v1/destinations/dst_{id}/secrets/rotate")),
        ("GET", format!("/v1/deliveries/dlv_{id}")),
        ("POST", format!("/v1/deliveries/dlv_{id}/retry")),
        ("POST", format!("/v1/deliveries/dlv_{id}/abandon")),
        ("GET", format!("/v1/events/evt_{id}")),
        ("GET", "/v1/destinations/nonsense".to_owned()),
        ("GET", "/v1/destinations/%00%ff".to_owned()),
        ("GET", format!("/v1/deliveries/ten_{id}")),
        ("GET", "/v1/nonsense".to_owned()),
        ("GET", "/nonsense".to_owned()),
        ("GET", "/../../etc/passwd".to_owned()),
    ] {
        let body: &[u8] = if method == "PATCH" { b"{}" } else { b"" };
        refused(&mut client, method, &path, body, not_found);
    }
    for (method, path) in
        [("PUT", "/v1/tenants"), ("DELETE", "/v1/events"), ("GET", "/v1/events/batch"), ("POST", "/healthz")]
    {
        let answer = client.ask(method, path, &[], b"").unwrap();
        assert_eq!(problem(&answer, path).0, 405, "{method} {path}");
        assert!(answer.header("allow").is_some(), "{method} {path}");
    }
    for content_type in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""] {
        for path in ["/v1/tenants", "/v1/events", "/v1/events/batch", "/v1/destinations"] {
            let answer = client.ask("POST", path, &[("content-type", content_type)], b"{}").unwrap();
            assert_eq!(problem(&answer, path).0, 415, "{content_type:?} {path}");
        }
    }
}

#[test]
fn lists_come_in_pages_and_bad_questions_are_refused() {
    let home = Home::new();
    let server = Server::start(&home);
    let mut client = server.client();
    let tenant = client.tenant();
    client.destination(&tenant, "http://127.0.0.1:9/", json!({}));
    let destinations: Vec<_> = (0..4)
        .map(|n| text(&client.destination(&tenant, &format!("http://127.0.0.1:9/{n}"), json!({})), "id"))
        .collect();
    destinations.iter().for_each(|id| drop(client.tell(id, "pause")));
    for n in 0..7 {
        client.event(&tenant, json!({"id": format!("e{n}")}));
    }
    for (list, n) in [("tenants", 1), ("destinations", 5), ("events", 7), ("deliveries", 35)] {
        let (mut ids, mut cursor) = (std::collections::BTreeSet::new(), String::new());
        loop {
            let page = client.read(&format!("/v1/{list}?limit=3&cursor={cursor}"));
            let data = page["data"].as_array().unwrap();
            assert!(data.len() <= 3);
            data.iter().for_each(|line| assert!(ids.insert(text(line, "id")), "{list}: one came twice"));
            let Some(next) = page["next_cursor"].as_str() else { break };
            next.clone_into(&mut cursor);
        }
        assert_eq!(ids.len(), n, "{list}");
        for (query, pointer) in [
            ("limit=0", "?limit"),
            ("limit=100000", "?limit"),
            ("limit=-1", "?limit"),
            ("limit=x", "?limit"),
            ("limit=99999999999999999999", "?limit"),
            ("cursor=nonsense", "?cursor"),
            ("cursor=%ff%00", "?cursor"),
            ("nonsense=1", "?nonsense"),
        ] {
            let answer = client.get(&format!("/v1/{list}?{query}"));
            let (status, _, pointers) = problem(&answer, &format!("{list}?{query}"));
            assert_eq!((status, pointers), (422, vec![pointer.to_owned()]), "{list}?{query}: {}", answer.text());
        }
    }
    for query in [
        "status=nonsense",
        "code=99999",
        "created_after=yesterday",
        "destination_id=x",
        "reason=x",
        "tenant_id=x",
        "type=a%20b",
    ] {
        let answer = client.get(&format!("/v1/deliveries?{query}"));
        let (status, _, pointers) = problem(&answer, query);
        let name = query.split('=').next().unwrap();
        assert_eq!((status, pointers), (422, vec![format!("?{name}")]), "{query}: {}", answer.text());
    }
}

#[test]
fn a_change_of_what_somebody_else_has_changed_is_refused() {
    let home = Home::new();
    let server = Server::start(&home);
    let mut client = server.client();
    let tenant = client.tenant();
    let id = text(&client.destination(&tenant, "http://127.0.0.1:9/", json!({})), "id");
    let path = format!("/v1/destinations/{id}");
    let seen = client.get(&path).header("etag").unwrap().to_owned();
    let mut change = |seen: &str, name: &str| {
        client.ask("PATCH", &path, &[("if-match", seen)], json!({"name": name}).to_string().as_bytes()).unwrap()
    };
    let changed = change(&seen, "first");
    assert_eq!(changed.status, 200);
    assert_ne!(changed.header("etag"), Some(&*seen));
    for stale in [&*seen, "\"nonsense\"", "nonsense", ""] {
        let answer = change(stale, "second");
        assert_eq!(problem(&answer, stale).0, 412, "{stale}");
    }
    assert_eq!(change("*", "third").status, 200);
    let stale = client.ask("DELETE", &path, &[("if-match", &seen)], b"").unwrap();
    assert_eq!(problem(&stale, "DELETE").0, 412);
    assert_eq!(client.read(&path)["name"], "third");
}

#[test]
fn what_is_hardly_http_is_refused_and_the_next_client_is_served() {
    let home = Home::new();
    let server = Server::start(&home);
    let long = "x".repeat(100_000);
    let key = crate::support::KEY;
    let many: String = (0..500).map(|n| format!("x-{n}: 1\r\n")).collect();
    for request in [
        "nonsense\r\n\r\n".to_owned(),
        "\0\u{1}\u{2}\r\n\r\n".to_owned(),
        format!("GET /{long} HTTP/1.1\r\nhost: x\r\n\r\n"),
        // The address itself leads somewhere, with any header that fits: these ask for nothing that is there.
        format!("GET /nothing HTTP/1.1\r\nhost: x\r\nx-long: {long}\r\n\r\n"),
        format!("GET /nothing HTTP/1.1\r\nhost: x\r\n{many}\r\n"),
        "POST /v1/events HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n".to_owned(),
        "POST /v1/events HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n{}".to_owned(),
        format!(
            "POST /v1/tenants HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n"
        ),
        format!("GET /v1/tenants?{} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n\r\n", "a".repeat(5_000)),
    ] {
        // Closing without an answer is an answer to what is not HTTP.
        if let Ok(answer) = server.client().exchange(request.as_bytes()) {
            assert!((400..500).contains(&answer.status), "{}: {}", answer.status, &request[..40.min(request.len())]);
        }
        assert_eq!(server.client().get("/healthz").status, 200);
    }
}
