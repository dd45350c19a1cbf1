//! Secrets in rows.

use doorstep_core::destination::DestinationSecrets;
use doorstep_core::id::{DestinationId, TenantId};
use zeroize::Zeroizing;

use super::fault::Fault;
use crate::seal::{Keyring, Place};

/// What a destination's secrets take at most, roughly: a buffer that has to grow leaves copies behind.
const SECRETS_BYTES: usize = 32 * 1024;

const WHAT: &str = "a destination's secrets";

pub(super) fn seal(
    keys: &Keyring,
    (tenant_id, id): (TenantId, DestinationId),
    secrets: &DestinationSecrets,
) -> Result<Vec<u8>, Fault> {
    let mut clear = Zeroizing::new(Vec::with_capacity(SECRETS_BYTES));
    serde_json::to_writer(&mut *clear, secrets).map_err(|error| unreadable(&error))?;
    Ok(keys.seal(Place::Destination(tenant_id, id), &clear))
}

/// The reverse of [`seal`].
pub(super) fn unseal(
    keys: &Keyring,
    (tenant_id, id): (TenantId, DestinationId),
    sealed: &[u8],
) -> Result<DestinationSecrets, Fault> {
    let clear = keys.open(Place::Destination(tenant_id, id), sealed);
    let clear = clear.map_err(|error| Fault::unreadable(WHAT)(error.into()))?;
    read(&clear)
}

fn read(clear: &[u8]) -> Result<DestinationSecrets, Fault> {
    serde_json::from_slice(clear).map_err(|error| unreadable(&error))
}

/// Where, but not what: the error's own words may repeat a secret.
fn unreadable(error: &serde_json::Error) -> Fault {
    Fault::unreadable(WHAT)(format!("column {}", error.column()).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A secret must not reach a log by way of an error.
    #[test]
    fn an_unreadable_secret_is_not_repeated() {
        let fault = read(br#"{"signing":"whsec_hush","headers":[]}"#).unwrap_err();
        assert!(!format!("{fault:?} {fault}").contains("hush"), "{fault:?}");
    }
}
