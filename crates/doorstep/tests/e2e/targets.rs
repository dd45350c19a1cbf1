//! Where nothing is ever sent to, however it is written and whatever DNS says (S4).

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::process::Command;

use serde_json::json;

use crate::answers::every;
use crate::support::{Home, KEY, NameServer, Receiver, Server, skipped, text};

/// Each forbidden range: its first and last address, and what lives in it.
const FORBIDDEN_V4: &[&str] = &[
    "0.0.0.0",
    "0.255.255.255",
    "10.0.0.0",
    "10.255.255.255",
    "100.64.0.0",
    "100.100.100.200",
    "100.127.255.255",
    "127.0.0.1",
    "127.255.255.255",
    "169.254.0.0",
    "169.254.169.254",
    "169.254.170.2",
    "169.254.170.23",
    "169.254.255.255",
    "172.16.0.0",
    "172.31.255.255",
    "192.0.0.0",
    "192.0.0.192",
    "192.0.0.255",
    "192.0.2.1",
    "192.0.2.255",
    "192.31.196.1",
    "192.52.193.1",
    "192.88.99.1",
    "192.168.0.0",
    "192.168.255.255",
    "192.175.48.1",
    "198.18.0.0",
    "198.19.255.255",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.0",
    "239.255.255.255",
    "240.0.0.0",
    "255.255.255.255",
    "168.63.129.16",
];
const FORBIDDEN_V6: &[&str] = &[
    "::",
    "::1",
    "::7f00:1",
    "::127.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:a9fe:a9fe",
    "::ffff:0:127.0.0.1",
    "::5efe:7f00:1",
    "64:ff9b::7f00:1",
    "64:ff9b:1::1",
    "100::1",
    "100:0:0:1::1",
    "2001::1",
    "2001:1ff:ffff::1",
    "2001:db8::1",
    "2002:7f00:1::",
    "2620:4f:8000::1",
    "3fff::1",
    "5f00::1",
    "fc00::1",
    "fd00:ec2::254",
    "fd20:ce::254",
    "fe80::1",
    "febf::1",
    "fec0::1",
    "ff02::1",
];
/// Other ways to write 127.0.0.1, and names of this machine and of private networks.
const HOSTS: &[&str] = &[
    "127.1",
    "127.0.1",
    "2130706433",
    "0x7f.1",
    "0x7f000001",
    "0x7F.0x0.0x0.0x1",
    "0177.0.0.1",
    "0177.0.0.01",
    "017700000001",
    "127.0.0.1.",
    "１２７.０.０.１",
    "①②⑦.⓪.⓪.①",
    "127。0。0。1",
    "127．0．0．1",
    "%31%32%37.0.0.1",
    "127%2e0%2e0%2e1",
    "localhost",
    "LOCALHOST",
    "localhost.",
    "a.localhost",
    "ｌocalhost",
    "printer.local",
    "metadata.google.internal",
    "a.internal",
    "router.home.arpa",
    "1.0.0.127.in-addr.arpa",
    "intranet",
    "db",
    "_dns",
];

