//! What a batch costs on this disk: `cargo bench -p doorstep-store --bench sqlite [-- DIRECTORY]`.
//!
//! Every batch is synced. Events are 1 KiB with one delivery each, to 100 destinations in turn; a settlement brings its attempt.

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
    println!("rows per second, synced, in batches of  1  10  100  1000");
    let accepted = [1, 10, 100, 1_000].map(|size| measure(directory.path(), size));
    for (what, nth) in [("accept, one delivery each", 0), ("read what is due, in pages", 1), ("settle as delivered", 2)]
    {
        let figures = accepted.map(|figures| format!("{:>8.0}", figures[nth]));
        println!("{what:<28} {}", figures.join(" "));
    }
}

/// Rows per second: accepted, read, settled.
fn measure(directory: &Path, size: usize) -> [f64; 3] {
    let directory = directory.join(size.to_string());
    let keys = Keyring::new(MasterKey::new(&[7; 32]));
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
    [accepted, read, rate(n_settled, spent)]
}

fn accept(n: &mut u128) -> Write {
    *n += 1;
    let mut event = event(&format!("evt_{n:026}"), None, NOW);
    event.payload = Bytes::from(vec![b'x'; 1_024]);
    event.headers = Vec::new();
    let deliveries = vec![new_delivery(*n, DestinationId(*n % DESTINATIONS))];
    Write::Accept(Box::new(NewEvent { event, deliveries }))
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

fn rate(n: usize, spent: Duration) -> f64 {
    n as f64 / spent.as_secs_f64()
}
