//! What people ask for in lists: one grammar for the API, the commands and bulk actions.
//!
//! A filter is written as the query of a URL is: `status=failed&type=invoice.*&created_after=2026-11-15T12:00:00.000Z`. Each name
//! stands there once at most, all of what is asked for has to hold, and an empty filter asks for everything. What is read is
//! written back in one form, so that two filters that ask for the same are the same text.

mod value;
#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use thiserror::Error;
use url::form_urlencoded;

use crate::clock::Timeline;
use crate::id::{DestinationId, EventId, TenantId};
use crate::reach::Reach;
use crate::retry::DeadReason;
use crate::route::TypePatterns;
use crate::similar::none_of;
use crate::time::Timestamp;

pub use value::{Codes, ORDERING_KEY_CHARS_MAX, Statuses, read_time, read_types};

/// Which deliveries are asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeliveryFilter {
    pub statuses: Statuses,
    /// Of the event; any of these.
    pub types: Option<TypePatterns>,
    /// Two tenants may have an event of the same name.
    pub event_id: Option<EventId>,
    pub destination_id: Option<DestinationId>,
    pub tenant_id: Option<TenantId>,
    pub reason: Option<DeadReason>,
    /// The last status code.
    pub codes: Option<Codes>,
    /// At this time or later.
    pub created_after: Option<Timestamp>,
    pub created_before: Option<Timestamp>,
}

/// Which events are asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventFilter {
    /// Any of these.
    pub types: Option<TypePatterns>,
    pub tenant_id: Option<TenantId>,
    pub ordering_key: Option<Arc<str>>,
    /// At this time or later.
    pub accepted_after: Option<Timestamp>,
    pub accepted_before: Option<Timestamp>,
}

/// A filter as text.
pub trait Search: Default {
    /// What can be asked for, in the order in which it is written.
    const NAMES: &'static [&'static str];

    /// Asks for this too. The name is one of [`Self::NAMES`].
    fn narrow(&mut self, name: &str, text: &str) -> Result<(), String>;

    /// What is asked for under each name, in their order.
    fn terms(&self) -> Vec<Option<String>>;

    /// The same with schedule times, where it was given the wall clock's.
    #[must_use]
    fn by(self, timeline: &Timeline) -> Self;

    /// Reads names and values, as they stand in a query once its escapes are undone.
    fn read<'a>(given: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, SearchFault> {
        let (mut search, mut seen) = (Self::default(), Vec::new());
        for (name, text) in given {
            let fault = |detail| SearchFault { name: name.to_owned(), detail };
            if !Self::NAMES.contains(&name) {
                return Err(fault(none_of(name, Self::NAMES)));
            }
            if seen.contains(&name) {
                return Err(fault(
                    "is given twice: give it once, with commas between several where it takes several".to_owned(),
                ));
            }
            seen.push(name);
            search.narrow(name, text).map_err(fault)?;
        }
        Ok(search)
    }

    /// The other way round.
    fn pairs(&self) -> Vec<(&'static str, String)> {
        Self::NAMES.iter().zip(self.terms()).filter_map(|(name, text)| Some((*name, text?))).collect()
    }
}

/// What is wrong with a filter.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{name}: {detail}")]
pub struct SearchFault {
    /// Of what was asked for.
    pub name: String,
    pub detail: String,
}

impl Search for DeliveryFilter {
    const NAMES: &'static [&'static str] = &[
        "status",
        "type",
        "event_id",
        "destination_id",
        "tenant_id",
        "reason",
        "code",
        "created_after",
        "created_before",
    ];

    fn narrow(&mut self, name: &str, text: &str) -> Result<(), String> {
        match name {
            "status" => self.statuses = text.parse()?,
            "type" => self.types = Some(read_types(text)?),
            "event_id" => self.event_id = value::parsed(text)?,
            "destination_id" => self.destination_id = value::parsed(text)?,
            "tenant_id" => self.tenant_id = value::parsed(text)?,
            "reason" => self.reason = Some(value::reason(text)?),
            "code" => self.codes = value::parsed(text)?,
            "created_after" => self.created_after = Some(read_time(text)?),
            "created_before" => self.created_before = Some(read_time(text)?),
            _ => return Err(none_of(name, Self::NAMES)),
        }
        Ok(())
    }

    fn terms(&self) -> Vec<Option<String>> {
        let Self { statuses, types, event_id, destination_id, tenant_id, reason, codes, created_after, created_before } =
            self;
        vec![
            (*statuses != Statuses::ANY).then(|| statuses.to_string()),
            types.as_ref().map(value::types),
            event_id.as_ref().map(ToString::to_string),
            destination_id.map(|id| id.to_string()),
            tenant_id.map(|id| id.to_string()),
            reason.map(|reason| reason.name().to_owned()),
            codes.map(|codes| codes.to_string()),
            created_after.map(Timestamp::to_rfc3339),
            created_before.map(Timestamp::to_rfc3339),
        ]
    }

    fn by(self, timeline: &Timeline) -> Self {
        let kept = |at: Option<Timestamp>| at.map(|at| timeline.kept(at));
        let (created_after, created_before) = (kept(self.created_after), kept(self.created_before));
        Self { created_after, created_before, ..self }
    }
}

