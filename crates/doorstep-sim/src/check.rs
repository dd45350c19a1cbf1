//! Many worlds, each from its seed, and what became of them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use doorstep_core::time::Millis;

use crate::fairness;
use crate::scenario::Scenario;
use crate::world::{Failure, Report, World};

/// Equal tenants are served at least this evenly.
pub const JAIN_MIN: f64 = 0.95;
/// One seed in so many is also a trial of fairness.
const FAIRNESS_EVERY: u64 = 8;

#[derive(Clone, Debug, Default)]
pub struct Totals {
    pub worlds: u64,
    pub deliveries: u64,
    pub voided: u64,
    pub set_aside: u64,
    pub commands: u64,
    pub lasted: Millis,
    pub failures: Vec<Failure>,
}

/// One world from its seed.
pub fn check(seed: u64, traced: bool) -> Result<Report, Box<Failure>> {
    let failed = |promise: String| Box::new(Failure { seed, promise, trace: Vec::new() });
    let world = || World::new(Scenario::random(seed), seed, traced).run(seed);
    let report = catch_unwind(AssertUnwindSafe(world)).unwrap_or_else(|panic| {
        let words = panic.downcast_ref::<String>().cloned();
        let words = words.or_else(|| panic.downcast_ref::<&str>().map(|words| (*words).to_owned()));
        Err(failed(format!("it panicked: {}", words.unwrap_or_default())))
    })?;
    // That takes twice as long as a world.
    if seed.is_multiple_of(FAIRNESS_EVERY) {
        let jain = fairness::jain_index(seed);
        if jain < JAIN_MIN {
            return Err(failed(format!("tenants of equal weight are served unevenly: Jain's index is {jain:.3}")));
        }
    }
    Ok(report)
}

/// The worlds of these seeds, on all cores. Stops after `failures_max` failures; `progress` is called after each.
pub fn check_all(seeds: std::ops::Range<u64>, failures_max: usize, progress: impl Fn(u64) + Sync) -> Totals {
    let next = AtomicU64::new(seeds.start);
    let totals = Mutex::new(Totals::default());
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    let result = check(seed, false);
                    let mut totals = totals.lock().expect("no worker panics while it counts");
                    if totals.failures.len() >= failures_max {
                        return;
                    }
                    totals.add(result);
                    progress(totals.worlds);
                }
            });
        }
    });
    let mut totals = totals.into_inner().expect("no worker panics while it counts");
    totals.failures.sort_by_key(|failure| failure.seed);
    totals
}

impl Totals {
    fn add(&mut self, result: Result<Report, Box<Failure>>) {
        self.worlds += 1;
        match result {
            Ok(report) => {
                self.deliveries += report.deliveries as u64;
                self.voided += report.voided as u64;
                self.set_aside += report.set_aside as u64;
                self.commands += report.commands;
                self.lasted = self.lasted + report.lasted;
            }
            Err(failure) => self.failures.push(*failure),
        }
    }
}
