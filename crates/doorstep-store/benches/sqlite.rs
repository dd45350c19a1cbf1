//! What a batch costs on this disk: `cargo bench -p doorstep-store --bench sqlite [-- DIRECTORY]`.
//!
//! Every batch is synced, with payloads as they come and encrypted. Events are 1 KiB with one delivery each, to 100 destinations in turn; a settlement brings its attempt.

#![expect(clippy::print_stdout, reason = "it is a report")]

use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use doorstep_core::delivery::{BehindDead, Delivery, Track};
use doorstep_core::event::NewEvent;
use doorstep_core::id::DestinationId;
use doorstep_core::retry::Decision;
use doorstep_core::store::{DueQuery, Store, Write, Written};
use doorstep_store::conformance::ask;
use doorstep_store::conformance::samples::{NOW, event, new_delivery, put, settle};
use doorstep_store::seal::{Keyring, MasterKey};
use doorstep_store::sqlite::{SqliteLimits, SqliteStore};

const DESTINATIONS: u128 = 100;
const FOR_EACH: Duration = Duration::from_millis(1_500);

fn main() {
    let given = std::env::args().nth(1).filter(|arg| !arg.starts_with("--"));
    let directory = given.map_or_else(tempfile::tempdir, tempfile::tempdir_in).expect("a directory");
    // Both ways right after each other, and each goes first in turn: whatever else the machine does meets both.
    let mut figures = [[[0.0; KINDS.len()]; SIZES.len()]; 2];
    for (nth, size) in SIZES.into_iter().enumerate() {
        for seals in if nth % 2 == 0 { [false, true] } else { [true, false] } {
            figures[usize::from(seals)][nth] = measure(&directory.path().join(seals.to_string()), size, seals);
        }
    }
    println!("rows per second, synced, in batches of {SIZES:?}");
    for (kind, what) in KINDS.into_iter().enumerate() {
        for (how, figures) in ["as they come", "encrypted"].into_iter().zip(&figures) {
            let cells: Vec<String> = figures.iter().map(|figures| format!("{:>8.0}", figures[kind])).collect();
            println!("{what:<28} payloads {how:<12} {}", cells.join(" "));
        }
    }
    println!(
        "Settling encrypts what was captured of attempts. Reading what is due touches no payload: by how much it differs is noise."
    );
}

const SIZES: [usize; 4] = [1, 10, 100, 1_000];
const KINDS: [&str; 4] =
    ["accept, one delivery each", "read what is due, in pages", "read events, in pages", "settle as delivered"];

/// Rows per second: accepted, read, their events read, settled.
fn measure(directory: &Path, size: usize, seals: bool) -> [f64; 4] {
    let directory = directory.join(size.to_string());
    let keys = Keyring::new(MasterKey::new(&[7; 32])).sealing_payloads(seals);
    let store = SqliteStore::open(&directory, keys, &SqliteLimits::default()).expect("it opens");
    ask(store.write((0..DESTINATIONS).map(|n| put(DestinationId(n))).collect(), NOW));
    let mut n = 0u128;
    let mut made: Vec<Delivery> = Vec::new();
    let mut spent = Duration::ZERO;
    while spent < FOR_EACH {
        let batch: Vec<Write> = (0..size).map(|_| accept(&mut n)).collect();
        let began = Instant::now();
        let written = ask(store.write(batch, NOW));
        spent += began.elapsed();
        made.extend(written.into_iter().flat_map(|written| match written {
            Written::Accepted { available, .. } => available,
            other => panic!("{other:?}"),
        }));
    }
    let accepted = rate(made.len(), spent);
    let read = read(&store, size);
    let events = read_events(&store, made.len(), size);
    let mut spent = Duration::ZERO;
    let mut n_settled = 0;
    for some in made.chunks(size) {
        let batch = some.iter().map(|d| settle(d, Decision::Delivered, BehindDead::Skip, NOW)).collect();
        let began = Instant::now();
        ask(store.write(batch, NOW));
        spent += began.elapsed();
        n_settled += some.len();
        if spent > FOR_EACH {
            break;
        }
    }
    [accepted, read, events, rate(n_settled, spent)]
}

fn accept(n: &mut u128) -> Write {
    *n += 1;
    let mut event = event(&format!("evt_{n:026}"), None, NOW);
    event.payload = Bytes::from(vec![b'x'; 1_024]);
    event.headers = Vec::new();
    let deliveries = vec![new_delivery(*n, DestinationId(*n % DESTINATIONS))];
    Write::Accept(Box::new(NewEvent { event, key: None, deliveries }))
}

/// Page by page through all destinations, as the engine refills its lanes.
fn read(store: &SqliteStore, size: usize) -> f64 {
    let began = Instant::now();
    let mut n_read = 0;
    let mut queries: Vec<DueQuery> = (0..DESTINATIONS)
        .map(|n| DueQuery { destination_id: DestinationId(n), track: Track::First, after: None, limit: size })
        .collect();
    while !queries.is_empty() && began.elapsed() < FOR_EACH {
        let pages = ask(store.due(queries.clone()));
        for (query, page) in queries.iter_mut().zip(&pages) {
            n_read += page.deliveries.len();
            query.after = page.deliveries.last().map(Delivery::place).or(query.after);
        }
        queries = queries.into_iter().zip(pages).filter(|(_, page)| !page.exhausted).map(|(query, _)| query).collect();
    }
    rate(n_read, began.elapsed())
}

/// As the engine reads what it has not kept in memory.
fn read_events(store: &SqliteStore, n_all: usize, size: usize) -> f64 {
    let began = Instant::now();
    let mut n_read = 0;
    while n_read < n_all && began.elapsed() < FOR_EACH {
        let seqs: Vec<u64> = (n_read..n_all.min(n_read + size)).map(|n| n as u64 + 1).collect();
        let found = ask(store.events(seqs));
        assert!(found.iter().all(|event| event.readable().is_some()));
        n_read += found.len();
    }
    rate(n_read, began.elapsed())
}

fn rate(n: usize, spent: Duration) -> f64 {
    n as f64 / spent.as_secs_f64()
}
