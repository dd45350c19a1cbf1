//! How much work filters are, counted in units rather than in time: a unit is about a byte that is compared, or a nanosecond.
//!
//! The costly part is `contains`, which reads a whole field. Filters of one event share an [`Evaluation`]: each operand is searched for once in a
//! field, however many filters ask. What all filters of a tenant can cost at most is a [`FilterLoad`], and that has a budget.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::Filter;
use super::rule::{Path, Scalar, Test};
use super::search::Needle;

/// Units that the filters of one tenant may take for one event, unless the operator says otherwise.
pub const FILTER_WORK_MAX: u64 = 256 * 1024 * 1024;

/// Reading JSON, per byte.
const PARSE_UNITS: u64 = 4;
/// Finding a field and applying one test to it, or comparing a type with one pattern.
const TEST_UNITS: u64 = 64;
/// Searches that cost less are done again rather than remembered.
const REMEMBERED_FROM: u64 = 256;

/// The work would exceed the budget. Nothing is known about the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this takes more work than was allowed")]
pub struct OverBudget;

/// The filters of one event: what they have cost so far, and what they have found.
#[derive(Debug)]
pub struct Evaluation<'f> {
    units_max: u64,
    units: u64,
    searched: HashMap<(&'f Path, &'f Scalar), bool>,
}

impl<'f> Evaluation<'f> {
    pub fn new(units_max: u64) -> Self {
        Self { units_max, units: 0, searched: HashMap::new() }
    }

    /// What it has cost so far.
    pub fn units(&self) -> u64 {
        self.units
    }

    /// Counts work before it is done.
    fn spend(&mut self, units: u64) -> Result<(), OverBudget> {
        let units = self.units.saturating_add(units);
        if units > self.units_max {
            return Err(OverBudget);
        }
        self.units = units;
        Ok(())
    }

    pub(super) fn parse(&mut self, bytes: usize) -> Result<(), OverBudget> {
        self.spend(PARSE_UNITS * bytes as u64)
    }

    pub(crate) fn patterns(&mut self, n: usize) -> Result<(), OverBudget> {
        self.spend(TEST_UNITS * n as u64)
    }

    pub(super) fn test(&mut self, operand_bytes: usize) -> Result<(), OverBudget> {
        self.spend(TEST_UNITS + operand_bytes as u64)
    }

    /// Whether the needle is within the field at this path, whose value this is.
    pub(super) fn search(&mut self, path: &'f Path, needle: &'f Needle, value: &Value) -> Result<bool, OverBudget> {
        let units = needle.units(value);
        if units < REMEMBERED_FROM {
            self.spend(units)?;
            return Ok(needle.is_within(value));
        }
        if let Some(known) = self.searched.get(&(path, &needle.operand)) {
            return Ok(*known);
        }
        self.spend(units)?;
        let found = needle.is_within(value);
        self.searched.insert((path, &needle.operand), found);
        Ok(found)
    }
}

/// What filters together can cost for one event, whatever it says.
#[derive(Debug, Default)]
pub struct FilterLoad<'f> {
    /// All but parsing and searching.
    tests: u64,
    searches: HashMap<&'f Path, HashSet<&'f Scalar>>,
}

impl<'f> FilterLoad<'f> {
    pub fn add(&mut self, filter: &'f Filter) {
        self.tests += filter.bytes as u64;
        filter.rule.each_test(&mut |path, test| {
            self.tests += TEST_UNITS;
            if let Test::Contains(needle) = test {
                self.tests += REMEMBERED_FROM;
                self.searches.entry(path).or_default().insert(&needle.operand);
            }
        });
    }

    /// The most different operands of `contains` that are searched for in one field.
    pub fn searches(&self) -> usize {
        self.searches.values().map(HashSet::len).max().unwrap_or(0)
    }

    /// Different paths lead to different parts of a payload, so the worst payload is all in the field that is searched most.
    pub fn units(&self, payload_bytes_max: usize) -> u64 {
        let reads = PARSE_UNITS.saturating_add(self.searches() as u64);
        self.tests.saturating_add(reads.saturating_mul(payload_bytes_max as u64))
    }
}
