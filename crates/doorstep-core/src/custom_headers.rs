//! Headers that a destination or an event adds to its requests, and which of them nobody may see afterwards.

use std::fmt;

use thiserror::Error;
use zeroize::Zeroizing;

/// So many headers may be added to a request.
pub const HEADERS_MAX: usize = 32;
/// A name may be this long.
pub const NAME_BYTES_MAX: usize = 128;
/// A value may be this long.
pub const VALUE_BYTES_MAX: usize = 4_096;
/// All names and values together may be this long.
pub const TOTAL_BYTES_MAX: usize = 16_384;

/// Headers that may be added to a request: names in lower case and each only once, values that cannot end their line.
///
/// Any value may be a secret: `Debug` shows none, and each is wiped when it is dropped.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct CustomHeaders(Vec<(String, Zeroizing<String>)>);

/// What is wrong with a header, for the person who wrote it. No message contains a value.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum HeaderFault {
    #[error("more than {HEADERS_MAX} headers; leave some out")]
    TooMany,
    #[error("the headers are longer than {TOTAL_BYTES_MAX} bytes together; shorten them")]
    TooLong,
    #[error("`{0}` is not a header name; use letters, digits and `-`, at most {NAME_BYTES_MAX} of them")]
    BadName(String),
    #[error("the header `{0}` is set by Doorstep or by the connection and cannot be changed; remove it")]
    Reserved(String),
    #[error("the header `{0}` is given twice; join its values")]
    Repeated(String),
    #[error("the value of header `{0}` is longer than {VALUE_BYTES_MAX} bytes; shorten it")]
    ValueTooLong(String),
    #[error(
        "the value of header `{0}` may hold only visible ASCII characters, and spaces between them; encode the others"
    )]
    BadValue(String),
}

impl CustomHeaders {
    pub fn parse<'a>(headers: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, HeaderFault> {
        let mut kept = Self::default();
        for (name, value) in headers {
            kept.add(checked_name(name)?, value)?;
        }
        Ok(kept)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn add(&mut self, name: String, value: &str) -> Result<(), HeaderFault> {
        if self.0.len() == HEADERS_MAX {
            return Err(HeaderFault::TooMany);
        }
        if self.0.iter().any(|(earlier, _)| *earlier == name) {
            return Err(HeaderFault::Repeated(name));
        }
        if value.len() > VALUE_BYTES_MAX {
            return Err(HeaderFault::ValueTooLong(name));
        }
        if !is_safe_value(value) {
            return Err(HeaderFault::BadValue(name));
        }
        if self.bytes() + name.len() + value.len() > TOTAL_BYTES_MAX {
            return Err(HeaderFault::TooLong);
        }
        self.0.push((name, Zeroizing::new(value.to_owned())));
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.0.iter().map(|(name, value)| name.len() + value.len()).sum()
    }
}

impl fmt::Debug for CustomHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.0.iter().map(|(name, _)| (name, "***"))).finish()
    }
}

/// Whether the value of this header, in a request or in an answer, must be masked wherever people or logs see it.
pub fn is_sensitive(name: &str) -> bool {
    // Asked for every header of every attempt: few names end with one of these letters.
    let endings: &[&str] = match name.bytes().last().map(|last| last.to_ascii_lowercase()) {
        Some(b'n') => &["authorization", "token"],
        Some(b'e') => &["authenticate", "cookie", "signature"],
        Some(b't') => &["secret"],
        Some(b'd') => &["password"],
        Some(b'y') => &["key"],
        Some(b'l') => &["credential"],
        Some(_) | None => &[],
    };
    endings.iter().any(|ending| {
        let from = name.len().checked_sub(ending.len());
        from.is_some_and(|from| name.as_bytes()[from..].eq_ignore_ascii_case(ending.as_bytes()))
    })
}

fn checked_name(name: &str) -> Result<String, HeaderFault> {
    if !is_token(name) || name.len() > NAME_BYTES_MAX {
        return Err(HeaderFault::BadName(name.chars().take(NAME_BYTES_MAX).collect()));
    }
    let name = name.to_ascii_lowercase();
    if is_reserved(&name) { Err(HeaderFault::Reserved(name)) } else { Ok(name) }
}