#[test]
fn private_addresses_are_refused_in_every_spelling_and_nothing_is_connected_to() {
    let canary = Receiver::start();
    let port = canary.address.port();
    let home = Home::new();
    let server = Server::start_with(&home, &[]);
    let mut client = server.client();
    let tenant = client.tenant();
    let v6 = FORBIDDEN_V6.iter().map(|address| format!("[{address}]"));
    let hosts: Vec<String> = FORBIDDEN_V4.iter().chain(HOSTS).map(|host| (*host).to_owned()).chain(v6).collect();
    let mut urls: Vec<String> = Vec::new();
    for host in &hosts {
        urls.extend([format!("https://{host}/"), format!("https://{host}:{port}/"), format!("http://{host}:{port}/")]);
    }
    urls.extend([
        format!("http:127.0.0.1:{port}"),
        format!("https:\\\\127.0.0.1:{port}\\"),
        format!("https:/127.0.0.1:{port}/"),
        format!("ht\ntps://127.0.0.1:{port}/"),
        format!("https://127.0.0.1\t:{port}/"),
        format!(" https://127.0.0.1:{port}/"),
        format!("gopher://127.0.0.1:{port}/"),
        format!("ftp://127.0.0.1:{port}/"),
        format!("//127.0.0.1:{port}/"),
        format!("https://example.com@127.0.0.1:{port}/"),
        format!("https://127.0.0.1:{port}@example.com/"),
        format!("https://127.0.0.1:{port}#@example.com/"),
        format!("https://[::ffff:127.0.0.1%25lo]:{port}/"),
        format!("https://[fe80::1%eth0]:{port}/"),
    ]);
    // These are refused wherever they lead.
    let odd = [
        "",
        "x",
        "/hook",
        "https://",
        "https:///hook",
        "file:///etc/passwd",
        "javascript:alert(1)",
        "data:,x",
        "http://example.com/",
        "https://user:pass@example.com/",
        "https://user@example.com/",
        "https://a@b@example.com/",
        "https://example.com/#fragment",
        "https://example.com:0/",
        "https://example.com:22/",
        "https://example.com:65536/",
        "https://example.com:443:80/",
        "https://exa mple.com/",
        "https://example..com/",
        "https://.example.com/",
        "https://example.com\u{0}/",
        "https://example.com/a\r\nx: y",
        "https://[::1/",
        "https://1.2.3.4.5/",
        "https://256.1.1.1/",
    ];
    urls.extend(odd.map(str::to_owned));
    urls.push(format!("https://{}.com/", "a".repeat(64)));
    urls.push(format!("https://{}example.com/", "a.".repeat(130)));
    urls.push(format!("https://example.com/{}", "a".repeat(2_048)));
    for url in &urls {
        let answer = client.post("/v1/destinations", json!({"tenant_id": tenant, "url": url}));
        let problem = answer.expect(422);
        assert_eq!(answer.header("content-type"), Some("application/problem+json"));
        assert_eq!(problem["errors"][0]["pointer"], "/url", "{url}: {problem}");
    }

    let fine = client.destination(&tenant, "https://EXAMPLE.com.:443/Hook?a=b", json!({}));
    assert_eq!(fine["url"], "https://example.com/Hook?a=b", "normalised once, and used like that");
    let path = format!("/v1/destinations/{}", text(&fine, "id"));
    let private = format!("https://127.0.0.1:{port}/");
    assert_eq!(client.patch(&path, json!({"url": private})).expect(422)["errors"][0]["pointer"], "/url");
    for public in ["https://8.8.8.8/", "https://[2606:4700::1111]:8443/", "https://bücher.example/"] {
        client.destination(&tenant, public, json!({}));
    }
    assert_eq!(client.read("/v1/destinations")["data"].as_array().unwrap().len(), 4);
    assert_eq!(canary.n_connections(), 0);
}

#[test]
fn what_was_allowed_once_is_not_sent_to_when_it_no_longer_is() {
    let canary = Receiver::start();
    let home = Home::new();
    let server = Server::start(&home);
    let mut client = server.client();
    let tenant = client.tenant();
    let settings = json!({"policy": every(20, 10)});
    let destination = text(&client.destination(&tenant, &canary.url("/"), settings), "id");
    server.kill();

    let server = Server::start_with(&home, &[]);
    let mut client = server.client();
    let event = client.event(&tenant, json!({}));
    let dead = client.delivery_in(&destination, &event, "dead");
    assert_eq!((&dead["reason"], &dead["attempt_count"]), (&json!("rejected"), &json!(5)), "ambiguous: five attempts");
    assert_eq!(dead["attempts"][0]["error"], "address_blocked");
    client.post(&format!("/v1/destinations/{destination}/test"), "");
    assert_eq!(canary.n_connections(), 0);
}

const ALLOWED: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const DENIED: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);