impl Search for EventFilter {
    const NAMES: &'static [&'static str] = &["type", "tenant_id", "ordering_key", "created_after", "created_before"];

    fn narrow(&mut self, name: &str, text: &str) -> Result<(), String> {
        match name {
            "type" => self.types = Some(read_types(text)?),
            "tenant_id" => self.tenant_id = value::parsed(text)?,
            "ordering_key" => self.ordering_key = Some(value::ordering_key(text)?),
            "created_after" => self.accepted_after = Some(read_time(text)?),
            "created_before" => self.accepted_before = Some(read_time(text)?),
            _ => return Err(none_of(name, Self::NAMES)),
        }
        Ok(())
    }

    fn terms(&self) -> Vec<Option<String>> {
        let Self { types, tenant_id, ordering_key, accepted_after, accepted_before } = self;
        vec![
            types.as_ref().map(value::types),
            tenant_id.map(|id| id.to_string()),
            ordering_key.as_ref().map(ToString::to_string),
            accepted_after.map(Timestamp::to_rfc3339),
            accepted_before.map(Timestamp::to_rfc3339),
        ]
    }

    fn by(self, timeline: &Timeline) -> Self {
        let kept = |at: Option<Timestamp>| at.map(|at| timeline.kept(at));
        let (accepted_after, accepted_before) = (kept(self.accepted_after), kept(self.accepted_before));
        Self { accepted_after, accepted_before, ..self }
    }
}

impl DeliveryFilter {
    /// What is left of it within a reach; `None`: nothing is.
    pub fn within(self, reach: Reach) -> Option<Self> {
        let tenant_id = reach.narrowed_to(self.tenant_id)?.tenant_id();
        Some(Self { tenant_id, ..self })
    }
}

impl EventFilter {
    /// What is left of it within a reach; `None`: nothing is.
    pub fn within(self, reach: Reach) -> Option<Self> {
        let tenant_id = reach.narrowed_to(self.tenant_id)?.tenant_id();
        Some(Self { tenant_id, ..self })
    }
}

impl FromStr for DeliveryFilter {
    type Err = SearchFault;

    fn from_str(text: &str) -> Result<Self, SearchFault> {
        from_query(text)
    }
}

impl fmt::Display for DeliveryFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_query(self, f)
    }
}

impl FromStr for EventFilter {
    type Err = SearchFault;

    fn from_str(text: &str) -> Result<Self, SearchFault> {
        from_query(text)
    }
}

impl fmt::Display for EventFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_query(self, f)
    }
}

fn from_query<S: Search>(text: &str) -> Result<S, SearchFault> {
    let pairs: Vec<_> = form_urlencoded::parse(text.as_bytes()).collect();
    S::read(pairs.iter().map(|(name, value)| (&**name, &**value)))
}

fn write_query(search: &impl Search, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (n, (name, text)) in search.pairs().into_iter().enumerate() {
        let and = if n == 0 { "" } else { "&" };
        write!(f, "{and}{name}={}", readable(&text))?;
    }
    Ok(())
}

/// Escaped as far as a query needs it: `,`, `:` and `*` mean nothing there, and people read this.
fn readable(text: &str) -> String {
    let escaped: String = form_urlencoded::byte_serialize(text.as_bytes()).collect();
    escaped.replace("%2C", ",").replace("%3A", ":")
}
