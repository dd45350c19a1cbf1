//! Secrets in rows.

use doorstep_core::destination::DestinationSecrets;
use doorstep_core::id::{DestinationId, TenantId};
use zeroize::Zeroizing;

use super::fault::{DamagedRow, Fault};
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
    serde_json::to_writer(&mut *clear, secrets).map_err(|error| Fault::unreadable(WHAT)(place(&error).into()))?;
    Ok(keys.seal(Place::Destination(tenant_id, id), &clear))
}

/// The reverse of [`seal`]. The server does not start with what cannot be opened, so the fault names the destination and what to do.
pub(super) fn unseal(
    keys: &Keyring,
    (tenant_id, id): (TenantId, DestinationId),
    sealed: &[u8],
) -> Result<DestinationSecrets, Fault> {
    let clear = keys.open(Place::Destination(tenant_id, id), sealed).map_err(|error| error.to_string());
    let secrets = clear.and_then(|clear| read(&clear));
    secrets.map_err(|why| DamagedRow::Destination.fault(WHAT, (tenant_id, id), why))
}

fn read(clear: &[u8]) -> Result<DestinationSecrets, String> {
    serde_json::from_slice(clear).map_err(|error| place(&error))
}

/// Where, but not what: the error's own words may repeat a secret.
fn place(error: &serde_json::Error) -> String {
    format!("column {}", error.column())
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
