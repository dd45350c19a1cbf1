//! What can be asked, by the plural of what it is about.

pub(crate) mod tenants;
pub(crate) mod destinations;
pub(crate) mod events;
pub(crate) mod deliveries;
pub(crate) mod attempts;
pub(crate) mod stream;
pub(crate) mod health;
