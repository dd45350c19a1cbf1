//! Receivers that want to know who we are, and those that nobody else would believe (S3).

use doorstep_core::id::DestinationId;
use doorstep_core::outcome::Fault;
use doorstep_core::sender::Unsendable;
use doorstep_engine::sender::{PEM_BYTES_MAX, SendFault, TlsFault};

use crate::secure::{BOTH, ok, order, secure};
use crate::support::{AUTHORITY, Authority, Bench, Order, expect_fault, expect_status};

const ONE: &[&[u8]] = &[b"http/1.1"];

impl Order {
    fn showing(mut self, (certificate, key): (String, String)) -> Self {
        self.destination.settings.tls.client_certificate_pem = Some(certificate);
        self.destination.secrets.client_key_pem = Some(key.into());
        self
    }

    fn believing(mut self, authority: &Authority) -> Self {
        self.destination.settings.tls.ca_pem = Some(authority.root_pem());
        self
    }

    fn of_destination(mut self, id: u128) -> Self {
        self.destination.id = DestinationId(id);
        self
    }
}

#[tokio::test]
async fn a_receiver_that_wants_a_certificate_is_shown_it() {
    let clients = Authority::new("Clients");
    for alpn in [BOTH, ONE] {
        let (receiver, mut requests) = secure(AUTHORITY.strict_config(&clients, alpn), ok).await;
        let bench = Bench::default();
        for _ in 0..2 {
            let known = order(&receiver).showing(clients.client("doorstep"));
            expect_status(&bench.send(&known).await, 200);
            requests.recv().await.unwrap();
        }
        assert_eq!(receiver.n_connections(), 1, "its own connection is kept for it");
    }
}

#[tokio::test]
async fn without_the_right_certificate_nothing_is_sent() {
    let (clients, strangers) = (Authority::new("Clients"), Authority::new("Strangers"));
    for alpn in [BOTH, ONE] {
        let (receiver, mut requests) = secure(AUTHORITY.strict_config(&clients, alpn), ok).await;
        for order in [order(&receiver), order(&receiver).showing(strangers.client("doorstep"))] {
            expect_fault(&Bench::default().send(&order).await, Fault::TlsFailed);
        }
        assert!(requests.try_recv().is_err());
    }
}

#[tokio::test]
async fn nobody_borrows_a_connection_that_proved_somebody_else() {
    let clients = Authority::new("Clients");
    for alpn in [BOTH, ONE] {
        let (receiver, _requests) = secure(AUTHORITY.strict_config(&clients, alpn), ok).await;
        let bench = Bench::default();
        let first = order(&receiver).showing(clients.client("first"));
        expect_status(&bench.send(&first).await, 200);
        expect_fault(&bench.send(&order(&receiver).of_destination(2)).await, Fault::TlsFailed);
        assert_eq!(receiver.n_connections(), 2);
        let third = order(&receiver).of_destination(3).showing(clients.client("third"));
        expect_status(&bench.send(&third).await, 200);
        assert_eq!(receiver.n_connections(), 3);

        let mut changed = first.clone().showing(clients.client("new"));
        changed.destination.version += 1;
        expect_status(&bench.send(&changed).await, 200);
        assert_eq!(receiver.n_connections(), 4, "nor one of who it was before");
    }
}

#[tokio::test]
async fn a_destination_may_believe_a_root_of_its_own_and_nobody_else_does() {
    let theirs = Authority::new("Theirs");
    let (receiver, mut requests) = secure(theirs.server_config("localhost", false, BOTH), ok).await;
    let bench = Bench::default();
    expect_status(&bench.send(&order(&receiver).believing(&theirs)).await, 200);
    requests.recv().await.unwrap();
    expect_fault(&bench.send(&order(&receiver).of_destination(2)).await, Fault::TlsFailed);
    assert!(requests.try_recv().is_err());

    let (usual, _requests) = secure(AUTHORITY.server_config("localhost", false, BOTH), ok).await;
    expect_status(&bench.send(&order(&usual).of_destination(3).believing(&theirs)).await, 200);
    for (config, why) in [
        (theirs.server_config("other.example", false, BOTH), "not valid for name"),
        (theirs.server_config("localhost", true, BOTH), "expired"),
    ] {
        let (receiver, _requests) = secure(config, ok).await;
        let sent = Bench::default().send(&order(&receiver).believing(&theirs)).await;
        expect_fault(&sent, Fault::TlsFailed);
        assert!(sent.detail.as_ref().unwrap().contains(why), "{:?}", sent.detail);
    }
}

#[tokio::test]
async fn what_cannot_be_shown_is_refused_before_anything_is_sent() {
    let (one, other) = (AUTHORITY.client("one"), AUTHORITY.client("other"));
    let set = |certificate: Option<&str>, key: Option<&str>, ca: Option<&str>| {
        let mut order = Order::to("https://localhost/");
        order.destination.settings.tls.client_certificate_pem = certificate.map(str::to_owned);
        order.destination.secrets.client_key_pem = key.map(|key| key.to_owned().into());
        order.destination.settings.tls.ca_pem = ca.map(str::to_owned);
        order
    };
    let long = "x".repeat(PEM_BYTES_MAX + 1);
    let many = one.0.repeat(9);
    let bench = Bench::default();
    for (order, expected) in [
        (set(Some(&one.0), None, None), TlsFault::NoKey),
        (set(None, Some(&one.1), None), TlsFault::NoCertificateForKey),
        (set(Some("x"), Some(&one.1), None), TlsFault::NoCertificate("client_certificate_pem")),
        (set(Some(&one.0), Some("x"), None), TlsFault::NotPem("client_key_pem")),
        (set(Some(&long), Some(&one.1), None), TlsFault::TooLong("client_certificate_pem")),
        (set(Some(&one.0), Some(&long), None), TlsFault::TooLong("client_key_pem")),
        (set(Some(&many), Some(&one.1), None), TlsFault::TooMany("client_certificate_pem")),
        (set(None, None, Some("x")), TlsFault::NoCertificate("ca_pem")),
        (set(Some(&one.0), Some(&other.1), None), TlsFault::Mismatch("keys may not be consistent: KeyMismatch".into())),
    ] {
        let found = bench.try_send(&order).await.unwrap_err();
        assert_eq!(found, SendFault::Tls(DestinationId(1), expected.clone()));
        let told = bench.sender.as_ref() as &dyn doorstep_core::sender::Sender;
        let told = told.check(&order.destination).unwrap_err();
        assert_eq!(told, Unsendable { field: "tls", detail: expected.to_string() });
        assert!(!told.detail.contains("BEGIN PRIVATE"), "{}", told.detail);
    }
    bench.sender.check(&set(Some(&one.0), Some(&one.1), Some(&AUTHORITY.root_pem())).destination).unwrap();
}
