//! The usual mistakes, tried one after the other until the signature fits.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use doorstep_core::signature::{SharedSecret, TIMESTAMP_HEADER, VerifyingKey};
use doorstep_core::time::{Millis, Timestamp};

use super::layout::{self, Layout};
use super::{Request, key};

/// Whether it fits when the clock is left out of it.
pub(super) fn timeless(request: &Request, body: &[u8], key: &VerifyingKey) -> bool {
    let signed_at = request.headers.iter().find(|(name, _)| name == TIMESTAMP_HEADER);
    let signed_at = signed_at.and_then(|(_, secs)| secs.parse().ok()).map_or(Timestamp(0), Timestamp::from_secs);
    request.verify(body, key, signed_at, Millis::MAX).is_ok()
}

/// What happened to the body on its way.
pub(super) fn body(request: &Request, key: &VerifyingKey) -> Option<String> {
    let fits = |(_, body): &(&str, Vec<u8>)| timeless(request, body, key);
    let (how, _) = bodies(&request.body).into_iter().find(fits)?;
    Some(format!(
        "the signature fits the body {how}: verify the bytes as they came, before anything parses or changes them"
    ))
}

/// What is wrong with the secret.
pub(super) fn secret(request: &Request, secret: &str) -> Option<String> {
    let fits = |(_, key): &(&str, VerifyingKey)| timeless(request, &request.body, key);
    let (how, _) = secrets(secret).into_iter().find(fits)?;
    Some(format!("the signature fits the secret {how}"))
}

fn bodies(body: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let mut tries = Vec::new();
    for end in [&b"\r\n"[..], b"\n"] {
        tries.extend(body.strip_suffix(end).map(|rest| ("without the trailing newline", rest.to_vec())));
    }
    tries.push(("with a trailing newline", [body, b"\n"].concat()));
    tries.extend(body.strip_prefix(b"\xef\xbb\xbf").map(|rest| ("without the byte order mark", rest.to_vec())));
    let Ok(text) = std::str::from_utf8(body) else { return tries };
    tries.push(("without white space around it", text.trim().into()));
    tries.push(("with LF instead of CRLF", text.replace("\r\n", "\n").into()));
    tries.push(("with CRLF instead of LF", text.replace("\r\n", "\n").replace('\n', "\r\n").into()));
    for (how, layout) in [
        ("as compact JSON", Layout::COMPACT),
        ("as JSON with spaces after commas and colons", Layout::SPACED),
        ("as JSON indented by two spaces", Layout::indented(2)),
        ("as JSON indented by four spaces", Layout::indented(4)),
    ] {
        let Some(laid) = layout::laid_out(text, layout) else { continue };
        tries.push((how, layout::escaped(&laid).into()));
        tries.push((how, laid.replace("\\/", "/").into()));
        tries.push((how, laid.replace('/', "\\/").into()));
        tries.push((how, laid.into()));
    }
    // Reading and writing sorts the names, as many languages do.
    if let Ok(read) = serde_json::from_str::<serde_json::Value>(text) {
        tries.push(("as compact JSON with sorted names", read.to_string().into()));
    }
    tries
}

fn secrets(given: &str) -> Vec<(&'static str, VerifyingKey)> {
    let bare = given.trim().trim_matches(['"', '\'']);
    let body = bare.strip_prefix("whsec_").unwrap_or(bare);
    let standard = body.trim_end_matches('=').replace('-', "+").replace('_', "/");
    let mut tries = Vec::new();
    let mut put = |how, key: Option<VerifyingKey>| tries.extend(key.map(|key| (how, key)));
    let shared = |bytes: &[u8]| SharedSecret::new(bytes).ok().map(VerifyingKey::Shared);
    put("without the quotes or white space around it", key(bare).ok());
    put("with `whsec_` in front of it", key(&format!("whsec_{bare}")).ok());
    put("with `whpk_` in front of it", key(&format!("whpk_{bare}")).ok());
    put(
        "once its `-` and `_` are written `+` and `/`: it was given in URL-safe base64",
        key(&format!("whsec_{standard}")).ok(),
    );
    put("as plain text: the sender did not decode its base64", shared(body.as_bytes()));
    put("as plain text with its prefix: the sender did not decode its base64", shared(bare.as_bytes()));
    let twice = STANDARD_NO_PAD.decode(body.trim_end_matches('=')).ok();
    let twice = twice.and_then(|text| String::from_utf8(text).ok());
    put("once its base64 is decoded: it was encoded twice", twice.as_deref().and_then(|text| key(text).ok()));
    let hex = layout::from_hex(body).map(|bytes| URL_SAFE_NO_PAD.encode(bytes).replace('-', "+").replace('_', "/"));
    put("read as hexadecimal: `whsec_` is followed by base64", hex.and_then(|text| key(&format!("whsec_{text}")).ok()));
    tries
}
