//! What happens, in plain words.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use doorstep_core::attempt::Answer;
use doorstep_core::engine::{Attempted, News};
use doorstep_core::gate::{GateChange, SuspensionReason};
use doorstep_core::outcome::Class;
use doorstep_core::retry::Decision;
use doorstep_core::time::{Millis, Timestamp};
use serde_json::Value;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

/// The same kind of thing about the same receiver is told at most this often.
const AGAIN_AFTER: Duration = Duration::from_secs(4);

pub(super) struct Narrator {
    news: Receiver<News>,
    began: Instant,
    accepted: u64,
    /// By destination.
    tales: BTreeMap<String, Tale>,
}

struct Tale {
    name: &'static str,
    delivered: u64,
    failed: u64,
    throttled: u64,
    tripped: bool,
    told: BTreeMap<&'static str, Instant>,
}

impl Narrator {
    pub(super) fn new(news: Receiver<News>, names: Vec<(String, &'static str)>) -> Self {
        let tale = |name| Tale { name, delivered: 0, failed: 0, throttled: 0, tripped: false, told: BTreeMap::new() };
        let tales = names.into_iter().map(|(id, name)| (id, tale(name))).collect();
        Self { news, began: Instant::now(), accepted: 0, tales }
    }

    pub(super) fn accepted(&mut self) {
        self.accepted += 1;
    }

    /// The next thing that is worth a line.
    pub(super) async fn next(&mut self) -> String {
        loop {
            let news = match self.news.recv().await {
                Ok(news) => news,
                Err(RecvError::Lagged(_)) => continue,
                Err(RecvError::Closed) => std::future::pending().await,
            };
            let clock = clock(self.began.elapsed());
            let (id, told) = match &news {
                News::Attempted(attempted) => (attempted.destination_id, None),
                News::GateChanged { at, destination_id, change, .. } => (*destination_id, Some((*at, *change))),
            };
            let Some(tale) = self.tales.get_mut(&id.to_string()) else { continue };
            let line = match (&news, told) {
                (News::Attempted(attempted), _) => tale.attempted(attempted),
                (News::GateChanged { .. }, Some((at, change))) => Some(tale.changed(at, change)),
                (News::GateChanged { .. }, None) => None,
            };
            if let Some(line) = line {
                return format!("{clock}  {:<9} {line}\n", tale.name);
            }
        }
    }

    /// How everybody is doing. `destinations` is what the API says of them.
    pub(super) fn picture(&self, destinations: &Value) -> String {
        let mut text = format!("\n{}  {} events accepted so far\n", clock(self.began.elapsed()), self.accepted);
        for destination in destinations["data"].as_array().into_iter().flatten() {
            let Some(tale) = destination["id"].as_str().and_then(|id| self.tales.get(id)) else { continue };
            let (status, queued) = (destination["status"].as_str().unwrap_or("?"), &destination["queued_events"]);
            let Tale { name, delivered, failed, throttled, .. } = tale;
            text.push_str(&format!(
                "       {name:<9} {status:<10} {delivered:>5} delivered {:>5} waiting {failed:>5} failed attempts {throttled:>4} × 429\n",
                queued.to_string()
            ));
        }
        text.push('\n');
        text
    }

    pub(super) fn farewell(&self, destinations: &Value) -> String {
        let waiting: u64 =
            destinations["data"].as_array().into_iter().flatten().filter_map(|one| one["queued_events"].as_u64()).sum();
        let delivered: u64 = self.tales.values().map(|tale| tale.delivered).sum();
        let wanted = self.accepted * self.tales.len() as u64;
        format!(
            "{}{} events were accepted for {} receivers: {wanted} deliveries, of which {delivered} have arrived and {waiting} \
             would arrive if this went on.\n",
            self.picture(destinations),
            self.accepted,
            self.tales.len(),
        )
    }
}

impl Tale {
    fn attempted(&mut self, attempted: &Attempted) -> Option<String> {
        let class = attempted.outcome.class();
        match class {
            Class::Success => self.delivered += 1,
            Class::Throttled => self.throttled += 1,
            Class::Transient | Class::Ambiguous | Class::Permanent => self.failed += 1,
        }
        let (number, took) = (attempted.number, attempted.took);
        let answer = match attempted.answer {
            Answer::Status(status) => status.to_string(),
            Answer::Fault(fault) => format!("no answer ({fault:?})"),
        };
        if self.tripped && class != Class::Success {
            return Some(format!("probing: one request to see whether it is back: {answer}, not yet"));
        }
        match (class, attempted.decision) {
            (Class::Success, _) if self.is_news("first") => Some(format!("first delivery: {answer} in {took}")),
            (Class::Success, _) if number > 1 && self.is_news("again") => {
                Some(format!("{answer}: delivered, at attempt {number}"))
            }
            (_, Decision::RetryAt(at)) if self.is_news("failed") => {
                let wait = Millis(at.since(attempted.at).0 / 100 * 100);
                Some(format!("{answer}: attempt {number} failed, the next one is in {wait}"))
            }
            (_, Decision::Dead(reason)) => Some(format!("{answer}: given up ({reason:?}), kept as a dead letter")),
            _ => None,
        }
    }

    fn changed(&mut self, at: Timestamp, change: GateChange) -> String {
        let span = |until: Timestamp| Millis(until.since(at).0.div_ceil(100) * 100);
        match change {
            GateChange::Throttled { until, .. } => {
                format!("throttled: it asked for a rest of {}; its events wait, everybody else's flow on", span(until))
            }
            GateChange::Unthrottled => {
                "flows again: it accepts, and is sent to at the pace that it can bear".to_owned()
            }
            GateChange::Tripped { until, .. } => {
                self.tripped = true;
                format!("tripped: it fails again and again, so nothing is sent to it for {}", span(until))
            }
            GateChange::Recovered => {
                self.tripped = false;
                "recovered: the probe came through; what has queued up follows, slowly at first".to_owned()
            }
            GateChange::Suspended(SuspensionReason::Gone) => "suspended: it says that it is gone for good".to_owned(),
            GateChange::Suspended(SuspensionReason::OnlyRejections) => {
                "suspended: it has refused everything for a while".to_owned()
            }
        }
    }

    /// Whether it is time to tell this kind of thing again.
    fn is_news(&mut self, kind: &'static str) -> bool {
        let now = Instant::now();
        let once = kind == "first";
        if self.told.get(kind).is_some_and(|last| once || now.duration_since(*last) < AGAIN_AFTER) {
            return false;
        }
        self.told.insert(kind, now);
        true
    }
}

fn clock(elapsed: Duration) -> String {
    let secs = elapsed.as_secs();
    format!("{:>2}:{:02}", secs / 60, secs % 60)
}
