use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};

use doorstep_core::consent::{Leave, Verification};
use doorstep_core::dice::SeededDice;
use doorstep_core::scheduler::SchedulerLimits;
use doorstep_core::sender::{Parcel, Sent};
use doorstep_core::store::Store;
use doorstep_core::time::Millis;
use doorstep_store::conformance::samples::{DST, TENANT, destination};
use doorstep_store::memory::MemoryStore;
use tokio::sync::Semaphore;

use super::*;
use crate::events::Events;
use crate::run::{self, Parts};

const WAIT: Millis = Millis::from_hours(5);

/// Answers as often as it is let, with what it is told to.
struct Hesitant {
    lets: Semaphore,
    at_once: AtomicUsize,
    at_once_max: AtomicUsize,
    agrees: Mutex<bool>,
}

impl Sender for Hesitant {
    fn send(&self, _: Parcel) -> Pin<Box<dyn Future<Output = Result<Sent, SendFault>> + Send + '_>> {
        Box::pin(async { Err(SendFault("nothing is sent in this test".into())) })
    }

    fn ask(&self, _: Arc<Destination>) -> Pin<Box<dyn Future<Output = Result<Asked, SendFault>> + Send + '_>> {
        Box::pin(async {
            let at_once = self.at_once.fetch_add(1, Ordering::SeqCst) + 1;
            self.at_once_max.fetch_max(at_once, Ordering::SeqCst);
            self.lets.acquire().await.expect("it is never closed").forget();
            self.at_once.fetch_sub(1, Ordering::SeqCst);
            let leave = if *lock(&self.agrees) { Ok(Leave::default()) } else { Err("it says no".to_owned()) };
            Ok(Asked { origin: "hooks.example".to_owned(), leave, wait: Some(WAIT) })
        })
    }
}

struct Bench {
    sender: Arc<Hesitant>,
    office: Office,
    store: Arc<MemoryStore>,
}

impl Bench {
    /// With so many destinations of one tenant that have to be asked.
    async fn new(n: u128) -> Self {
        Self::with((1..=n).map(|id| (id, TENANT))).await
    }

    async fn with(destinations: impl Iterator<Item = (u128, TenantId)>) -> Self {
        let store = Arc::new(MemoryStore::default());
        let sender = Arc::new(Hesitant {
            lets: Semaphore::new(0),
            at_once: AtomicUsize::new(0),
            at_once_max: AtomicUsize::new(0),
            agrees: Mutex::new(false),
        });
        let clock = Clock::start();
        let (writer, _) = Writer::start(Arc::clone(&store) as Arc<dyn Store>, clock.clone());
        let catalog = Arc::new(Catalog::default());
        let (run, _) = run::start(Parts {
            store: Arc::clone(&store) as Arc<dyn Store>,
            sender: Arc::clone(&sender) as Arc<dyn Sender>,
            writer: writer.clone(),
            catalog: Arc::clone(&catalog),
            events: Arc::new(Events::new(Arc::clone(&store) as Arc<dyn Store>)),
            clock: clock.clone(),
            dice: Box::new(SeededDice::new(1)),
            limits: SchedulerLimits::default(),
            news: tokio::sync::broadcast::Sender::new(16),
        });
        for (id, tenant_id) in destinations {
            let destination = Destination { tenant_id, ..destination(DestinationId(id), 1) };
            writer.write(vec![Write::PutDestination(Box::new(destination.clone()))]).await.unwrap();
            catalog.put_destination(destination);
        }
        Self { sender, office: Office { catalog, writer, run, clock }, store }
    }

    fn start(&self) -> Consents {
        let sender = Arc::clone(&self.sender) as Arc<dyn Sender>;
        Consents::start(self.office.clone(), sender, Box::new(SeededDice::new(1)))
    }

    /// Until so many questions are out.
    async fn until_asked(&self, n: usize) {
        while self.sender.at_once.load(Ordering::SeqCst) < n {
            tokio::task::yield_now().await;
        }
    }

    fn asking(&self, consents: &Consents) -> Asking {
        consents.asking(&[DST]).pop().flatten().expect("it is being asked")
    }
}

