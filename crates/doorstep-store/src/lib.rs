//! What Doorstep remembers.
//!
//! [`memory`] is the runnable specification: the plainest code that keeps the promises. Other stores are compared
//! with it.
//!
//! ```
//! use doorstep_core::delivery::Track;
//! use doorstep_core::id::{DeliveryId, DestinationId};
//! use doorstep_core::time::Timestamp;
//! use doorstep_store::memory::{Memory, NewDelivery};
//!
//! let (now, destination_id) = (Timestamp::from_secs(1_700_000_000), DestinationId(1));
//! let delivery = |id: u128, key: &str| NewDelivery {
//!     id: DeliveryId(id),
//!     event_seq: 0,
//!     destination_id,
//!     ordering_key: Some(key.into()),
//!     give_up_at: Timestamp::MAX,
//! };
//! let mut store = Memory::default();
//! store.accept(vec![delivery(1, "a"), delivery(2, "a"), delivery(3, "b")], now);
//!
//! // Of each ordering key, the first.
//! let (due, _) = store.due(destination_id, Track::First, None, 10);
//! assert_eq!(due.iter().map(|delivery| delivery.id.0).collect::<Vec<_>>(), [1, 3]);
//! ```

pub mod memory;