#[test]
fn the_machines_own_addresses_are_refused_like_any_other() {
    // Nothing is sent: the system only says which address it would send from.
    let outward = UdpSocket::bind("0.0.0.0:0").unwrap();
    if outward.connect("192.0.2.1:9").is_err() {
        return skipped("this machine has no address beside the loopback's");
    }
    let own = outward.local_addr().unwrap().ip();
    let home = Home::new();
    let server = Server::start_with(&home, &[]);
    let mut client = server.client();
    let tenant = client.tenant();
    let mut told = |address: &str| {
        let body = json!({"tenant_id": tenant, "url": format!("https://{address}/")});
        let refused = client.post("/v1/destinations", &body);
        assert_eq!(refused.status, 422, "{}", refused.text());
        refused.text().replace(address, "ADDRESS")
    };
    let of_own = told(&own.to_string());
    assert!(of_own.contains("ADDRESS is not an address that may be delivered to"), "{of_own}");
    for other in ["10.0.0.1", "127.0.0.1", "169.254.169.254", "192.0.2.1"] {
        assert_eq!(told(other), of_own, "whose address it is must not be told");
    }
}

/// A server that asks this name server, by a view of the file system of its own; none where that is not permitted.
fn server_asking(name_server: IpAddr, home: &Home) -> Option<Server> {
    let resolv = home.path().join("resolv.conf");
    std::fs::write(&resolv, format!("nameserver {name_server}\n")).unwrap();
    let unshared = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--", "sh", "-euc", &format!("mount --bind \"$0\" /etc/resolv.conf; {script}")]);
        command.arg(&resolv);
        command
    };
    if !unshared("true").output().is_ok_and(|output| output.status.success()) {
        return None;
    }
    let mut command = unshared(r#"exec "$@""#);
    command.arg(env!("CARGO_BIN_EXE_doorstep")).args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]);
    command.arg(home.data()).args(["--allow-targets", &ALLOWED.to_string()]);
    command.env("DOORSTEP_ADMIN_KEY", KEY);
    Some(Server::spawn(command, home))
}

#[test]
fn a_name_that_changes_its_mind_leads_nowhere() {
    let home = Home::new();
    let names = (10..250).find_map(|n| NameServer::start_at((Ipv4Addr::new(127, 0, 53, n), 53)).ok());
    let server = names.as_ref().and_then(|names| server_asking(names.address.ip(), &home));
    let (Some(names), Some(server)) = (names, server) else {
        return skipped("a name server of one's own needs root and mount namespaces (the engine's own tests cover it)");
    };
    // Each request needs a new connection, and so a new answer.
    let close = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    let receiver = Receiver::answering_at(&format!("{ALLOWED}:0"), move |peer, _| {
        peer.write_all(close)?;
        Err(std::io::ErrorKind::ConnectionAborted.into())
    });
    let port = receiver.address.port();
    let canary = Receiver::answering_at(&format!("{DENIED}:{port}"), move |peer, _| peer.write_all(close));
    let mut client = server.client();
    let tenant = client.tenant();
    let settings = json!({"policy": every(20, 10)});
    let url = format!("http://hook.example:{port}/");
    let destination = text(&client.destination(&tenant, &url, settings), "id");
    names.say(&[ALLOWED.into()]);
    let event = client.event(&tenant, json!({}));
    client.delivery_in(&destination, &event, "delivered");
    for denied in [vec![DENIED], vec![ALLOWED, DENIED], vec![DENIED, ALLOWED], vec![Ipv4Addr::new(169, 254, 169, 254)]]
    {
        names.say(&denied.iter().copied().map(IpAddr::from).collect::<Vec<_>>());
        let event = client.event(&tenant, json!({}));
        let dead = client.delivery_in(&destination, &event, "dead");
        assert_eq!((&dead["reason"], &dead["attempt_count"]), (&json!("rejected"), &json!(5)), "{denied:?}");
        let errors = dead["attempts"].as_array().unwrap().iter().map(|attempt| attempt["error"].clone());
        assert!(errors.clone().all(|error| error == "address_blocked"), "{denied:?}: {:?}", errors.collect::<Vec<_>>());
    }
    names.say(&[ALLOWED.into()]);
    let event = client.event(&tenant, json!({}));
    client.delivery_in(&destination, &event, "delivered");
    assert_eq!((receiver.n_connections(), canary.n_connections()), (2, 0));
}
