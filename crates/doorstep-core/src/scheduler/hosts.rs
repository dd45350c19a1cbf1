//! The cap per receiving host, which many destinations may share (G10).

use std::collections::VecDeque;
use std::sync::Arc;

use super::Map;
use super::lane::LaneKey;

#[derive(Debug)]
pub(super) struct Hosts {
    max: Option<usize>,
    hosts: Map<Arc<str>, Host>,
    /// Which host a lane waits for: it may have moved since.
    waits_for: Map<LaneKey, Arc<str>>,
}

#[derive(Debug, Default)]
struct Host {
    in_flight: usize,
    waiting: VecDeque<LaneKey>,
}

impl Hosts {
    pub(super) fn new(max: Option<usize>) -> Self {
        Self { max, hosts: Map::default(), waits_for: Map::default() }
    }

    pub(super) fn is_full(&self, host: &Arc<str>) -> bool {
        self.max.is_some_and(|max| self.hosts.get(host).is_some_and(|host| host.in_flight >= max))
    }

    pub(super) fn enter(&mut self, host: &Arc<str>) {
        if self.max.is_some() {
            self.hosts.entry(Arc::clone(host)).or_default().in_flight += 1;
        }
    }

    /// One request less.
    pub(super) fn leave(&mut self, host: &Arc<str>) {
        let Some(entry) = self.hosts.get_mut(host) else { return };
        entry.in_flight = entry.in_flight.saturating_sub(1);
        self.forget_if_idle(host);
    }

    pub(super) fn queue(&mut self, host: &Arc<str>, lane: LaneKey) {
        if self.waits_for.insert(lane, Arc::clone(host)).is_none() {
            self.hosts.entry(Arc::clone(host)).or_default().waiting.push_back(lane);
        }
    }

    /// The next lane that waits for this host, if the host has room.
    pub(super) fn next_waiting(&mut self, host: &Arc<str>) -> Option<LaneKey> {
        if self.is_full(host) {
            return None;
        }
        let next = self.hosts.get_mut(host)?.waiting.pop_front();
        match next {
            Some(lane) => drop(self.waits_for.remove(&lane)),
            None => self.forget_if_idle(host),
        }
        next
    }

    pub(super) fn leave_queue(&mut self, lane: LaneKey) {
        let Some(host) = self.waits_for.remove(&lane) else { return };
        if let Some(entry) = self.hosts.get_mut(&host) {
            entry.waiting.retain(|other| *other != lane);
        }
        self.forget_if_idle(&host);
    }

    fn forget_if_idle(&mut self, host: &Arc<str>) {
        if self.hosts.get(host).is_some_and(|entry| entry.in_flight == 0 && entry.waiting.is_empty()) {
            self.hosts.remove(host);
        }
    }
}
