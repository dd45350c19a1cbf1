//! What can be asked, by the plural of what it is about.

pub(crate) mod tenants;
pub(crate) mod destinations;
pub(crate) mod events;
pub(crate) mod event_types;
pub(crate) mod deliveries;
pub(crate) mod attempts;
pub(crate) mod payloads;
pub(crate) mod stream;
pub(crate) mod keys;
pub(crate) mod audit;
pub(crate) mod portal_sessions;
pub(crate) mod health;

#[cfg(test)]
mod lists;
#[cfg(test)]
mod missed;

use doorstep_core::store::{ByHand, Refusal, Write, Written};

use crate::app::App;
use crate::problem::Problem;

/// Writes what a person changes, where nothing but the store has to know of it.
async fn save(app: &App, by_hand: ByHand) -> Result<Result<Written, Refusal>, Problem> {
    let written = app.engine.write(vec![Write::ByHand(Box::new(by_hand))]).await?.pop();
    Ok(match written {
        Some(Written::Refused(refusal)) => Err(refusal),
        Some(written) => Ok(written),
        None => Err(Refusal::NotFound),
    })
}

/// Bytes that nobody can guess.
fn chance<const N: usize>() -> Result<[u8; N], Problem> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|fault| {
        tracing::error!(error = %fault, "the machine gives no random numbers");
        Problem::busy("no secret could be made: try again in a moment")
    })?;
    Ok(bytes)
}
