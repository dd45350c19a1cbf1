use std::collections::BTreeSet;

use doorstep_core::signature::{Message, Signer};

use super::*;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);

/// A request that was signed for this body with this secret.
fn signed(body: &str, secret: &str) -> Request {
    let signer = Signer::new(vec![secret.parse().unwrap()], BTreeSet::new()).unwrap();
    let headers = signer.sign(&Message { id: "evt_1", at: NOW, body: body.as_bytes() }).unwrap();
    let headers = headers.into_iter().map(|header| (header.name.to_owned(), header.value)).collect();
    Request { headers, body: body.as_bytes().to_vec() }
}

fn why(request: &Request, secret: &str, now: Timestamp) -> String {
    judge(request, secret, now, TOLERANCE_DEFAULT).unwrap_err()
}

#[test]
fn what_was_done_to_a_body_is_told() {
    for (sent, seen, told) in [
        ("{}", "{}\n", "without the trailing newline"),
        ("{}", "{}\r\n", "without the trailing newline"),
        ("{}\n", "{}", "with a trailing newline"),
        ("{}", "\u{feff}{}", "without the byte order mark"),
        ("a\nb", "a\r\nb", "with LF instead of CRLF"),
        ("a\r\nb", "a\nb", "with CRLF instead of LF"),
        (r#"{"b":1.0,"a":"x y"}"#, r#"{"b": 1.0, "a": "x y"}"#, "as compact JSON"),
        (r#"{"b": 1, "a": "ü"}"#, r#"{"b":1,"a":"ü"}"#, "as JSON with spaces"),
        (r#"{"a":"\u00fc"}"#, r#"{"a": "ü"}"#, "as compact JSON"),
        (r#"{"a":"https:\/\/x"}"#, r#"{"a":"https://x"}"#, "as compact JSON"),
        ("{\n  \"a\": 1\n}", r#"{"a":1}"#, "as JSON indented by two spaces"),
        (r#"{"a":1,"b":2}"#, r#"{"b":2,"a":1}"#, "with sorted names"),
    ] {
        let mut request = signed(sent, SECRET);
        assert_eq!(judge(&request, SECRET, NOW, TOLERANCE_DEFAULT), Ok(()));
        request.body = seen.as_bytes().to_vec();
        let why = why(&request, SECRET, NOW);
        assert!(why.contains("does not match") && why.contains(told), "{seen:?}: {why}");
    }
}

#[test]
fn what_is_wrong_with_a_secret_is_told() {
    let request = signed("{}", SECRET);
    let bare = SECRET.strip_prefix("whsec_").unwrap();
    for (given, told) in [
        (format!("\"{SECRET}\""), "without the quotes"),
        (format!("{SECRET}\n"), "white space"),
        (bare.to_owned(), "with `whsec_` in front of it"),
    ] {
        let why = why(&request, &given, NOW);
        assert!(why.contains(told), "{given}: {why}");
    }
    let raw = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, bare);
    let undecoded = signed("{}", &format!("whsec_{raw}"));
    assert!(why(&undecoded, SECRET, NOW).contains("did not decode its base64"));
    let other = why(&signed("{}", &SECRET.replace("MfKQ", "MfKR")), SECRET, NOW);
    assert!(other.contains("does not match") && !other.contains('\n'), "{other}");
}

#[test]
fn a_wrong_time_is_told_apart_from_a_wrong_signature() {
    let mut request = signed("{}", SECRET);
    let late = why(&request, SECRET, NOW + Millis::from_secs(310));
    assert!(late.contains("too old by 10 s") && late.contains("the signature itself fits"), "{late}");
    let early = why(&request, SECRET, NOW - Millis::from_secs(400));
    assert!(early.contains("in the future by 100 s"), "{early}");
    request.body = b"[]".to_vec();
    assert!(why(&request, SECRET, NOW + Millis::from_secs(310)).contains("does not fit either"));
    request.headers.remove(0);
    assert!(why(&request, SECRET, NOW).contains("`webhook-id` is missing"));
}

#[test]
fn headers_are_read_as_people_have_them() {
    let expected = vec![("webhook-id".to_owned(), "evt_1".to_owned())];
    for text in ["POST / HTTP/1.1\r\nWebhook-Id: evt_1\r\n\r\n", "> webhook-id: evt_1", r#"{"Webhook-ID": "evt_1"}"#] {
        assert_eq!(headers(text), expected, "{text}");
    }
}
