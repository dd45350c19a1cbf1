//! The receivers that senders are judged on: drawn at random from families, or named.

use doorstep_core::dice::SeededDice;
use doorstep_core::time::{Millis, Timestamp};

use crate::arena::Ways;
use crate::limiter::Kind;
use crate::roll::Roll;

/// A receiver, and how Doorstep is set up for it.
#[derive(Clone, Debug)]
pub struct Target {
    pub seed: u64,
    /// Which chances it has while it runs: the same receiver can be played again with others.
    pub luck: u64,
    pub family: Family,
    pub name: String,
    pub limit: Limit,
    pub course: Course,
    /// What it refuses with: 429 or 503.
    pub status: u16,
    pub says: Says,
    /// Whether its answers say what is left of the limit (`RateLimit`).
    pub advertises: bool,
    /// So many requests in a thousand are refused whatever the load.
    pub noise_per_mille: u64,
    /// How long it works on a request that it admits.
    pub service: (Millis, Millis),
    pub ways: Ways,
    /// Destinations at this receiver, which share its limit.
    pub destinations: usize,
    pub backlog: Backlog,
    /// The cap on requests at once that is configured for each destination.
    pub concurrency: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    FixedWindow,
    SlidingWindow,
    TokenBucket,
    LeakyBucket,
    Concurrency,
    SharedHost,
    Steps,
    Drift,
    Hourly,
    Overload,
    Noise,
}

