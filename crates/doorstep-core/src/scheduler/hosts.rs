//! The cap per receiving host, which many destinations may share (G10).

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use super::Map;
use super::lane::LaneKey;

#[derive(Debug)]
pub(super) struct Hosts {
    max: Option<usize>,
    hosts: Map<Arc<str>, Host>,
    waiting: BTreeSet<LaneKey>,
}

#[derive(Debug, Default)]
struct Host {
    in_flight: usize,
    waiting: VecDeque<LaneKey>,
}

impl Hosts {
    pub(super) fn new(max: Option<usize>) -> Self {
        Self { max, hosts: Map::default(), waiting: BTreeSet::new() }
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
        if entry.in_flight == 0 && entry.waiting.is_empty() {
            self.hosts.remove(host);
        }
    }

    pub(super) fn queue(&mut self, host: &Arc<str>, lane: LaneKey) {
        if self.waiting.insert(lane) {
            self.hosts.entry(Arc::clone(host)).or_default().waiting.push_back(lane);
        }
    }

    /// The next lane that waits for this host, if the host has room.
    pub(super) fn next_waiting(&mut self, host: &Arc<str>) -> Option<LaneKey> {
        if self.is_full(host) {
            return None;
        }
        let waiting = &mut self.hosts.get_mut(host)?.waiting;
        // Lanes that left the queue are still in its list.
        while let Some(lane) = waiting.pop_front() {
            if self.waiting.remove(&lane) {
                return Some(lane);
            }
        }
        None
    }

    pub(super) fn leave_queue(&mut self, lane: LaneKey) {
        self.waiting.remove(&lane);
    }
}