#[tokio::test]
async fn all_that_have_to_be_are_asked_but_only_so_many_at_once() {
    let n = ASKED_AT_ONCE_MAX * 2 + 3;
    let bench = Bench::with((1..=n as u128).map(|id| (id, TenantId(id)))).await;
    let consents = bench.start();
    bench.until_asked(ASKED_AT_ONCE_MAX).await;
    bench.sender.lets.add_permits(n);
    for id in 1..=n as u128 {
        while consents.asking(&[DestinationId(id)])[0].as_ref().is_none_or(|asking| asking.asked == 0) {
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(bench.sender.at_once_max.load(Ordering::SeqCst), ASKED_AT_ONCE_MAX);
    assert_eq!(bench.sender.lets.available_permits(), 0, "each was asked once");
}

#[tokio::test]
async fn a_tenant_whose_receivers_take_their_time_does_not_keep_the_others_waiting() {
    let n = ASKED_AT_ONCE_MAX * 2;
    let slow = (1..=n as u128).map(|id| (id, TENANT));
    let bench = Bench::with(slow.chain([(99, TenantId(99))])).await;
    let consents = bench.start();
    bench.until_asked(ASKED_PER_TENANT_MAX + 1).await;
    let asked_now =
        |id| consents.asking(&[DestinationId(id)])[0].as_ref().is_some_and(|asking| asking.next_ask_at.is_none());
    assert!(asked_now(99));
    assert_eq!((1..=n as u128).filter(|id| asked_now(*id)).count(), ASKED_PER_TENANT_MAX);
    bench.sender.lets.add_permits(n + 1);
    for id in 1..=n as u128 {
        while consents.asking(&[DestinationId(id)])[0].as_ref().is_none_or(|asking| asking.asked == 0) {
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(bench.sender.at_once_max.load(Ordering::SeqCst), ASKED_PER_TENANT_MAX + 1);
}

#[tokio::test]
async fn a_no_is_told_and_the_wait_that_comes_with_it_is_kept() {
    let bench = Bench::new(1).await;
    bench.sender.lets.add_permits(2);
    let consents = bench.start();
    let before = bench.office.clock.now();
    consents.ask(DST).await.unwrap();
    let asking = bench.asking(&consents);
    assert_eq!(asking.last_answer.as_deref(), Some("it says no"));
    assert!(asking.next_ask_at.is_some_and(|at| at >= before + WAIT), "{asking:?}");
    assert!(bench.office.catalog.destination(DST).unwrap().awaits_consent());
}

#[tokio::test]
async fn a_yes_is_on_disk_and_in_force_when_whoever_asked_hears_of_it() {
    let bench = Bench::new(1).await;
    let consents = bench.start();
    *lock(&bench.sender.agrees) = true;
    bench.sender.lets.add_permits(1);
    consents.ask(DST).await.unwrap();
    assert_eq!(consents.asking(&[DST]), [None]);
    assert!(!bench.office.catalog.destination(DST).unwrap().awaits_consent());
    let stored = bench.store.destinations(None, 9).await.unwrap();
    assert_eq!(stored[0].destination.consent.as_ref().map(|consent| &*consent.origin), Some("hooks.example"));

    let changed = bench.office.catalog.put_destination(destination(DST, 2));
    assert!(changed.consent.is_some(), "a change that was made without knowing of it leaves it alone");
    consents.ask(DST).await.unwrap();
    assert_eq!(bench.sender.lets.available_permits(), 0, "who has agreed is not asked");
}

#[tokio::test]
async fn a_late_yes_of_the_old_url_is_not_put_on_record() {
    let bench = Bench::new(1).await;
    let consents = bench.start();
    *lock(&bench.sender.agrees) = true;
    bench.until_asked(1).await;
    let mut moved = destination(DST, 2);
    moved.settings.url.push_str("/new");
    bench.office.catalog.put_destination(moved);
    consents.look(DST).await;
    bench.until_asked(2).await;
    bench.sender.lets.add_permits(1);
    while bench.sender.at_once.load(Ordering::SeqCst) > 1 {
        tokio::task::yield_now().await;
    }
    // The new one says no, and is heard after the old one's yes.
    *lock(&bench.sender.agrees) = false;
    bench.sender.lets.add_permits(9);
    consents.ask(DST).await.unwrap();
    let stored = bench.store.destinations(None, 9).await.unwrap();
    assert_eq!(stored[0].destination.consent, None);
    assert_eq!(bench.office.catalog.destination(DST).unwrap().consent, None);
}

#[tokio::test]
async fn who_is_gone_or_need_not_agree_any_more_is_forgotten() {
    let bench = Bench::new(1).await;
    let consents = bench.start();
    let waits = tokio::spawn({
        let consents = consents.clone();
        async move { consents.ask(DST).await }
    });
    bench.until_asked(1).await;
    let mut changed = destination(DST, 2);
    changed.settings.verification = Verification::None;
    bench.office.catalog.put_destination(changed);
    consents.look(DST).await;
    waits.await.unwrap().unwrap();
    assert_eq!(consents.asking(&[DST]), [None]);
}