impl Family {
    pub const ALL: [Self; 11] = [
        Self::FixedWindow,
        Self::SlidingWindow,
        Self::TokenBucket,
        Self::LeakyBucket,
        Self::Concurrency,
        Self::SharedHost,
        Self::Steps,
        Self::Drift,
        Self::Hourly,
        Self::Overload,
        Self::Noise,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::FixedWindow => "fixed window",
            Self::SlidingWindow => "sliding window",
            Self::TokenBucket => "token bucket",
            Self::LeakyBucket => "leaky bucket",
            Self::Concurrency => "concurrency",
            Self::SharedHost => "shared host",
            Self::Steps => "steps",
            Self::Drift => "drift",
            Self::Hourly => "hourly",
            Self::Overload => "overload",
            Self::Noise => "noise",
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub enum Limit {
    /// So many per window, of the three usual kinds.
    Counted { kind: Kind, capacity: u64, window: Millis },
    /// One each `interval` microseconds, and a queue in front of it.
    Queue { interval: u64, depth: u64 },
    /// So many at once.
    AtOnce(u64),
    /// Never refuses, but takes longer the more it has at once: `service · (1 + (n / knee)^power)`. With a power of 1 its
    /// throughput levels off beyond the knee, with 2 it falls.
    Overload { knee: u64, power: u32 },
}

/// How a limit changes over time, as a factor.
#[derive(Clone, Debug)]
pub enum Course {
    Constant,
    /// From each of these times on, this factor; 1 before the first.
    Steps(Vec<(Millis, f64)>),
    /// From 1 to this factor, evenly over an hour, and no further.
    Drift {
        to: f64,
    },
    /// Down to `low` and up to 1 again, evenly, by the clock.
    Cycle {
        period: Millis,
        low: f64,
    },
}

/// What a refusal says about when to come back.
#[derive(Clone, Copy, Debug)]
pub enum Says {
    Exact,
    /// So many times too long.
    TooLong(u64),
    /// Half of it, rounded down.
    TooShort,
    /// The same number of seconds each time.
    Always(u64),
    Nothing,
    Garbage(&'static str),
}

/// How deliveries come.
#[derive(Clone, Copy, Debug)]
pub enum Backlog {
    /// There is always another one.
    Endless,
    /// So many at a time, at each of these intervals.
    Arrivals { batch: u64, every: Millis },
}

pub const START: Timestamp = Timestamp(1_700_000_012_345);

const DAY_MS: u64 = 86_400_000;
/// Bounds of what is drawn, in thousandths of a request per second. The upper one keeps an hour of virtual time affordable.
const RATE_MIN: u64 = 100;
const RATE_MAX: u64 = 200_000;
/// Quotas are advertised in whole seconds: nobody does so for a shorter window.
const ADVERTISED_MIN: Millis = Millis::from_secs(5);
/// However long the window.
const CAPACITY_MAX: u64 = 100_000;

impl Target {
    /// The receiver of this seed.
    pub fn random(seed: u64) -> Self {
        let mut dice = SeededDice::new(seed);
        let family = dice.pick(&Family::ALL);
        Self::of_family(family, seed, &mut dice)
    }

    pub fn of_family(family: Family, seed: u64, dice: &mut SeededDice) -> Self {
        let mut service = (Millis(1), Millis(1 + dice.below(50)));
        if dice.percent(20) {
            let slow = spread(dice, 100, 4_000);
            service = (Millis(slow / 2), Millis(slow * 3 / 2));
        }
        let rtt = spread(dice, 1, 500);
        let concurrency = dice.pick(&[10, 10, 20, 50, 100]);
        let limit = match family {
            Family::FixedWindow => counted(Kind::FixedWindow, spread(dice, 300, DAY_MS), dice),
            Family::SlidingWindow => counted(Kind::SlidingWindow, spread(dice, 300, DAY_MS), dice),
            Family::TokenBucket => bucket(dice),
            Family::LeakyBucket => queue(dice),
            Family::Concurrency => {
                let at_once = 1 + dice.below(30);
                // Not more than the fastest rate.
                let least = at_once * 1_000_000 / RATE_MAX;
                let millis = spread(dice, least.max(20), least.max(20) * 40);
                service = (Millis(millis / 2), Millis(millis * 3 / 2));
                Limit::AtOnce(at_once)
            }
            Family::Overload => {
                let knee = 1 + dice.below(20);
                let least = knee * 500_000 / RATE_MAX;
                let millis = spread(dice, least.max(10), least.max(10) * 20);
                service = (Millis(millis * 3 / 4), Millis(millis * 5 / 4));
                Limit::Overload { knee, power: dice.pick(&[1, 2, 2]) }
            }
            Family::Steps | Family::Drift | Family::Hourly | Family::SharedHost | Family::Noise => {
                match dice.below(4) {
                    0 => counted(Kind::FixedWindow, spread(dice, 300, 60_000), dice),
                    1 => counted(Kind::SlidingWindow, spread(dice, 300, 60_000), dice),
                    2 => bucket(dice),
                    _ => queue(dice),
                }
            }
        };
        let course = match family {
            Family::Steps => steps(dice),
            Family::Drift => Course::Drift { to: factor(dice) },
            Family::Hourly => {
                let period = Millis(spread(dice, 1_200_000, DAY_MS));
                Course::Cycle { period, low: 0.1 + 0.1 * dice.below(6) as f64 }
            }
            _ => Course::Constant,
        };
        let destinations = if family == Family::SharedHost { 2 + small(dice.below(5)) } else { 1 };
        let refuses = !matches!(limit, Limit::Overload { .. });
        let noisy = family == Family::Noise || dice.percent(15);
        let mut target = Self {
            seed,
            luck: 0,
            family,
            name: String::new(),
            limit,
            course,
            status: if refuses && dice.percent(25) { 503 } else { 429 },
            says: says(dice),
            advertises: false,
            noise_per_mille: if noisy && refuses { 1 + dice.below(100) } else { 0 },
            service,
            ways: ways(rtt),
            destinations,
            backlog: Backlog::Endless,
            concurrency,
        };
        if dice.percent(25) {
            target.backlog = arrivals(&target, dice);
        }
        let can_advertise = matches!(target.limit, Limit::Counted { window, .. } if window >= ADVERTISED_MIN);
        target.advertises = can_advertise && dice.one_in(8);
        target.name = target.describe();
        target
    }

    /// The receivers of the table that this judge was built for.
    pub fn named() -> Vec<Self> {
        let limit = |kind, capacity, window| Limit::Counted { kind, capacity, window: Millis(window) };
        let per_second = |n| limit(Kind::SlidingWindow, n, 1_000);
        let from = |secs, factor| (Millis::from_secs(secs), factor);
        let cycle = (0..90).map(|n| from(n * 40, [1.0, 0.25, 2.0][small(n % 3)])).collect();
        let base = |n: u64, name: &str, family, limit| Self {
            seed: n,
            luck: 0,
            family,
            name: name.to_owned(),
            limit,
            course: Course::Constant,
            status: 429,
            says: Says::Nothing,
            advertises: false,
            noise_per_mille: 0,
            service: (Millis(5), Millis(15)),
            ways: ways(10),
            destinations: 1,
            backlog: Backlog::Endless,
            concurrency: 10,
        };
        let tenth = (Millis(50), Millis(150));
        vec![
            Self { service: tenth, ..base(1, "429 above 3 at once, silent", Family::Concurrency, Limit::AtOnce(3)) },
            Self {
                service: tenth,
                says: Says::Always(1),
                ..base(2, "429 above 3 at once, `Retry-After: 1`", Family::Concurrency, Limit::AtOnce(3))
            },
            base(3, "sliding log 7 per 1.7 s, silent", Family::SlidingWindow, limit(Kind::SlidingWindow, 7, 1_700)),
            Self {
                says: Says::Always(1),
                ..base(
                    4,
                    "token bucket 5/s, burst 2, `Retry-After: 1`",
                    Family::TokenBucket,
                    limit(Kind::TokenBucket, 2, 400),
                )
            },
            Self {
                course: Course::Steps(cycle),
                says: Says::Exact,
                ..base(5, "limit changes 20 → 5 → 40/s every 40 s", Family::Steps, per_second(20))
            },
            Self {
                course: Course::Steps(vec![from(600, 0.25), from(630, 1.0)]),
                says: Says::Exact,
                ..base(6, "one dip of 30 s, 20 → 5 → 20/s", Family::Steps, per_second(20))
            },
            Self {
                says: Says::Always(60),
                ..base(7, "10/s, but `Retry-After: 60` each time", Family::SlidingWindow, per_second(10))
            },
            Self {
                status: 503,
                says: Says::Exact,
                ..base(8, "503 + Retry-After above 10/s", Family::SlidingWindow, per_second(10))
            },
            Self {
                service: (Millis(40), Millis(60)),
                concurrency: 100,
                ..base(9, "latency grows with load, cap 100", Family::Overload, Limit::Overload { knee: 10, power: 2 })
            },
            Self {
                destinations: 4,
                says: Says::Exact,
                ..base(10, "four destinations share 20/s at one host", Family::SharedHost, per_second(20))
            },
            Self {
                noise_per_mille: 10,
                says: Says::Always(1),
                ..base(11, "1 % refused at random, 10/s, `Retry-After: 1`", Family::Noise, per_second(10))
            },
            Self {
                noise_per_mille: 50,
                says: Says::Always(1),
                concurrency: 50,
                ..base(12, "5 % refused at random, 50/s, `Retry-After: 1`", Family::Noise, per_second(50))
            },
            Self {
                advertises: true,
                ..base(
                    13,
                    "100 per minute, silent, says `RateLimit`",
                    Family::FixedWindow,
                    limit(Kind::FixedWindow, 100, 60_000),
                )
            },
        ]
    }

    /// Whether its refusals leave the sender to the throttle windows, which grow to hours (G4).
    pub fn is_silent(&self) -> bool {
        self.status == 429 && matches!(self.says, Says::Nothing | Says::Garbage(_))
    }

    /// How long what was sent before still counts against the limit.
    pub fn memory(&self) -> Millis {
        match self.limit {
            Limit::Counted { window, .. } => window,
            Limit::Queue { interval, depth } => Millis(interval * depth / 1_000),
            Limit::AtOnce(_) | Limit::Overload { .. } => Millis::ZERO,
        }
    }

    fn describe(&self) -> String {
        let limit = match self.limit {
            Limit::Counted { kind, capacity, window } => format!("{}, {capacity} per {window}", kind.name()),
            Limit::Queue { interval, depth } => {
                format!("leaky bucket, one each {:.1} ms, {depth} may wait", interval as f64 / 1_000.0)
            }
            Limit::AtOnce(n) => format!("{n} at once"),
            Limit::Overload { knee, power } => format!("slower above {knee} at once, power {power}"),
        };
        let course = match &self.course {
            Course::Constant => String::new(),
            Course::Steps(steps) => {
                let steps: Vec<_> = steps.iter().map(|(at, factor)| format!("×{factor:.2} at {at}")).collect();
                format!(", {}", steps.join(", "))
            }
            Course::Drift { to } => format!(", drifts to ×{to:.2}"),
            Course::Cycle { period, low } => format!(", down to ×{low:.1} and back each {period}"),
        };
        let says = match (&self.limit, self.says) {
            (Limit::Overload { .. }, _) => String::new(),
            (_, says) => format!(", {} with Retry-After {}", self.status, says.describe()),
        };
        let advertised = if self.advertises { ", says what is left" } else { "" };
        let noise = match self.noise_per_mille {
            0 => String::new(),
            n => format!(", {:.1} % refused at random", n as f64 / 10.0),
        };
        let shared =
            if self.destinations > 1 { format!(", {} destinations", self.destinations) } else { String::new() };
        let backlog = match self.backlog {
            Backlog::Endless => String::new(),
            Backlog::Arrivals { batch, every } => format!(", {batch} new each {every}"),
        };
        let rtt = self.ways.there.0 + self.ways.there.1 + self.ways.back.0 + self.ways.back.1;
        format!(
            "{limit}{course}{says}{advertised}{noise}{shared}{backlog}, answers in {} to {}, RTT about {}, cap {}",
            self.service.0,
            self.service.1,
            Millis(rtt.0 / 2),
            self.concurrency
        )
    }
}

impl Course {
    /// The factor that is in force so long after the start.
    pub fn factor(&self, at: Millis) -> f64 {
        match self {
            Self::Constant => 1.0,
            Self::Steps(steps) => steps.iter().rev().find(|(from, _)| *from <= at).map_or(1.0, |(_, factor)| *factor),
            Self::Drift { to } => {
                let share = at.0.min(3_600_000) as f64 / 3_600_000.0;
                1.0 + (to - 1.0) * share
            }
            Self::Cycle { period, low } => {
                let clock = START + at;
                let period = i64::try_from(period.0).unwrap_or(i64::MAX).max(1);
                let phase = clock.0.rem_euclid(period) as f64 / period as f64;
                low + (1.0 - low) * (2.0 * phase - 1.0).abs()
            }
        }
    }
}

impl Says {
    /// The value of `Retry-After`, for a receiver that knows how long it will be.
    pub fn header(self, wait: Millis) -> Option<String> {
        let exact = wait.0.div_ceil(1_000).max(1);
        match self {
            Self::Exact => Some(exact.to_string()),
            Self::TooLong(times) => Some((exact * times).to_string()),
            Self::TooShort => Some((wait.0 / 2_000).to_string()),
            Self::Always(secs) => Some(secs.to_string()),
            Self::Nothing => None,
            Self::Garbage(text) => Some(text.to_owned()),
        }
    }

    fn describe(self) -> String {
        match self {
            Self::Exact => "exact".to_owned(),
            Self::TooLong(times) => format!("{times} times too long"),
            Self::TooShort => "too short".to_owned(),
            Self::Always(secs) => format!("{secs}"),
            Self::Nothing => "absent".to_owned(),
            Self::Garbage(text) => format!("\"{text}\""),
        }
    }
}

/// Between `least` and `most`, each doubling as likely as the next. Whole numbers only: the same on every machine.
fn spread(dice: &mut SeededDice, least: u64, most: u64) -> u64 {
    let octaves = u64::from((most / least.max(1)).max(1).ilog2()) + 1;
    loop {
        let low = least.max(1) << dice.below(octaves);
        let drawn = low + dice.below(low);
        if drawn <= most {
            return drawn;
        }
    }
}

fn small(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

fn counted(kind: Kind, window: u64, dice: &mut SeededDice) -> Limit {
    let capacity = (spread(dice, RATE_MIN, RATE_MAX) * window / 1_000_000).clamp(1, CAPACITY_MAX);
    // A single request that fits into a very short window must not be more than the fastest rate.
    let window = window.max(capacity * 1_000_000 / RATE_MAX);
    Limit::Counted { kind, capacity, window: Millis(window) }
}

fn bucket(dice: &mut SeededDice) -> Limit {
    let (rate, burst) = (spread(dice, RATE_MIN, RATE_MAX), spread(dice, 1, 500));
    Limit::Counted { kind: Kind::TokenBucket, capacity: burst, window: Millis((burst * 1_000_000 / rate).max(1)) }
}

fn queue(dice: &mut SeededDice) -> Limit {
    let interval = 1_000_000_000 / spread(dice, RATE_MIN, RATE_MAX);
    let depth_max = (5_000_000 / interval).clamp(1, 50);
    Limit::Queue { interval, depth: dice.below(depth_max + 1) }
}

/// Up or down, by a factor of up to eight.
fn factor(dice: &mut SeededDice) -> f64 {
    let times = spread(dice, 120, 800) as f64 / 100.0;
    if dice.one_in(2) { times } else { 1.0 / times }
}

/// One to four changes, at least six minutes apart.
fn steps(dice: &mut SeededDice) -> Course {
    let n = 1 + dice.below(4);
    let mut at = Millis::from_mins(6);
    let mut steps = Vec::new();
    for _ in 0..n {
        at = at + Millis::from_secs(dice.below(360));
        steps.push((at, factor(dice)));
        at = at + Millis::from_mins(6);
    }
    Course::Steps(steps)
}

fn says(dice: &mut SeededDice) -> Says {
    match dice.below(6) {
        0 | 1 => Says::Exact,
        2 => Says::TooLong(2 + dice.below(30)),
        3 => Says::TooShort,
        4 => Says::Nothing,
        _ => Says::Garbage(dice.pick(&["soon", "-5", "Thu, 01 Jan 1970 00:00:00 GMT", "{}"])),
    }
}

/// Between 30 and 120 % of what the receiver can take, evenly or in bursts.
fn arrivals(target: &Target, dice: &mut SeededDice) -> Backlog {
    let millis_each = match target.limit {
        Limit::Counted { capacity, window, .. } => window.0 as f64 / capacity as f64,
        Limit::Queue { interval, .. } => interval as f64 / 1_000.0,
        Limit::AtOnce(n) => target.service.1.0 as f64 / n as f64,
        Limit::Overload { knee, .. } => 2.0 * target.service.1.0 as f64 / knee as f64,
    };
    let share = 0.3 + dice.below(90) as f64 / 100.0;
    let batch = if dice.one_in(2) { 1 } else { spread(dice, 2, 500) };
    // The destinations of a shared host split it.
    let every = millis_each / share * batch as f64 * target.destinations as f64;
    Backlog::Arrivals { batch, every: Millis((every as u64).max(1)) }
}

/// Ways that take half of the round trip each, give or take a quarter.
fn ways(rtt: u64) -> Ways {
    let (there, back) = (rtt / 2, rtt - rtt / 2);
    let around = |way: u64| (Millis(way - way / 4), Millis(way + way / 4));
    Ways { there: around(there), back: around(back) }
}
