//! Where requests may go, and where they must not, whatever DNS says.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use doorstep_core::outcome::{Fault, Outcome};
use doorstep_engine::resolve::{DnsSettings, NameServers};
use doorstep_engine::sender::Deadlines;
use tokio::net::UdpSocket;

use crate::support::{Bench, OK, Order, Receiver, expect_fault, expect_status, settings};

/// A name server that answers as told.
struct NameServer {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

/// What it says to a question for IPv4 addresses.
#[derive(Clone)]
enum Say {
    Addresses(Vec<Ipv4Addr>, u32),
    NoSuchName,
    Nothing,
}

impl NameServer {
    /// `answer` is told how often it has been asked for IPv4 addresses before.
    async fn start(answer: impl Fn(usize) -> Say + Send + 'static) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&asked);
        tokio::spawn(async move {
            let mut n_asked = 0;
            let mut packet = [0; 1_500];
            while let Ok((len, from)) = socket.recv_from(&mut packet).await {
                let (name, kind, question) = question(&packet[..len]);
                let say = if kind == TYPE_A {
                    heard.lock().unwrap().push(name);
                    n_asked += 1;
                    answer(n_asked - 1)
                } else {
                    match answer(n_asked) {
                        Say::Nothing => Say::Nothing,
                        Say::Addresses(..) | Say::NoSuchName => Say::Addresses(vec![], 0),
                    }
                };
                if let Some(reply) = reply(&packet[..2], question, &say) {
                    socket.send_to(&reply, from).await.unwrap();
                }
            }
        });
        Self { address, asked }
    }

