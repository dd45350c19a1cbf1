//! What becomes of deliveries whose payloads were erased.

use std::time::Duration;

use doorstep_core::delivery::{Delivery, Track};
use doorstep_core::engine::Engine as _;
use doorstep_core::gate::Why;
use doorstep_core::id::DestinationId;
use doorstep_core::reach::Reach;
use doorstep_core::retry::DeadReason;
use doorstep_core::scheduler::Hand;
use doorstep_core::store::{DeliveryFilter, DeliveryStatus, DeliverySummary, DueQuery, Page, Refusal, Statuses};

use crate::support::{Engine, Receiver, TENANT, destination, event, mandate};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_erased_is_never_sent_and_what_comes_later_is() {
    let mut receiver = Receiver::start(|_| 200).await;
    let directory = tempfile::tempdir().unwrap();
    let engine = Engine::start(directory.path()).await;
    let id = engine.add(destination(1, &receiver.url("/"), &["*"])).await;
    assert_eq!(engine.desk.erase_payloads(mandate(), TENANT).await.unwrap(), Err(Refusal::NotFound));
    engine.hand(id, Hand::Pause).await;
    for n in 0..2 {
        engine.accept(event(n, "a.b")).await.unwrap();
    }
    engine.desk.erase_payloads(mandate(), TENANT).await.unwrap().unwrap();
    engine.accept(event(2, "a.b")).await.unwrap();
    engine.hand(id, Hand::Resume).await;
    assert_eq!(receiver.next().await.body, event(2, "a.b").payload);
    let page = Page { before_seq: None, limit: 100 };
    let dead = DeliveryFilter { statuses: Statuses::DEAD, ..DeliveryFilter::default() };
    let ended = async {
        loop {
            let ended = engine.store.deliveries(Reach::All, dead.clone(), page).await.unwrap();
            if ended.len() == 2 {
                break ended;
            }
            tokio::task::yield_now().await;
        }
    };
    let ended = tokio::time::timeout(Duration::from_secs(60), ended).await.expect("all of them end");
    for one in ended {
        assert_eq!(one.status, DeliveryStatus::Dead(DeadReason::Abandoned));
        assert_eq!(one.note.as_deref(), Some("its payload was erased"));
    }
    engine.run.drain().await;
    assert!(receiver.is_quiet());
    assert_eq!(engine.store.backlogs(Reach::All, vec![id]).await.unwrap()[0].queued, 0);
}

const ERASED: usize = 1_000;
const LIVE: usize = 10;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_erased_deliveries_end_and_hold_nobody_up() {
    let mut receiver = Receiver::start(|_| 200).await;
    let directory = tempfile::tempdir().unwrap();
    let engine = Engine::start(directory.path()).await;
    let id = engine.add(destination(1, &receiver.url("/"), &["*"])).await;
    engine.hand(id, Hand::Pause).await;
    let accept = async |numbers: std::ops::Range<usize>| {
        let events = numbers.map(|n| event(n, "a.b").into()).collect();
        assert!(engine.desk.accept(Reach::All, events).await.unwrap().iter().all(Result::is_ok));
    };
    accept(0..ERASED).await;
    engine.desk.erase_payloads(mandate(), TENANT).await.unwrap().unwrap();
    accept(ERASED..ERASED + LIVE).await;
    let last = queued(&engine, id).await.pop().unwrap();
    engine.hand(id, Hand::Resume).await;

    let mut received = 0;
    while received < LIVE {
        tokio::select! {
            request = receiver.next() => {
                let n = serde_json::from_slice::<serde_json::Value>(&request.body).unwrap()["n"].as_u64().unwrap();
                assert!(n >= ERASED as u64, "{n} was erased");
                received += 1;
            }
            // Asked as often as the run loop answers: a rest of a second would be met.
            holds = engine.run.holds(vec![last.clone()]) => {
                let hold = holds.unwrap().remove(0);
                let rests = hold.is_some_and(|hold| hold.why == Why::Capacity && hold.until.is_some());
                assert!(!rests, "nothing went wrong, and the destination rests: {hold:?}");
            }
        }
    }
    engine.run.drain().await;
    assert!(receiver.is_quiet());
    assert_eq!(queued(&engine, id).await, []);
    let ended = dead(&engine).await;
    assert_eq!(ended.len(), ERASED);
    assert!(
        ended.iter().all(|one| one.note.as_deref() == Some("its payload was erased") && one.delivery.requests == 0)
    );
}

async fn queued(engine: &Engine, destination_id: DestinationId) -> Vec<Delivery> {
    let query = DueQuery { destination_id, track: Track::First, after: None, limit: 2 * ERASED };
    engine.store.due(vec![query]).await.unwrap().remove(0).deliveries
}

async fn dead(engine: &Engine) -> Vec<DeliverySummary> {
    let filter = DeliveryFilter { statuses: Statuses::DEAD, ..DeliveryFilter::default() };
    engine.store.deliveries(Reach::All, filter, Page { before_seq: None, limit: 2 * ERASED }).await.unwrap()
}
