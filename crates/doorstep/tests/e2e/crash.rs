//! `kill -9` under load, again and again (D1, C3).

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use doorstep_core::dice::{Dice, SeededDice};
use doorstep_core::time::Millis;
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::support::{Client, Home, Listener, PATIENCE, Server, text, until};

const ROUNDS: usize = 20;
const PATHS: [&str; 2] = ["/a", "/b"];
const CONCURRENCY: usize = 10;

/// What a producer was told is safe, and in which round.
type Ledger = Mutex<BTreeMap<String, usize>>;

/// Posts events, one by one or many at once, until the server is gone.
fn produce(mut client: Client, tenant: &str, name: &str, round: usize, ledger: &Ledger, stop: &AtomicBool) {
    // About as much as can be delivered meanwhile: what piles up only makes the end longer.
    let (batch, pause) = if name == "p0" { (10, Duration::from_millis(20)) } else { (1, Duration::from_millis(2)) };
    for n in 0.. {
        if stop.load(Ordering::SeqCst) {
            return;
        }
        let ids: Vec<String> = (0..batch).map(|at| format!("r{round}-{name}-{n}-{at}")).collect();
        let event = |id: &String| json!({"tenant_id": tenant, "id": id, "type": "load", "payload": {"id": id}});
        let (path, body, status) = match &ids[..] {
            [one] => ("/v1/events", event(one), 202),
            many => ("/v1/events/batch", json!({"events": many.iter().map(event).collect::<Vec<Value>>()}), 200),
        };
        let Ok(answer) = client.ask("POST", path, &[], body.to_string().as_bytes()) else { return };
        let said = answer.expect(status);
        let results = said["results"].as_array().cloned().unwrap_or_else(|| vec![said]);
        assert_eq!(results.len(), ids.len());
        let mut ledger = ledger.lock().unwrap();
        for (id, result) in ids.into_iter().zip(results) {
            assert_eq!((&result["id"], &result["deliveries"]), (&json!(id), &json!(PATHS.len())));
            ledger.insert(id, round);
        }
        drop(ledger);
        thread::sleep(pause);
    }
}

#[test]
fn whatever_was_acknowledged_arrives_although_the_process_is_killed_again_and_again() {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let seed = std::env::var("E2E_SEED").map_or(u64::from(now.subsec_nanos()), |seed| seed.parse().unwrap());
    println!("E2E_SEED={seed}");
    let mut dice = SeededDice::new(seed);
    let home = Home::new();
    let listener = Listener::start(&["--threads", "1"]);
    let mut server = Server::start(&home);
    let mut client = server.client();
    let tenant = client.tenant();
    for path in PATHS {
        client.destination(&tenant, &listener.url(path), json!({"concurrency": CONCURRENCY}));
    }
    let ledger = Ledger::default();
    let mut ready_at = vec![OffsetDateTime::now_utc()];
    for round in 0..ROUNDS {
        let stop = AtomicBool::new(false);
        let address = server.address;
        server = thread::scope(|scope| {
            for name in ["p0", "p1", "p2"] {
                let (tenant, ledger, stop) = (&tenant, &ledger, &stop);
                scope.spawn(move || produce(Client::new(address), tenant, name, round, ledger, stop));
            }
            let Millis(ms) = dice.roll().between(Millis(50), Millis(500));
            thread::sleep(Duration::from_millis(ms));
            server.kill();
            stop.store(true, Ordering::SeqCst);
            Server::start(&home)
        });
        ready_at.push(OffsetDateTime::now_utc());
    }

    let ledger = ledger.into_inner().unwrap();
    let (mut seen, mut arrived) = (0, BTreeMap::<(String, String), Vec<Value>>::new());
    let end = Instant::now() + PATIENCE;
    let missing = loop {
        let new = listener.records.after(seen);
        seen += new.len();
        for record in new {
            let key = (text(&record, "event_id"), text(&record, "path"));
            arrived.entry(key).or_default().push(record["at"].clone());
        }
        let keys = ledger.keys().flat_map(|id| PATHS.map(|path| (id.clone(), path.to_owned())));
        let missing: Vec<_> = keys.filter(|key| !arrived.contains_key(key)).collect();
        if missing.is_empty() || Instant::now() > end {
            break missing;
        }
        thread::sleep(Duration::from_millis(100));
    };
    if let Some((id, path)) = missing.first() {
        let mut client = server.client();
        let gates = client.read("/v1/destinations");
        let told = client.get(&format!("/v1/events/{id}")).text();
        let (n, all) = (missing.len(), ledger.len());
        panic!("{n} of {all} x {} did not arrive, like {id} at {path}: {told}\n{gates:#}", PATHS.len());
    }
    let mut client = server.client();
    until("an empty queue", || {
        let mut n = |status| client.read(&format!("/v1/deliveries?status={status}"))["data"].as_array().unwrap().len();
        (n("queued") + n("retry_scheduled") == 0).then_some(())
    });

    let mut last = OffsetDateTime::UNIX_EPOCH;
    let mut longest = time::Duration::ZERO;
    for (id, round) in &ledger {
        for path in PATHS {
            let first = arrived[&(id.clone(), path.to_owned())][0].as_str().unwrap().to_owned();
            let first = OffsetDateTime::parse(&first, &Rfc3339).unwrap();
            last = last.max(first);
            longest = longest.max(first - ready_at[round + 1]);
        }
    }
    let twice: usize = arrived.values().map(|times| times.len() - 1).sum();
    println!(
        "{} events acknowledged in {ROUNDS} rounds, {seen} requests, {twice} of them again; \
         the last of a round came {longest} after the next start was ready",
        ledger.len()
    );
    assert!(ledger.len() > ROUNDS, "{} events are no load", ledger.len());
    assert!(twice <= ROUNDS * PATHS.len() * CONCURRENCY, "{twice} came again, more than can have been in flight");
}
