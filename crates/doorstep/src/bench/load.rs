//! `doorstep bench-load`: sends what the plan on its standard input says, and reports on its standard output.
//!
//! A *closed* load has each connection send its next request when the last one is answered. An *open* load keeps to its
//! schedule whatever the answers do: a request that leaves late carries the time at which it should have left, so that
//! a system that stalls cannot hide it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use bytes::Bytes;
use http::Method;
use serde::{Deserialize, Serialize};
use tokio::sync::{Mutex, mpsc};

use super::client::Client;
use super::histogram::Histogram;
use super::payload::{self, PAYLOAD_BYTES};
use crate::failure::Failure;
use crate::{output, runtime};

#[derive(clap::Args)]
pub(crate) struct Args {}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Plan {
    pub(super) address: SocketAddr,
    pub(super) key: Option<String>,
    pub(super) connections: usize,
    pub(super) pace: Pace,
    pub(super) shape: Shape,
    /// The number of the first event.
    pub(super) first: u64,
    /// Whether a connection that fails leaves it at that: whoever answers is meant to die.
    pub(super) may_fail: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Pace {
    Closed { within: Duration, count: u64 },
    Open { per_second: f64, within: Duration },
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Shape {
    /// The payload itself, to this path.
    Raw { path: String },
    /// One event each, to these in turn.
    Single { routes: Vec<Route> },
    /// So many events each.
    Batch { routes: Vec<Route>, size: usize },
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Route {
    pub(super) tenant_id: String,
    pub(super) event_type: String,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Report {
    /// Events, or requests to the receiver itself, that were taken.
    pub(super) taken: u64,
    /// Events that were numbered, taken or not.
    pub(super) numbered: u64,
    /// Requests that were not answered with success.
    pub(super) refused: u64,
    /// The first answer of those.
    pub(super) refusal: Option<String>,
    /// Numbers of the events whose fate is not known.
    pub(super) unknown: Vec<u64>,
    pub(super) took: Duration,
    /// From when it was due to be sent to its answer, in milliseconds.
    pub(super) p50: f64,
    pub(super) p99: f64,
}

impl Report {
    pub(super) fn rate(&self) -> f64 {
        self.taken as f64 / self.took.as_secs_f64()
    }
}

pub(crate) fn run(_: &Args) -> Result<(), Failure> {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).context("cannot read the plan")?;
    let plan: Plan = serde_json::from_str(&line).context("cannot understand the plan")?;
    let report = runtime::run(1, async { Ok(send(Arc::new(plan)).await?) })?;
    output::print(&format!("{}\n", serde_json::to_string(&report).context("cannot tell the report")?))
}

async fn send(plan: Arc<Plan>) -> anyhow::Result<Report> {
    let mut clients = Vec::new();
    for _ in 0..plan.connections {
        clients.push(Client::connect(plan.address, plan.key.as_deref()).await?);
    }
    let schedule = Arc::new(Schedule::start(&plan));
    let began = Instant::now();
    let workers: Vec<_> = clients
        .into_iter()
        .map(|client| {
            let worker =
                Worker { client, plan: Arc::clone(&plan), schedule: Arc::clone(&schedule), done: Done::default() };
            tokio::spawn(worker.run())
        })
        .collect();
    let mut all = Done::default();
    for worker in workers {
        all.add(worker.await??);
    }
    let Done { mut report, latency } = all;
    report.took = began.elapsed();
    report.numbered = schedule.given.load(Ordering::Relaxed) * plan.shape.size();
    (report.p50, report.p99) = (latency.quantile(0.5), latency.quantile(0.99));
    Ok(report)
}

/// Whose turn it is, and when.
struct Schedule {
    until: Instant,
    count: u64,
    given: AtomicU64,
    broken: AtomicBool,
    /// Of an open load: when each is due.
    due: Option<Mutex<mpsc::UnboundedReceiver<Duration>>>,
}

impl Schedule {
    fn start(plan: &Plan) -> Self {
        let (within, count, due) = match plan.pace {
            Pace::Closed { within, count } => (within, count, None),
            Pace::Open { per_second, within } => {
                let (turns, due) = mpsc::unbounded_channel();
                // A thread of its own sleeps more exactly than the runtime does.
                std::thread::spawn(move || keep_time(per_second, within, &turns));
                (within * 4, u64::MAX, Some(Mutex::new(due)))
            }
        };
        let (given, broken) = (AtomicU64::new(0), AtomicBool::new(false));
        Self { until: Instant::now() + within, count, given, broken, due }
    }

    /// The next request's number and when it is due; nothing once there are no more.
    async fn next(&self) -> Option<(u64, Duration)> {
        let due = match &self.due {
            Some(due) => due.lock().await.recv().await?,
            None => payload::now(),
        };
        if Instant::now() >= self.until || self.broken.load(Ordering::Relaxed) {
            return None;
        }
        let n = self.given.fetch_add(1, Ordering::Relaxed);
        if n >= self.count {
            self.given.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some((n, due))
    }
}

fn keep_time(per_second: f64, within: Duration, turns: &mpsc::UnboundedSender<Duration>) {
    let (began, began_at) = (Instant::now(), payload::now());
    for n in 0_u32.. {
        let due = Duration::from_secs_f64(f64::from(n) / per_second);
        if due >= within {
            return;
        }
        if let Some(left) = due.checked_sub(began.elapsed()) {
            std::thread::sleep(left);
        }
        if turns.send(began_at + due).is_err() {
            return;
        }
    }
}

struct Worker {
    client: Client,
    plan: Arc<Plan>,
    schedule: Arc<Schedule>,
    done: Done,
}

#[derive(Default)]
struct Done {
    report: Report,
    latency: Histogram,
}

impl Done {
    fn add(&mut self, other: Self) {
        let Self { report, latency } = other;
        self.report.taken += report.taken;
        self.report.refused += report.refused;
        self.report.refusal = self.report.refusal.take().or(report.refusal);
        self.report.unknown.extend(report.unknown);
        self.latency.merge(&latency);
    }
}

impl Worker {
    async fn run(mut self) -> anyhow::Result<Done> {
        let size = self.plan.shape.size();
        while let Some((n, due)) = self.schedule.next().await {
            let first = self.plan.first + n * size;
            let body = self.plan.shape.body(first, due);
            match self.client.call(Method::POST, self.plan.shape.path(), body).await {
                Ok((200..300, _)) => {
                    self.done.latency.add(payload::now().saturating_sub(due));
                    self.done.report.taken += size;
                }
                Ok((status, told)) => {
                    self.done.report.refused += 1;
                    self.done
                        .report
                        .refusal
                        .get_or_insert_with(|| format!("{status}: {}", String::from_utf8_lossy(&told)));
                }
                Err(_) if self.plan.may_fail => {
                    self.schedule.broken.store(true, Ordering::Relaxed);
                    self.done.report.unknown.extend(first..first + size);
                    break;
                }
                Err(fault) => return Err(fault.context("a request was not answered")),
            }
        }
        Ok(self.done)
    }
}

impl Shape {
    /// Events in one request.
    fn size(&self) -> u64 {
        match self {
            Self::Raw { .. } | Self::Single { .. } => 1,
            Self::Batch { size, .. } => *size as u64,
        }
    }

    fn path(&self) -> &str {
        match self {
            Self::Raw { path } => path,
            Self::Single { .. } => "/v1/events",
            Self::Batch { .. } => "/v1/events/batch",
        }
    }

    fn body(&self, n: u64, due: Duration) -> Bytes {
        let mut body = Vec::with_capacity((PAYLOAD_BYTES + 128) * usize::try_from(self.size()).unwrap_or(1));
        match self {
            Self::Raw { .. } => payload::write(&mut body, n, due),
            Self::Single { routes } => event(&mut body, routes, n, due),
            Self::Batch { routes, .. } => {
                body.extend_from_slice(br#"{"events":["#);
                for n in n..n + self.size() {
                    event(&mut body, routes, n, due);
                    body.push(b',');
                }
                body.pop();
                body.extend_from_slice(b"]}");
            }
        }
        body.into()
    }
}

fn event(body: &mut Vec<u8>, routes: &[Route], n: u64, due: Duration) {
    use std::io::Write;
    let Route { tenant_id, event_type } = &routes[usize::try_from(n).unwrap_or(0) % routes.len()];
    // Writing into a Vec cannot fail.
    let _ = write!(body, r#"{{"tenant_id":"{tenant_id}","type":"{event_type}","payload":"#);
    payload::write(body, n, due);
    body.push(b'}');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_what_the_api_takes() {
        let route = |n: usize| Route { tenant_id: format!("ten_{n}"), event_type: "a.b".into() };
        let shape = Shape::Batch { routes: (0..2).map(route).collect(), size: 3 };
        let body: serde_json::Value = serde_json::from_slice(&shape.body(3, Duration::ZERO)).unwrap();
        let tenants: Vec<&str> =
            body["events"].as_array().unwrap().iter().map(|event| event["tenant_id"].as_str().unwrap()).collect();
        assert_eq!(tenants, ["ten_1", "ten_0", "ten_1"]);
        assert_eq!(body["events"][2]["payload"]["n"], "000000000005");
    }
}