    fn bench(&self, allowed: &str) -> Bench {
        let mut settings = settings();
        settings.dns = DnsSettings { servers: NameServers::These(vec![self.address]), ..DnsSettings::default() };
        settings.deadlines = Deadlines { dns: Duration::from_millis(500), ..Deadlines::default() };
        Bench::new(settings, allowed)
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

const TYPE_A: u16 = 1;
const TYPE_AAAA: u16 = 28;

/// The name, the type, and the bytes of the one question in a packet.
fn question(packet: &[u8]) -> (String, u16, &[u8]) {
    let (mut at, mut name) = (12, String::new());
    while packet[at] != 0 {
        let label = &packet[at + 1..at + 1 + usize::from(packet[at])];
        name += &format!("{}.", std::str::from_utf8(label).unwrap());
        at += 1 + label.len();
    }
    (name, u16::from_be_bytes([packet[at + 1], packet[at + 2]]), &packet[12..at + 5])
}

fn reply(id: &[u8], question: &[u8], say: &Say) -> Option<Vec<u8>> {
    let (addresses, ttl, code) = match say {
        Say::Addresses(addresses, ttl) => (addresses.as_slice(), *ttl, 0),
        Say::NoSuchName => (&[][..], 0, 3),
        Say::Nothing => return None,
    };
    let n = u8::try_from(addresses.len()).unwrap();
    let mut reply = [id, &[0x81, 0x80 | code, 0, 1, 0, n, 0, 0, 0, 0], question].concat();
    for address in addresses {
        reply.extend([0xc0, 12, 0, 1, 0, 1]);
        reply.extend(ttl.to_be_bytes());
        reply.extend([0, 4]);
        reply.extend(address.octets());
    }
    Some(reply)
}

const ALLOWED: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const DENIED: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);

/// A receiver at the allowed address, and another at the same port of the denied one.
async fn receiver_and_canary() -> (Receiver, Receiver) {
    let close = |mut peer: crate::support::Peer, _| async move {
        peer.read_request().await;
        peer.write("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n").await;
    };
    let receiver = Receiver::start_at(&format!("{ALLOWED}:0"), close).await;
    let canary = Receiver::start_at(&format!("{DENIED}:{}", receiver.address.port()), close).await;
    (receiver, canary)
}

#[tokio::test]
async fn a_name_that_changes_its_mind_leads_nowhere() {
    let (receiver, canary) = receiver_and_canary().await;
    let dns = NameServer::start(|nth| match nth {
        0 => Say::Addresses(vec![ALLOWED], 0),
        1 => Say::Addresses(vec![DENIED], 0),
        2 => Say::Addresses(vec![ALLOWED, DENIED], 0),
        3 => Say::Addresses(vec![DENIED, ALLOWED], 0),
        _ => Say::Addresses(vec![ALLOWED], 0),
    })
    .await;
    let bench = dns.bench("127.0.0.2");
    let order = Order::to(format!("http://hook.example:{}/", receiver.address.port()));
    let sent = bench.send(&order).await;
    expect_status(&sent, 200);
    assert!(sent.attempt.timings.dns.is_some());
    for _ in 0..3 {
        let sent = bench.send(&order).await;
        expect_fault(&sent, Fault::AddressBlocked);
        assert_eq!(sent.outcome, Outcome::Blocked);
    }
    expect_status(&bench.send(&order).await, 200);
    assert_eq!((receiver.n_connections(), canary.n_connections()), (2, 0));
    assert_eq!(dns.asked(), ["hook.example."; 5], "asked once per connection, and without search domains");
}

#[tokio::test]
async fn an_answer_is_remembered_for_its_time() {
    let (receiver, canary) = receiver_and_canary().await;
    let dns = NameServer::start(|nth| Say::Addresses(vec![if nth == 0 { ALLOWED } else { DENIED }], 3_600)).await;
    let bench = dns.bench("127.0.0.2");
    for _ in 0..3 {
        expect_status(&bench.send(&Order::to(format!("http://a.example:{}/", receiver.address.port()))).await, 200);
    }
    assert_eq!((receiver.n_connections(), canary.n_connections()), (3, 0));
    assert_eq!(dns.asked().len(), 1);
}

#[tokio::test]
async fn every_address_is_tried_until_one_answers() {
    let (receiver, _requests) = Receiver::answering(OK).await;
    let deaf = Ipv4Addr::new(127, 0, 0, 9);
    let dns = NameServer::start(move |_| Say::Addresses(vec![deaf, Ipv4Addr::LOCALHOST], 0)).await;
    let order = Order::to(format!("http://a.example:{}/", receiver.address.port()));
    expect_status(&dns.bench("127.0.0.0/8").send(&order).await, 200);
}

#[tokio::test]
async fn a_name_without_address_and_a_silent_name_server_are_told_apart() {
    for (say, fault) in [
        (Say::NoSuchName, Fault::DnsFailed),
        (Say::Addresses(vec![], 0), Fault::DnsFailed),
        (Say::Nothing, Fault::DnsTimedOut),
    ] {
        let dns = NameServer::start(move |_| say.clone()).await;
        let sent = dns.bench("127.0.0.0/8").send(&Order::to("http://a.example/")).await;
        expect_fault(&sent, fault);
        assert!(sent.attempt.timings.dns.is_some() && sent.attempt.timings.connect.is_none());
    }
}

/// A name server that answers for one family only: with this address, and with nothing at all for the other.
async fn half_deaf(address: IpAddr) -> NameServer {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let (asked, at) = (Arc::new(Mutex::new(Vec::new())), socket.local_addr().unwrap());
    let heard = Arc::clone(&asked);
    tokio::spawn(async move {
        let mut packet = [0; 1_500];
        while let Ok((len, from)) = socket.recv_from(&mut packet).await {
            let (name, kind, question) = question(&packet[..len]);
            heard.lock().unwrap().push(name);
            let (answered, octets) = match address {
                IpAddr::V4(address) => (TYPE_A, address.octets().to_vec()),
                IpAddr::V6(address) => (TYPE_AAAA, address.octets().to_vec()),
            };
            if kind == answered {
                let mut reply = [&packet[..2], &[0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0], question].concat();
                reply.extend([0xc0, 12, 0, u8::try_from(kind).unwrap(), 0, 1, 0, 0, 0, 0, 0]);
                reply.push(u8::try_from(octets.len()).unwrap());
                reply.extend(octets);
                socket.send_to(&reply, from).await.unwrap();
            }
        }
    });
    NameServer { address: at, asked }
}

#[tokio::test]
async fn a_name_server_that_never_answers_for_one_family_does_not_stand_in_the_way_of_the_other() {
    for (address, other) in [("127.0.0.1", "127.0.0.2"), ("::1", "fd00::1")] {
        let dns = half_deaf(address.parse().unwrap()).await;
        let listen: SocketAddr = (address.parse::<IpAddr>().unwrap(), 0).into();
        let receiver = Receiver::start_at(&listen.to_string(), |mut peer, _| async move {
            peer.read_request().await;
            peer.write(OK).await;
        })
        .await;
        let order = Order::to(format!("http://a.example:{}/", receiver.address.port()));
        expect_status(&dns.bench(address).send(&order).await, 200);
        assert!(dns.asked().len() >= 2, "both families are asked for");
        // The family that answers is judged as ever.
        expect_fault(&dns.bench(other).send(&order).await, Fault::AddressBlocked);
        assert_eq!(receiver.n_connections(), 1);
    }
}

#[tokio::test]
async fn localhost_is_known_without_asking_where_loopback_is_allowed() {
    let dns = NameServer::start(|_| Say::NoSuchName).await;
    let (receiver, _requests) = Receiver::answering(OK).await;
    let order = Order::to(format!("http://localhost:{}/", receiver.address.port()));
    expect_status(&dns.bench("127.0.0.0/8").send(&order).await, 200);
    expect_fault(&dns.bench("").send(&order).await, Fault::AddressBlocked);
    expect_fault(&dns.bench("10.0.0.0/8").send(&order).await, Fault::AddressBlocked);
    assert_eq!((receiver.n_connections(), dns.asked().len()), (1, 0));
}

#[tokio::test]
async fn literal_addresses_bypass_dns_but_not_the_rules() {
    let dns = NameServer::start(|_| Say::NoSuchName).await;
    let canary = Receiver::answering(OK).await.0;
    let bench = dns.bench("");
    let port = canary.address.port();
    let v4 = [
        "0.0.0.0",
        "10.0.0.1",
        "100.64.0.1",
        "100.100.100.200",
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f.1",
        "0177.0.0.1",
        "169.254.169.254",
        "169.254.170.2",
        "172.16.0.1",
        "192.0.0.192",
        "192.0.2.1",
        "192.31.196.1",
        "192.52.193.1",
        "192.88.99.1",
        "192.168.0.1",
        "192.175.48.1",
        "198.18.0.1",
        "198.51.100.1",
        "203.0.113.1",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "168.63.129.16",
    ];
    let v6 = [
        "::",
        "::1",
        "::127.0.0.1",
        "::ffff:127.0.0.1",
        "::ffff:0:127.0.0.1",
        "::5efe:7f00:1",
        "64:ff9b::7f00:1",
        "64:ff9b:1::1",
        "100::1",
        "100:0:0:1::1",
        "2001::1",
        "2001:db8::1",
        "2002:7f00:1::",
        "2620:4f:8000::1",
        "3fff::1",
        "5f00::1",
        "fc00::1",
        "fd00:ec2::254",
        "fe80::1",
        "fec0::1",
        "ff02::1",
    ];
    let hosts = v4.map(str::to_owned).into_iter().chain(v6.map(|address| format!("[{address}]")));
    let mut version = 1;
    for host in hosts {
        for scheme in ["https", "http"] {
            let mut order = Order::to(format!("{scheme}://{host}:{port}/"));
            version += 1;
            order.destination.version = version;
            expect_fault(&bench.send(&order).await, Fault::AddressBlocked);
        }
    }
    for url in ["ftp://a.example/", "http://a.example/", "https://a.example:22/", "https://u:p@a.example/", "", "x"] {
        let mut order = Order::to(url);
        version += 1;
        order.destination.version = version;
        expect_fault(&bench.send(&order).await, Fault::AddressBlocked);
    }
    assert_eq!((canary.n_connections(), dns.asked().len()), (0, 0));
}

#[tokio::test]
async fn plain_http_goes_only_where_the_operator_allows_it() {
    // The operator allowed another range, so the URL may be a name; what it resolves to decides.
    let dns = NameServer::start(|_| Say::Addresses(vec![Ipv4Addr::new(93, 184, 215, 14)], 0)).await;
    expect_fault(&dns.bench("10.0.0.0/8").send(&Order::to("http://a.example/")).await, Fault::AddressBlocked);
}
