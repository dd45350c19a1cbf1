//! Registered event types, in memory, with their schemas ready for use (I4).

mod schema;
mod steps;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, PoisonError, RwLock};

use doorstep_core::event::Event;
use doorstep_core::event_type::{
    EVENT_TYPES_MAX, Misfit, RegisteredType, SCHEMA_BYTES_IN_ALL_MAX, SCHEMA_BYTES_MAX, SCHEMAS_MAX, pointer_step,
};
use doorstep_core::route::EventType;
use doorstep_core::time::Millis;

use schema::Schema;

/// Reads take a short lock and clone a pointer; nobody holds it while checking a payload.
#[derive(Debug, Default)]
pub struct Types {
    inner: RwLock<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    types: BTreeMap<EventType, Arc<Ready>>,
    /// Of all of them together.
    schema_bytes: usize,
}

#[derive(Debug)]
struct Ready {
    registered: Arc<RegisteredType>,
    /// By their versions. One that this program cannot read (any more) is missing.
    schemas: BTreeMap<String, Schema>,
    schema_bytes: usize,
}

/// What a runtime thread can say of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inline {
    /// There was nothing to compare.
    AtOnce(Vec<Misfit>),
    /// It took a part of a millisecond: others may go first now.
    Compared(Vec<Misfit>),
    /// [`Types::misfits`] has to be asked elsewhere.
    TooLong,
}

impl Types {
    /// What keeps a type from being registered, or from being changed into this.
    pub fn misfits_of_type(&self, registered: &RegisteredType) -> Vec<Misfit> {
        let mut misfits = Vec::new();
        if registered.schemas.len() > SCHEMAS_MAX {
            misfits.push(Misfit::new("/schemas", format!("a type has at most {SCHEMAS_MAX} versions")));
            return misfits;
        }
        for (version, schema) in &registered.schemas {
            let at = format!("/schemas/{}", pointer_step(version));
            let bytes = schema.to_string().len();
            if bytes > SCHEMA_BYTES_MAX {
                let detail = format!("a schema has at most {SCHEMA_BYTES_MAX} bytes, but this has {bytes}");
                misfits.push(Misfit::new(at, detail));
            } else if let Err(misfit) = Schema::new(schema) {
                misfits.push(Misfit::new(at + &misfit.pointer, misfit.detail));
            }
        }
        let bytes = registered.schema_bytes();
        self.read(|inner| {
            let before = inner.types.get(&registered.name);
            if before.is_none() && inner.types.len() >= EVENT_TYPES_MAX {
                let detail = format!("{EVENT_TYPES_MAX} event types are registered, which is the most: remove others");
                misfits.push(Misfit::new("/name", detail));
            }
            let others = inner.schema_bytes - before.map_or(0, |before| before.schema_bytes);
            if others + bytes > SCHEMA_BYTES_IN_ALL_MAX {
                let detail = format!("all schemas together have at most {SCHEMA_BYTES_IN_ALL_MAX} bytes");
                misfits.push(Misfit::new("/schemas", detail));
            }
        });
        misfits
    }

    pub fn put(&self, registered: RegisteredType) -> Arc<RegisteredType> {
        let mut schemas = BTreeMap::new();
        for (version, schema) in &registered.schemas {
            match Schema::new(schema) {
                Ok(schema) => drop(schemas.insert(version.clone(), schema)),
                Err(misfit) => tracing::error!(
                    event_type = %registered.name, version, place = misfit.pointer, reason = misfit.detail,
                    "a registered schema cannot be used: payloads are taken without being checked against it",
                ),
            }
        }
        let schema_bytes = registered.schema_bytes();
        let registered = Arc::new(registered);
        let ready = Arc::new(Ready { registered: Arc::clone(&registered), schemas, schema_bytes });
        self.write(|inner| {
            let before = inner.types.insert(registered.name.clone(), ready);
            inner.schema_bytes += schema_bytes;
            inner.schema_bytes -= before.map_or(0, |before| before.schema_bytes);
        });
        registered
    }

    pub fn remove(&self, name: &EventType) {
        self.write(|inner| {
            let before = inner.types.remove(name);
            inner.schema_bytes -= before.map_or(0, |before| before.schema_bytes);
        });
    }

    pub fn get(&self, name: &EventType) -> Option<Arc<RegisteredType>> {
        self.read(|inner| inner.types.get(name).map(|ready| Arc::clone(&ready.registered)))
    }

    /// In the order of their names, behind `after`.
    pub fn list(&self, after: Option<&EventType>, limit: usize) -> Vec<Arc<RegisteredType>> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.read(|inner| {
            let behind = inner.types.range((from, Bound::Unbounded)).take(limit);
            behind.map(|(_, ready)| Arc::clone(&ready.registered)).collect()
        })
    }

    /// How long an event matters: as it says, or as its type does (D8).
    pub fn ttl_of(&self, event: &Event) -> Option<Millis> {
        event.ttl.or_else(|| self.read(|inner| inner.types.get(&event.event_type)?.registered.ttl))
    }

    /// What keeps an event from being taken: nothing, if its type is not registered. The payload is read only if there is
    /// a schema for it. This may take long: see [`Self::misfits_inline`].
    pub fn misfits(&self, event: &Event) -> Vec<Misfit> {
        self.compare(event, |schema| schema.misfits(&event.payload))
    }

    /// The same as far as a runtime thread can say without being held for long.
    pub fn misfits_inline(&self, event: &Event) -> Inline {
        let mut inline: fn(Vec<Misfit>) -> Inline = Inline::AtOnce;
        let misfits = self.compare(event, |schema| match schema.misfits_inline(&event.payload) {
            Some(misfits) => {
                inline = Inline::Compared;
                misfits
            }
            None => {
                inline = |_| Inline::TooLong;
                Vec::new()
            }
        });
        inline(misfits)
    }

    fn compare(&self, event: &Event, compare: impl FnOnce(&Schema) -> Vec<Misfit>) -> Vec<Misfit> {
        let Some(ready) = self.read(|inner| inner.types.get(&event.event_type).cloned()) else { return Vec::new() };
        let registered = &ready.registered;
        if registered.archived {
            let detail = format!("`{}` is archived: no more events of it are taken", registered.name);
            return vec![Misfit::new("/type", detail)];
        }
        let Some(version) = registered.version_for(event.schema_version.as_deref()) else { return Vec::new() };
        match ready.schemas.get(version) {
            Some(schema) => compare(schema),
            None if registered.schemas.is_empty() || registered.schemas.contains_key(version) => Vec::new(),
            None => {
                let known: Vec<&str> = registered.schemas.keys().map(String::as_str).collect();
                let detail = format!("`{}` has no version {version:?}: it has {}", registered.name, known.join(", "));
                vec![Misfit::new("/schema_version", detail)]
            }
        }
    }

    fn read<T>(&self, read: impl FnOnce(&Inner) -> T) -> T {
        read(&self.inner.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn write(&self, write: impl FnOnce(&mut Inner)) {
        write(&mut self.inner.write().unwrap_or_else(PoisonError::into_inner));
    }
}

#[cfg(test)]
mod tests;
