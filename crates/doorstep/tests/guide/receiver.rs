use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

const TOLERANCE_SECONDS: u64 = 5 * 60;

/// Fails unless the body was signed with the secret, within five minutes of `now`. `header` finds a header by its name.
pub fn verify<'a>(
    header: impl Fn(&str) -> Option<&'a str>,
    body: &[u8],
    secret: &str,
    now: SystemTime,
) -> Result<(), &'static str> {
    let id = header("webhook-id").ok_or("webhook-id is missing")?;
    let timestamp = header("webhook-timestamp").ok_or("webhook-timestamp is missing")?;
    let signatures = header("webhook-signature").ok_or("webhook-signature is missing")?;

    let sent_at: u64 = timestamp.parse().map_err(|_| "the timestamp is not a number")?;
    let now = now.duration_since(UNIX_EPOCH).map_err(|_| "our own clock is wrong")?.as_secs();
    if now.abs_diff(sent_at) > TOLERANCE_SECONDS {
        return Err("the timestamp is too old or too new");
    }

    let key = secret.strip_prefix("whsec_").unwrap_or(secret);
    let key = STANDARD.decode(key).map_err(|_| "the secret is not base64")?;
    let key = hmac::Key::new(hmac::HMAC_SHA256, &key);
    let signed = [id.as_bytes(), b".", timestamp.as_bytes(), b".", body].concat();
    let fits = |token: &str| {
        let given = token.strip_prefix("v1,").and_then(|given| STANDARD.decode(given).ok());
        given.is_some_and(|given| hmac::verify(&key, &signed, &given).is_ok())
    };
    if signatures.split(' ').any(fits) { Ok(()) } else { Err("no signature fits") }
}
