//! The engine over a real SQLite file and real sockets.
#![expect(clippy::unwrap_used, reason = "a test stops where something is missing")]

mod support;
mod erased;
mod faults;
#[path = "../peers/frames.rs"]
#[expect(dead_code, reason = "the sender's tests use the rest")]
mod frames;
mod http2;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use doorstep_core::delivery::{self, BehindDead};
use doorstep_core::event::Event;
use doorstep_core::gate::{GateLimits, GateStatus};
use doorstep_core::reach::Reach;
use doorstep_core::scheduler::Hand;
use doorstep_core::store::{DeliveryFilter, DeliveryStatus, Page, Statuses};
use doorstep_engine::maintain::{self, Retention};
use support::{Engine, Receiver, destination, event};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_accepted_event_arrives_at_every_destination_that_wants_it() {
    let mut receiver = Receiver::start(|_| 200).await;
    let directory = tempfile::tempdir().unwrap();
    let engine = Engine::start(directory.path()).await;
    let all = engine.add(destination(1, &receiver.url("/all"), &["*"])).await;
    let paid = engine.add(destination(2, &receiver.url("/paid"), &["invoice.paid"])).await;
    let kinds = ["invoice.paid", "invoice.sent"];
    for n in 0..100 {
        let accepted = engine.accept(event(n, kinds[n % 2])).await.unwrap();
        assert_eq!((accepted.deliveries, accepted.duplicate), (2 - n % 2, false));
    }
    let mut seen: Vec<(String, String)> = Vec::new();
    while seen.len() < 150 {
        let request = receiver.next().await;
        let key = support::verifying_key();
        let header = |name| request.headers.get(name).map(|value| value.as_bytes());
        let now = engine.clock.now();
        doorstep_core::signature::verify(header, &request.body, &[key], now, doorstep_core::time::Millis::from_mins(5))
            .unwrap();
        seen.push((request.path.clone(), String::from_utf8(request.body.to_vec()).unwrap()));
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 150, "each arrives once");
    engine.run.drain().await;
    let backlogs = engine.store.backlogs(Reach::All, vec![all, paid]).await.unwrap();
    assert!(backlogs.iter().all(|backlog| backlog.queued == 0), "{backlogs:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeated_event_makes_no_second_delivery() {
    let mut receiver = Receiver::start(|_| 200).await;
    let directory = tempfile::tempdir().unwrap();
    let engine = Engine::start(directory.path()).await;
    engine.add(destination(1, &receiver.url("/"), &["*"])).await;
    assert!(!engine.accept(event(1, "a.b")).await.unwrap().duplicate);
    let again = engine.accept(event(1, "a.b")).await.unwrap();
    assert_eq!((again.deliveries, again.duplicate), (1, true));
    let mut other = event(1, "a.b");
    other.payload = "another body".into();
    assert!(engine.accept(other).await.is_err());
    receiver.next().await;
    engine.run.drain().await;
    assert!(receiver.is_quiet());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_fails_is_tried_again_with_the_same_body_and_a_fresh_attempt_number() {
    let mut receiver = Receiver::start(|n| if n < 2 { 503 } else { 200 }).await;
    let directory = tempfile::tempdir().unwrap();
    let engine = Engine::start(directory.path()).await;
    engine.add(destination(1, &receiver.url("/"), &["*"])).await;
    engine.accept(event(7, "a.b")).await.unwrap();
    let mut bodies = Vec::new();
    for attempt in 1..=3 {
        let request = receiver.next().await;
        assert_eq!(request.headers["x-delivery-attempt"], attempt.to_string().as_str());
        bodies.push(request.body);
    }
    assert!(bodies.windows(2).all(|pair| pair[0] == pair[1]));
    engine.run.drain().await;
    let page = Page { before_seq: None, limit: 10 };
    let listed = engine.store.deliveries(Reach::All, DeliveryFilter::default(), page).await.unwrap();
    let [summary] = &listed[..] else { panic!("{listed:?}") };
    assert_eq!(summary.status, DeliveryStatus::Delivered);
    let history = engine.store.delivery(Reach::All, summary.delivery.id).await.unwrap().unwrap();
    assert_eq!(history.attempts.len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_resumes_from_the_store_and_gates_are_as_they_were() {
    let mut receiver = Receiver::start(|_| 200).await;
    let directory = tempfile::tempdir().unwrap();
    let id = {
        let engine = Engine::start(directory.path()).await;
        let id = engine.add(destination(1, &receiver.url("/"), &["*"])).await;
        engine.hand(id, Hand::Pause).await;
        for n in 0..5 {
            engine.accept(event(n, "a.b")).await.unwrap();
        }
        engine.stop().await;
        id
    };
    let engine = Engine::start(directory.path()).await;
    let view = engine.run.gates(vec![id]).await.unwrap().pop().flatten().expect("it is served again");
    assert!(view.state.suspension.is_paused());
    assert!(receiver.is_quiet());
    engine.hand(id, Hand::Resume).await;
    for _ in 0..5 {
        receiver.next().await;
    }
    engine.stop().await;
}

/// Of one ordering key, so that only the first may go: the others arrive all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_ramp_follows_what_has_arrived_while_nothing_could_be_sent() {
    let mut receiver = Receiver::start(|_| 200).await;
    let directory = tempfile::tempdir().unwrap();
    let engine = Engine::start(directory.path()).await;
    let mut ordered = destination(1, &receiver.url("/"), &["*"]);
    ordered.settings.ordering = delivery::Ordering::ByKey { behind_dead: BehindDead::Skip };
    let id = engine.add(ordered).await;
    engine.hand(id, Hand::Pause).await;
    for n in 0..300 {
        let ordering_key = Some("one".into());
        engine.accept(Event { ordering_key, ..event(n, "a.b") }).await.unwrap();
    }
    engine.hand(id, Hand::Resume).await;
    let recovering = async {
        loop {
            // One more, so that the next ones of the key have waited for a while.
            receiver.next().await;
            let view = engine.run.gates(vec![id]).await.unwrap().pop().flatten().unwrap();
            if view.status == GateStatus::Recovering {
                return view;
            }
        }
    };
    let view = recovering.await;
    let target = view.state.pace.recovering(engine.clock.now()).unwrap().target.as_per_second();
    // 300 in ten seconds, if the machine is that fast; fewer would be the least that a ramp climbs to.
    assert!((18.1..=57.1).contains(&target), "{target}");
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_gate_has_learned_survives_a_restart() {
    let mut receiver = Receiver::start(|n| if n == 0 { 503 } else { 200 }).await;
    let directory = tempfile::tempdir().unwrap();
    let engine = Engine::start(directory.path()).await;
    let id = engine.add(destination(1, &receiver.url("/"), &["*"])).await;
    engine.accept(event(1, "a.b")).await.unwrap();
    receiver.next().await;
    receiver.next().await;
    engine.stop().await;
    let engine = Engine::start(directory.path()).await;
    let view = engine.run.gates(vec![id]).await.unwrap().pop().flatten().expect("it is served again");
    assert_eq!(view.state.concurrency.limit(&GateLimits::default()), GateLimits::default().concurrency - 1);
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_permanent_answer_makes_a_dead_letter_at_once() {
    let mut receiver = Receiver::start(|_| 422).await;
    let directory = tempfile::tempdir().unwrap();
    let engine = Engine::start(directory.path()).await;
    engine.add(destination(1, &receiver.url("/"), &["*"])).await;
    engine.accept(event(1, "a.b")).await.unwrap();
    receiver.next().await;
    engine.run.drain().await;
    let filter = DeliveryFilter {
        statuses: Statuses::DEAD,
        codes: Some(doorstep_core::store::Codes::one(422)),
        ..DeliveryFilter::default()
    };
    let dead = engine.store.deliveries(Reach::All, filter, Page { before_seq: None, limit: 10 }).await.unwrap();
    assert_eq!(dead.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sender_that_panics_costs_the_delivery_nothing() {
    let mut receiver = Receiver::start(|_| 200).await;
    let directory = tempfile::tempdir().unwrap();
    let panics = Arc::new(AtomicUsize::new(1));
    let left = Arc::clone(&panics);
    let engine = Engine::start_with(directory.path(), move || {
        left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).is_ok()
    })
    .await;
    engine.add(destination(1, &receiver.url("/"), &["*"])).await;
    engine.accept(event(1, "a.b")).await.unwrap();
    let request = receiver.next().await;
    assert_eq!(request.headers["x-delivery-attempt"], "1");
    assert_eq!(panics.load(Ordering::SeqCst), 0, "the first one panicked");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keeping_house_ends_with_the_run_loop() {
    let directory = tempfile::tempdir().unwrap();
    let engine = Engine::start(directory.path()).await;
    let (store, writer, run) = (Arc::clone(&engine.store), engine.writer.clone(), engine.run.clone());
    let house = maintain::start(store, writer, run, engine.clock.clone(), Retention::default());
    engine.stop().await;
    house.await.unwrap();
    Engine::start(directory.path()).await.stop().await;
}
