//! What is measured, part by part.

mod backlog;
mod deliver;
mod idle;
mod ingest;
mod mix;
mod restart;

use std::fmt;
use std::time::Duration;

use clap::ValueEnum;

use super::children::{Engine, load};
use super::load::{Pace, Plan, Report, Route, Shape};
use super::receiver::Group;
use super::table::Row;
use super::{Bench, say};

/// Requests at once where the ceiling and ingest are measured.
const CONNECTIONS: usize = 64;
/// Where the whole way is: producers wait for the disk, and enough of them have to be left over to keep the engine busy.
/// An open load needs a free connection whenever a request is due.
const PRODUCERS: usize = 256;
/// Events in a batch, and batches at once.
const BATCH: usize = 100;
const BATCHES_AT_ONCE: usize = 8;
/// Deliveries that do not come for so long do not come.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Part {
    Raw,
    Ingest,
    Deliver,
    Latency,
    Fanout,
    Mix,
    Backlog,
    Restart,
    Idle,
}

impl Part {
    pub(super) const ALL: [Self; 9] = [
        Self::Raw,
        Self::Ingest,
        Self::Deliver,
        Self::Latency,
        Self::Fanout,
        Self::Mix,
        Self::Backlog,
        Self::Restart,
        Self::Idle,
    ];

    pub(super) fn about(self) -> &'static str {
        match self {
            Self::Raw => "the load straight to the receiver",
            Self::Ingest => "events that nobody subscribed to, on disk",
            Self::Deliver => "from the producer to the receiver, as fast as it goes",
            Self::Latency => "from the producer to the receiver, at steady loads",
            Self::Fanout => "one event to ten destinations",
            Self::Mix => "healthy destinations among sick ones",
            Self::Backlog => "many deliveries that wait, and their way out",
            Self::Restart => "killed under load and started again",
            Self::Idle => "a thousand destinations and nothing to do",
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_possible_value().map_or(Ok(()), |value| f.write_str(value.get_name()))
    }
}

impl Bench {
    pub(super) async fn measure(&mut self, part: Part) -> anyhow::Result<()> {
        match part {
            Part::Raw => {
                self.row(Row::new("raw ceiling: load straight to the receiver", self.raw, "/s").of_raw(self.raw));
                Ok(())
            }
            Part::Ingest => self.ingest().await,
            Part::Deliver => self.deliver().await,
            Part::Latency => self.latency().await,
            Part::Fanout => self.fanout().await,
            Part::Mix => self.mix().await,
            Part::Backlog => self.backlog().await,
            Part::Restart => self.restart().await,
            Part::Idle => self.idle().await,
        }
    }

    /// Requests a second of the load straight to the receiver.
    pub(super) async fn raw_ceiling(&mut self) -> anyhow::Result<f64> {
        self.receiver.reset().await?;
        let plan =
            Plan { address: self.receiver.address(), ..closed(Shape::Raw { path: "/0".to_owned() }, self.third()) };
        let report = load(&plan).await?;
        say(&format!("raw ceiling {:.0}/s", report.rate()));
        Ok(report.rate())
    }

    /// A measurement of which there are several.
    fn third(&self) -> Duration {
        self.scale.each.div_f64(3.0).max(Duration::from_secs(1))
    }

    /// As fast as it goes for a while, and then until all has arrived: what was sent, and what arrived.
    async fn saturate(&mut self, engine: &Engine, shape: Shape, fanout: u64, to: usize) -> anyhow::Result<Saturated> {
        self.receiver.reset().await?;
        let connections = if matches!(shape, Shape::Batch { .. }) { BATCHES_AT_ONCE } else { PRODUCERS };
        let cpu_before = engine.cpu();
        let report = load(&engine.plan(Plan { connections, ..closed(shape, self.third()) })).await?;
        let memory = engine.memory();
        let arrivals = self.receiver.wait_for(to, report.taken * fanout, PATIENCE).await?;
        let group = arrivals.groups[to].clone();
        let cpu = cpu_before.zip(engine.cpu()).map(|(before, after)| (after - before) * 1e6 / group.count as f64);
        Ok(Saturated { report, group, memory, cpu })
    }

    /// Deliveries a second at most. Measured now if it was not before.
    async fn saturation(&mut self) -> anyhow::Result<f64> {
        if let Some(known) = self.saturation {
            return Ok(known);
        }
        let mut engine = self.engine().await?;
        let routes = engine.unlimited(super::HOSTS, &self.receiver, "/0").await?;
        let rate = self.saturate(&engine, Shape::Single { routes }, 1, 0).await?.group.rate();
        say(&format!("saturation {rate:.0}/s"));
        self.saturation = Some(rate);
        Ok(rate)
    }
}

struct Saturated {
    report: Report,
    group: Group,
    /// Of the engine in MB, at the end of the load: now, and at most so far.
    memory: Option<(f64, f64)>,
    /// Of the engine, in microseconds for each delivery.
    cpu: Option<f64>,
}

/// As fast as answers come.
fn closed(shape: Shape, within: Duration) -> Plan {
    let connections = if matches!(shape, Shape::Batch { .. }) { BATCHES_AT_ONCE } else { CONNECTIONS };
    plan(shape, connections, Pace::Closed { within, count: u64::MAX })
}

/// So many a second, whatever the answers do.
fn open(routes: Vec<Route>, per_second: f64, within: Duration) -> Plan {
    plan(Shape::Single { routes }, PRODUCERS, Pace::Open { per_second, within })
}

fn plan(shape: Shape, connections: usize, pace: Pace) -> Plan {
    let nowhere = (std::net::Ipv4Addr::LOCALHOST, 0).into();
    Plan { address: nowhere, key: None, connections, pace, shape, first: 0, may_fail: false }
}