/// A `token` of RFC 9110, 5.6.2.
fn is_token(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

/// Stricter than the protocol: tabs and bytes over 0x7f are legal, and read differently by different receivers.
fn is_safe_value(value: &str) -> bool {
    value.bytes().all(|b| b == b' ' || b.is_ascii_graphic()) && !value.starts_with(' ') && !value.ends_with(' ')
}

fn is_reserved(name: &str) -> bool {
    // Behind CGI and its heirs `webhook_id` and `webhook-id` are the same variable.
    let name = name.replace('_', "-");
    RESERVED.contains(&name.as_str()) || RESERVED_STARTS.iter().any(|start| name.starts_with(start))
}

const RESERVED: [&str; 38] = [
    // Of one connection, not of a message.
    "connection",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "http2-settings",
    // How the message is framed and read.
    "host",
    "content-length",
    "content-encoding",
    "content-type",
    "accept-encoding",
    "expect",
    // Who sends it, and when.
    "user-agent",
    "cookie",
    "date",
    "via",
    "forwarded",
    "x-real-ip",
    // What Doorstep says itself.
    "x-event-id",
    "x-event-type",
    "x-delivery-id",
    "x-delivery-attempt",
    "x-replay-id",
    "x-sequence",
    "x-ordering-key",
    "x-schema-version",
    "x-produced-at",
    "x-signature",
    "stripe-signature",
    "signature",
    "signature-input",
    "content-digest",
    "traceparent",
    "tracestate",
    "idempotency-key",
    // Opens a metadata service.
    "metadata",
    "metadata-flavor",
];

const RESERVED_STARTS: [&str; 14] = [
    "proxy-",
    "x-forwarded-",
    "webhook-",
    "ce-",
    "x-hub-signature",
    "x-aws-ec2-",
    "x-amz-",
    "x-amzn-",
    "x-google",
    "x-goog-",
    "x-gfe",
    "x-azure-",
    "x-fd-",
    "x-ms-",
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(name: &str, value: &str) -> Result<CustomHeaders, HeaderFault> {
        CustomHeaders::parse([(name, value)])
    }

    #[test]
    fn ordinary_headers_are_kept_in_order_and_in_lower_case() {
        let given = [("X-Shop", "12"), ("Authorization", "Bearer abc def"), ("x-empty", ""), ("Accept", "*/*")];
        let kept = CustomHeaders::parse(given).unwrap();
        let expected = [("x-shop", "12"), ("authorization", "Bearer abc def"), ("x-empty", ""), ("accept", "*/*")];
        assert!(kept.iter().eq(expected));
        assert!(!kept.is_empty() && CustomHeaders::parse([]).unwrap().is_empty());
    }

    #[test]
    fn what_doorstep_or_the_connection_says_cannot_be_overridden() {
        // Written out, not taken from the lists above: what is deleted there must be missed here.
        let names = "connection keep-alive proxy-connection proxy-authenticate proxy-authorization te trailer \
            transfer-encoding upgrade host content-length content-encoding content-type accept-encoding expect user-agent \
            cookie date via forwarded x-forwarded-for x-forwarded-host x-forwarded-proto x-real-ip webhook-id \
            webhook-timestamp webhook-signature ce-id ce-type signature signature-input content-digest traceparent \
            tracestate idempotency-key metadata metadata-flavor x-aws-ec2-metadata-token \
            x-aws-ec2-metadata-token-ttl-seconds x-amz-date x-amzn-trace-id x-google x-google-metadata-request \
            x-goog-iap x-gfe x-gfe-x x-azure-ref x-fd-healthprobe x-ms-version x-event-id x-event-type x-delivery-id \
            x-delivery-attempt x-replay-id x-sequence x-ordering-key x-schema-version x-produced-at x-signature x-hub-signature x-hub-signature-256 stripe-signature";
        for name in names.split_whitespace() {
            for spelled in [name.to_owned(), name.to_uppercase(), name.replace('-', "_")] {
                let fault = parse(&spelled, "1").err();
                assert_eq!(fault, Some(HeaderFault::Reserved(spelled.to_lowercase())), "{spelled}");
            }
        }
        for name in ["X-Event", "x-hub", "x-request-id", "hosts", "accept", "ce", "x-msg", "webhook", "dates"] {
            assert!(parse(name, "1").is_ok(), "{name}");
        }
    }

    #[test]
    fn a_name_is_a_token() {
        for name in ["", " ", "x y", "x:", ":path", "x\r\ny", "x\0", "é", "x(", "x/y", "\"x\"", "x\t"] {
            assert_eq!(parse(name, "1"), Err(HeaderFault::BadName(name.to_owned())));
        }
        assert!(parse(&"x".repeat(NAME_BYTES_MAX), "1").is_ok());
        let long = parse(&"x".repeat(NAME_BYTES_MAX * 9), "1").unwrap_err().to_string();
        assert!(long.len() < NAME_BYTES_MAX * 2, "{}", long.len());
    }

    #[test]
    fn a_value_cannot_end_its_line_or_hide_bytes() {
        for value in ["a\r\nx-evil: 1", "a\n", "a\r", "a\0b", "a\tb", "\u{7f}", "é", " a", "a ", " ", "\u{a0}"] {
            let fault = parse("x-a", value).unwrap_err();
            assert_eq!(fault, HeaderFault::BadValue("x-a".to_owned()), "{value:?}");
            assert!(fault.to_string().contains("`x-a`"));
        }
    }

    #[test]
    fn numbers_and_sizes_are_bounded() {
        let named = |n: usize| (0..n).map(|i| format!("x-{i}")).collect::<Vec<_>>();
        let of = |n: usize, value: &str| CustomHeaders::parse(named(n).iter().map(|name| (name.as_str(), value))).err();
        assert_eq!(of(HEADERS_MAX, "1"), None);
        assert_eq!(of(HEADERS_MAX + 1, "1"), Some(HeaderFault::TooMany));
        assert_eq!(of(1, &"v".repeat(VALUE_BYTES_MAX)), None);
        assert_eq!(of(1, &"v".repeat(VALUE_BYTES_MAX + 1)), Some(HeaderFault::ValueTooLong("x-0".to_owned())));
        assert_eq!(of(4, &"v".repeat(TOTAL_BYTES_MAX / 4 - 3)), None);
        assert_eq!(of(4, &"v".repeat(TOTAL_BYTES_MAX / 4 - 2)), Some(HeaderFault::TooLong));
    }

    #[test]
    fn a_name_is_given_once_in_any_case() {
        let fault = CustomHeaders::parse([("X-A", "1"), ("x-b", "1"), ("x-a", "2")]);
        assert_eq!(fault, Err(HeaderFault::Repeated("x-a".to_owned())));
    }

    #[test]
    fn secrets_are_known_by_their_names() {
        for name in [
            "Authorization",
            "Proxy-Authorization",
            "WWW-Authenticate",
            "proxy-authenticate",
            "Cookie",
            "Set-Cookie",
            "X-Auth-Token",
            "X-API-Key",
            "api_key",
            "apikey",
            "x-client-secret",
            "x-password",
            "X-CREDENTIAL",
            "x-shop-signature",
        ] {
            assert!(is_sensitive(name), "{name}");
        }
        for name in ["content-type", "x-request-id", "retry-after", "", "x-keys-count"] {
            assert!(!is_sensitive(name), "{name}");
        }
    }

    #[test]
    fn no_value_is_seen_when_headers_are_printed() {
        let kept = CustomHeaders::parse([("x-shop", "hunter2"), ("authorization", "hunter2")]).unwrap();
        assert_eq!(format!("{kept:?}"), r#"{"x-shop": "***", "authorization": "***"}"#);
    }

    proptest! {
        #[test]
        fn what_is_accepted_cannot_split_a_request(
            name in prop_oneof![any::<String>(), "[xX][-_a-zA-Z0-9]{0,12}", "\\PC{1,9}"],
            value in prop_oneof![any::<String>(), "[ -~]{0,20}", "[ -~\r\n\t]{0,20}"],
        ) {
            let Ok(kept) = parse(&name, &value) else { return Ok(()) };
            for (name, value) in kept.iter() {
                prop_assert!(!name.contains([':', ' ', '\r', '\n', '\0']) && name.is_ascii());
                prop_assert!(!value.contains(|c: char| c.is_control() || !c.is_ascii()));
                prop_assert_eq!(value.trim(), value);
            }
        }
    }
}
