//! Questions for consent, and what receivers make of them.

use doorstep_core::consent::{ConsentLink, Leave, Verification};
use doorstep_core::time::Millis;
use doorstep_engine::sender::{ASK_TIMEOUT_MAX, SenderSettings};
use http_body_util::Full;

use crate::secure::secure;
use crate::support::{AUTHORITY, Bench, LONG, NOW, Order, Receiver, SHORT, settings};

const LINK_KEY: [u8; 32] = [7; 32];

fn order(url: String, timeout: Millis) -> Order {
    let mut order = Order::to(url).within(timeout);
    order.destination.settings.verification = Verification::CloudeventsOptions;
    order.destination.secrets.link_key = Some(LINK_KEY.into());
    order
}

/// A receiver that answers each question with these bytes.
async fn answering(answer: &'static str) -> Receiver {
    Receiver::start(move |mut peer, _| async move {
        while peer.read_head().await.is_some() {
            peer.write(answer).await;
        }
    })
    .await
}

#[tokio::test]
async fn over_tls_the_question_is_the_same_and_its_link_is_as_safe_as_the_destination() {
    let config = AUTHORITY.server_config("localhost", false, &[b"h2"]);
    let agrees = |_| {
        let answer = http::Response::builder().status(405);
        let answer = answer.header("webhook-allowed-origin", "hooks.example").header("webhook-allowed-rate", "7");
        answer.body(Full::default()).unwrap()
    };
    let (receiver, mut requests) = secure(config, agrees).await;
    let order = order(format!("https://localhost:{}/in?a=b", receiver.address.port()), LONG);
    let asked = Bench::default().sender.ask(&order.destination).await.unwrap();
    let per_minute = std::num::NonZeroU32::new(7);
    assert_eq!(asked.leave, Ok(Leave { per_minute }), "the status says nothing");
    let question = requests.recv().await.unwrap();
    assert_eq!(
        (question.method(), question.uri().path_and_query().unwrap().as_str()),
        (&http::Method::OPTIONS, "/in?a=b")
    );
    let link = ConsentLink::new(order.destination.id, &order.destination.settings.url, NOW);
    let href = link.href("https://hooks.example", &LINK_KEY.into());
    assert_eq!(question.headers()["webhook-request-callback"], href);

    let plain = SenderSettings { public_url: "http://hooks.example:8080/x".to_owned(), ..settings() };
    Bench::new(plain, "127.0.0.0/8").sender.ask(&order.destination).await.unwrap();
    let question = requests.recv().await.unwrap();
    assert_eq!(question.headers()["webhook-request-origin"], "hooks.example");
    assert!(!question.headers().contains_key("webhook-request-callback"));
}

#[tokio::test]
async fn whatever_a_receiver_does_is_an_answer_and_its_wish_to_wait_is_told() {
    let ask = async |receiver: &Receiver| {
        let order = order(receiver.url(), SHORT);
        Bench::default().sender.ask(&order.destination).await.unwrap()
    };
    let busy = answering("HTTP/1.1 503 Busy\r\nretry-after: 7\r\ncontent-length: 0\r\n\r\n").await;
    let asked = ask(&busy).await;
    assert_eq!(asked.wait, Some(Millis::from_secs(7)));
    assert_eq!(asked.leave, Err("it answered 503: the answer has no WebHook-Allowed-Origin header".to_owned()));

    let moved = answering("HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n").await;
    assert!(ask(&moved).await.leave.unwrap_err().starts_with("it answered 302: "), "no redirect is followed");
    let silent = Receiver::start(|mut peer, _| async move { peer.closed().await }).await;
    assert_eq!(ask(&silent).await.leave, Err("it did not answer: no answer came in time".to_owned()));
    let nonsense = answering("nonsense\r\n\r\n").await;
    let told = "it did not answer: what came was not HTTP, or broke its limits";
    assert_eq!(ask(&nonsense).await.leave, Err(told.to_owned()));

    let forbidden = Bench::new(settings(), "10.0.0.0/8");
    let asked = forbidden.sender.ask(&order("https://127.0.0.1/".to_owned(), SHORT).destination).await.unwrap();
    assert_eq!(asked.leave, Err("it did not answer: it has an address that destinations may not have".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_question_takes_no_longer_than_that_whatever_its_destination_allows() {
    let silent = Receiver::start(|mut peer, _| async move { peer.closed().await }).await;
    let order = order(silent.url(), Millis::from_mins(5));
    let (bench, before) = (Bench::default(), tokio::time::Instant::now());
    let asked = bench.sender.ask(&order.destination).await.unwrap();
    assert!(asked.leave.unwrap_err().starts_with("it did not answer: "));
    assert!(before.elapsed() <= std::time::Duration::from_millis(ASK_TIMEOUT_MAX.0 + 1), "{:?}", before.elapsed());
}
