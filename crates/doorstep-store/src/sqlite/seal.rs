//! How secrets are kept.

use doorstep_core::destination::DestinationSecrets;

use super::fault::Fault;

/// Secrets as they are written to disk. They are JSON so far; they will be encrypted here once there is a master key
/// (S6). Until then the mode of the file is what protects them.
pub(super) fn seal(secrets: &DestinationSecrets) -> Result<Vec<u8>, Fault> {
    serde_json::to_vec(secrets).map_err(|error| unreadable(&error))
}

/// The reverse of [`seal`].
pub(super) fn unseal(sealed: &[u8]) -> Result<DestinationSecrets, Fault> {
    serde_json::from_slice(sealed).map_err(|error| unreadable(&error))
}

/// Where, but not what: the error's own words may repeat a secret.
fn unreadable(error: &serde_json::Error) -> Fault {
    Fault::unreadable("a destination's secrets")(format!("column {}", error.column()).into())
}
