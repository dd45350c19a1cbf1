//! What signer and verifier promise together, judged by published vectors and by the standard's own library.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::time::Millis;

const CURRENT: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const OLD: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
const ASYMMETRIC: &str = "whsk_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const ID: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
const SECS: i64 = 1_614_265_330;
const BODY: &[u8] = br#"{"test": 2432232314}"#;

fn secret(text: &str) -> Secret {
    text.parse().unwrap()
}

fn keys(secrets: &[&str]) -> Vec<VerifyingKey> {
    secrets.iter().map(|text| secret(text).verifying_key()).collect()
}

fn signed(secrets: &[&str], extra: &[ExtraStyle]) -> Vec<Header> {
    let signer = Signer::new(secrets.iter().map(|text| secret(text)).collect(), extra.iter().copied().collect());
    signer.unwrap().sign(&Message { id: ID, at: Timestamp::from_secs(SECS), body: BODY }).unwrap()
}

fn value<'a>(headers: &'a [Header], name: &str) -> &'a str {
    &headers.iter().find(|header| header.name == name).unwrap().value
}

fn replace(headers: &mut [Header], name: &str, with: &str) {
    headers.iter_mut().find(|header| header.name == name).unwrap().value = with.to_owned();
}

fn lookup<'a>(headers: &'a [Header]) -> impl Fn(&'static str) -> Option<&'a [u8]> {
    move |name| headers.iter().find(|header| header.name == name).map(|header| header.value.as_bytes())
}

fn check(headers: &[Header], body: &[u8], secrets: &[&str]) -> Result<(), VerifyError> {
    verify(lookup(headers), body, &keys(secrets), Timestamp::from_secs(SECS), TOLERANCE_DEFAULT)
}

#[test]
fn published_vectors_hold_in_both_directions() {
    let bytes_0_to_31 = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    let contact = r#"{"type":"contact.created","timestamp":"2022-11-03T20:26:10.344522Z","data":{"id":"1f81eb52-5198-4599-803e-771906343485"}}"#;
    for (text, id, secs, body, token) in [
        (
            OLD,
            "msg_27UH4WbU6Z5A5EzD8u03UvzRbpk",
            1_649_367_553,
            r#"{"email":"test@example.com","username":"test_user"}"#,
            "v1,tZ1I4/hDygAJgO5TYxiSd6Sd0kDW6hPenDe+bTa3Kkw=",
        ),
        (CURRENT, ID, SECS, r#"{"test": 2432232314}"#, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="),
        (
            bytes_0_to_31,
            "msg_2KWPBgLlAfxdpx2AI54pPJ85f4W",
            1_674_087_231,
            contact,
            "v1,4PMU5Dl90B4kgwxDpwuMZ/cnZ5ztf+Y+kviYQD66rJg=",
        ),
        (
            ASYMMETRIC,
            "msg_2KWPBgLlAfxdpx2AI54pPJ85f4W",
            1_674_087_231,
            contact,
            "v1a,9WMPN5fBW9vm1uGlvFzBO4lpdfFKN4AQCSr2vrWsFuOibXSOTWlcWrPRSWk+YpmD9fAwgYREKtLcYCyZrvXFBw==",
        ),
    ] {
        // Whatever the milliseconds: signatures carry whole seconds.
        let message = Message { id, at: Timestamp(secs * 1_000 + 999), body: body.as_bytes() };
        let headers = Signer::new(vec![secret(text)], BTreeSet::new()).unwrap().sign(&message).unwrap();
        let expected = [(ID_HEADER, id), (TIMESTAMP_HEADER, &secs.to_string()), (SIGNATURE_HEADER, token)];
        assert_eq!(headers, expected.map(|(name, value)| Header { name, value: value.to_owned() }));
        let now = Timestamp::from_secs(secs);
        assert_eq!(verify(lookup(&headers), body.as_bytes(), &keys(&[text]), now, Millis::ZERO), Ok(()));
    }
}

/// Expected values from Python's `hmac`, with the secret's text as the key.
#[test]
fn extra_styles_look_as_the_libraries_of_those_senders_expect() {
    let all = [ExtraStyle::Stripe, ExtraStyle::Github, ExtraStyle::XSignature];
    let headers = signed(&[CURRENT, ASYMMETRIC, OLD], &all);
    let (new, old) = (
        "2e37df5d4a028c51a7f3133d64ae1e300d2c2c900f1b1d49d4369ad2530f8964",
        "95d993ff26ccd698cc4b6d4f2349bddca4f491f3067821823cd5b804f3aef1b6",
    );
    assert_eq!(value(&headers, "x-signature"), format!("scheme=v1,ts=1614265330,sig={new},sig={old}"));
    assert_eq!(value(&headers, "stripe-signature"), format!("t=1614265330,v1={new},v1={old}"));
    assert_eq!(
        value(&headers, "x-hub-signature-256"),
        "sha256=80ec8a89ce3cd22133a1066caecb4d04fea7467657c8514d717ec42c38a5c94c"
    );
    assert_eq!(headers.len(), 6);
}

/// The example in GitHub's documentation, whose secret is a plain text.
#[test]
fn the_mac_agrees_with_githubs_published_example() {
    let tag = mac(b"It's a Secret to Everybody", &[b"Hello, ", b"", b"World!"]);
    let hex: String = tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17");
}

#[test]
fn while_secrets_rotate_each_of_them_verifies_alone_and_the_newest_comes_first() {
    let headers = signed(&[CURRENT, ASYMMETRIC, OLD], &[]);
    let versions: Vec<_> =
        value(&headers, SIGNATURE_HEADER).split(' ').map(|token| token.split_once(',').unwrap().0).collect();
    assert_eq!(versions, ["v1", "v1a", "v1"]);
    assert!(value(&headers, SIGNATURE_HEADER).starts_with("v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE= "));
    for one in [CURRENT, ASYMMETRIC, OLD] {
        assert_eq!(check(&headers, BODY, &[one]), Ok(()));
    }
    let stranger = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    assert_eq!(check(&headers, BODY, &[stranger]), Err(VerifyError::NoMatch { secrets: 1 }));
    assert_eq!(check(&headers, BODY, &[stranger, OLD]), Ok(()));
}

#[test]
fn changing_any_signed_part_breaks_the_signature() {
    for one in [CURRENT, ASYMMETRIC] {
        let good = signed(&[one], &[]);
        let mut other_id = good.clone();
        replace(&mut other_id, ID_HEADER, "msg_p5jXN8AQM9LWM0D4loKWxJel");
        let mut other_second = good.clone();
        replace(&mut other_second, TIMESTAMP_HEADER, "1614265331");
        let no_match = Err(VerifyError::NoMatch { secrets: 1 });
        assert_eq!(check(&other_id, BODY, &[one]), no_match);
        assert_eq!(check(&other_second, BODY, &[one]), no_match);
        assert_eq!(check(&good, br#"{"test": 2432232315}"#, &[one]), no_match);
        assert_eq!(check(&good, br#"{"test":2432232314}"#, &[one]), no_match);
        assert_eq!(check(&good, b"", &[one]), no_match);
    }
}

#[test]
fn every_refusal_names_its_reason() {
    let token = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
    let short = "`v1` is followed by other than 32 bytes in base64";
    let malformed = |nth, why| VerifyError::MalformedToken { nth, why };
    let header = TIMESTAMP_HEADER;
    let many = [token; TOKENS_MAX + 1].join(" ");
    for (name, text, expected) in [
        (ID_HEADER, "", VerifyError::Id(BadId::Empty)),
        (ID_HEADER, "msg.1", VerifyError::Id(BadId::FullStop)),
        (ID_HEADER, "msg 1", VerifyError::Id(BadId::Unprintable)),
        (ID_HEADER, "msg_é", VerifyError::NotText { header: ID_HEADER }),
        (TIMESTAMP_HEADER, "", VerifyError::TimestampNotWhole { header }),
        (TIMESTAMP_HEADER, "1614265330.5", VerifyError::TimestampNotWhole { header }),
        (TIMESTAMP_HEADER, "99999999999999999999", VerifyError::TimestampNotWhole { header }),
        (TIMESTAMP_HEADER, "1614265029", VerifyError::TooOld { header, by_secs: 1 }),
        (TIMESTAMP_HEADER, "1614265631", VerifyError::TooNew { header, by_secs: 1 }),
        (TIMESTAMP_HEADER, "-9223372036854775808", VerifyError::TooOld { header, by_secs: 9_223_372_038_469_040_838 }),
        (SIGNATURE_HEADER, "", VerifyError::NoKnownVersion),
        (SIGNATURE_HEADER, "v2,abc v9z,", VerifyError::NoKnownVersion),
        (SIGNATURE_HEADER, "v1", malformed(1, "it has no comma between version and signature")),
        (SIGNATURE_HEADER, "v2,abc v1,abc", malformed(2, short)),
        (SIGNATURE_HEADER, "v1,", malformed(1, short)),
        (SIGNATURE_HEADER, "v1a,abcd", malformed(1, "`v1a` is followed by other than 64 bytes in base64")),
        (SIGNATURE_HEADER, &many, VerifyError::TooManyTokens),
        (SIGNATURE_HEADER, "v1,AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=", VerifyError::NoMatch { secrets: 2 }),
    ] {
        let mut headers = signed(&[CURRENT], &[]);
        replace(&mut headers, name, text);
        assert_eq!(check(&headers, BODY, &[CURRENT, OLD]), Err(expected), "{name}: {text}");
    }
    for name in [ID_HEADER, TIMESTAMP_HEADER, SIGNATURE_HEADER] {
        let mut headers = signed(&[CURRENT], &[]);
        headers.retain(|header| header.name != name);
        assert_eq!(check(&headers, BODY, &[CURRENT]), Err(VerifyError::Missing { header: name }));
    }
    let no_key = |version, needed| Err(VerifyError::NoKeyFor { version, needed });
    let (shared, public) = ("the destination's `whsec_` secret", "the destination's `whpk_` public key");
    assert_eq!(check(&signed(&[CURRENT], &[]), BODY, &[ASYMMETRIC]), no_key("v1", shared));
    assert_eq!(check(&signed(&[CURRENT], &[]), BODY, &[]), no_key("v1", shared));
    assert_eq!(check(&signed(&[ASYMMETRIC], &[]), BODY, &[CURRENT]), no_key("v1a", public));
}

#[test]
fn one_good_token_is_enough_among_any_others() {
    let mut headers = signed(&[CURRENT], &[]);
    let noisy = format!("v1 v9,x  v1,abc {} v1a,", value(&headers, SIGNATURE_HEADER));
    replace(&mut headers, SIGNATURE_HEADER, &noisy);
    assert_eq!(check(&headers, BODY, &[CURRENT]), Ok(()));
}

#[test]
fn a_timestamp_at_the_edge_of_the_tolerance_is_accepted() {
    let headers = signed(&[CURRENT], &[]);
    for (now, ok) in [(SECS - 301, false), (SECS - 300, true), (SECS + 300, true), (SECS + 301, false)] {
        let now = Timestamp::from_secs(now);
        assert_eq!(verify(lookup(&headers), BODY, &keys(&[CURRENT]), now, TOLERANCE_DEFAULT).is_ok(), ok, "{now:?}");
    }
}

#[test]
fn messages_tell_what_is_wrong_and_what_to_do() {
    for (error, text) in [
        (
            VerifyError::Missing { header: ID_HEADER },
            "the header `webhook-id` is missing: was the request signed, and does every proxy pass the header on?",
        ),
        (
            VerifyError::Id(BadId::FullStop),
            "the header `webhook-id` is malformed: the event ID contains a full stop, which separates the parts that are signed: leave it out",
        ),
        (
            VerifyError::TooNew { header: TIMESTAMP_HEADER, by_secs: 7 },
            "the timestamp in `webhook-timestamp` is in the future by 7 s more than allowed: is the receiver's clock behind?",
        ),
        (
            VerifyError::NoMatch { secrets: 2 },
            "the signature does not match any of 2 secrets: another secret, or the body was changed on its way",
        ),
    ] {
        assert_eq!(error.to_string(), text);
    }
}

#[test]
fn a_signer_is_refused_when_it_could_not_sign() {
    let new = |secrets: Vec<Secret>, extra: &[ExtraStyle]| {
        Signer::new(secrets, extra.iter().copied().collect()).map(|_| ()).map_err(|error| error.to_string())
    };
    let style = ExtraStyle::Github;
    for (got, expected) in [
        (new(vec![], &[]), Err(SignerError::NoSecret)),
        (new(vec![secret(CURRENT); 9], &[]), Err(SignerError::TooManySecrets { given: 9 })),
        (new(vec![secret(CURRENT); 8], &[]), Ok(())),
        (new(vec![secret(ASYMMETRIC)], &[style]), Err(SignerError::NeedsSharedSecret { style })),
        (new(vec![secret(ASYMMETRIC), secret(OLD)], &[style]), Ok(())),
    ] {
        assert_eq!(got, expected.map_err(|error| error.to_string()));
    }
}

#[test]
fn an_id_that_would_blur_the_signed_parts_is_never_signed() {
    let signer = Signer::new(vec![secret(CURRENT)], BTreeSet::new()).unwrap();
    for (id, expected) in [
        ("", BadId::Empty),
        ("evt.1", BadId::FullStop),
        ("evt 1", BadId::Unprintable),
        ("evt\r\nx: y", BadId::Unprintable),
        ("événement", BadId::Unprintable),
    ] {
        assert_eq!(signer.sign(&Message { id, at: Timestamp(0), body: b"" }), Err(expected));
    }
}

#[test]
fn extra_styles_verify_and_name_what_is_wrong() {
    let secrets: Vec<SharedSecret> = [OLD, CURRENT].map(|text| text.parse().unwrap()).to_vec();
    let now = Timestamp::from_secs(SECS);
    for (style, name) in [
        (ExtraStyle::XSignature, "x-signature"),
        (ExtraStyle::Github, "x-hub-signature-256"),
        (ExtraStyle::Stripe, "stripe-signature"),
    ] {
        let verify =
            |headers: &[Header], body: &[u8]| style.verify(lookup(headers), body, &secrets, now, TOLERANCE_DEFAULT);
        let headers = signed(&[CURRENT], &[style]);
        assert_eq!(verify(&headers, BODY), Ok(()));
        assert_eq!(verify(&headers, b"{}"), Err(VerifyError::NoMatch { secrets: 2 }));
        assert_eq!(verify(&[], BODY), Err(VerifyError::Missing { header: name }));
    }
}

#[test]
fn a_malformed_extra_header_is_refused_with_the_reason() {
    let malformed = |header, why| VerifyError::Malformed { header, why };
    let no_signature = "it carries no signature of 64 hexadecimal digits";
    for (style, header, text, expected) in [
        (ExtraStyle::XSignature, "x-signature", "", malformed("x-signature", "its scheme is not `v1`")),
        (ExtraStyle::XSignature, "x-signature", "scheme=v2", malformed("x-signature", "its scheme is not `v1`")),
        (ExtraStyle::XSignature, "x-signature", "scheme=v1", malformed("x-signature", "it carries no timestamp")),
        (
            ExtraStyle::XSignature,
            "x-signature",
            "scheme=v1,ts=1614265030,sig=abc",
            malformed("x-signature", no_signature),
        ),
        (ExtraStyle::Stripe, "stripe-signature", "v1=abc", malformed("stripe-signature", "it carries no timestamp")),
        (
            ExtraStyle::Stripe,
            "stripe-signature",
            "t=now",
            VerifyError::TimestampNotWhole { header: "stripe-signature" },
        ),
        (
            ExtraStyle::Stripe,
            "stripe-signature",
            "t=1",
            VerifyError::TooOld { header: "stripe-signature", by_secs: 1_614_265_029 },
        ),
        (
            ExtraStyle::Github,
            "x-hub-signature-256",
            "sha1=757107ea0eb2509fc211221cce984b8a37570b6d",
            malformed("x-hub-signature-256", no_signature),
        ),
    ] {
        let headers = [Header { name: header, value: text.to_owned() }];
        let secrets = [CURRENT.parse().unwrap()];
        let now = Timestamp::from_secs(SECS);
        assert_eq!(style.verify(lookup(&headers), BODY, &secrets, now, TOLERANCE_DEFAULT), Err(expected), "{text}");
    }
}

#[test]
fn extra_styles_are_named_the_same_in_settings_and_in_messages() {
    for style in [ExtraStyle::XSignature, ExtraStyle::Github, ExtraStyle::Stripe] {
        assert_eq!(serde_json::to_string(&style).unwrap(), format!("\"{style}\""));
    }
}

/// The published library reads the clock itself, so this test has to sign for the present.
#[test]
#[expect(clippy::disallowed_methods, reason = "the judge compares with the system's clock and cannot be told the time")]
fn the_standards_own_library_accepts_our_requests() {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let at = Timestamp(i64::try_from(now.as_millis()).unwrap());
    let body = "{\"text\": \"žluťoučký kůň\"}".as_bytes();
    let secrets = vec![secret(ASYMMETRIC), secret(CURRENT), secret(OLD)];
    let headers = Signer::new(secrets, BTreeSet::new()).unwrap().sign(&Message { id: "evt_1", at, body }).unwrap();
    let map: http::HeaderMap = headers
        .iter()
        .map(|header| (http::HeaderName::from_static(header.name), header.value.parse().unwrap()))
        .collect();
    for text in [CURRENT, OLD] {
        let judge = standardwebhooks::Webhook::new(text).unwrap();
        judge.verify(body, &map).unwrap();
        assert!(judge.verify(b"{}", &map).is_err());
    }
}

fn any_secret() -> impl Strategy<Value = Secret> {
    let shared = prop::collection::vec(any::<u8>(), 24..=64);
    prop_oneof![
        shared.prop_map(|bytes| Secret::Shared(SharedSecret::new(&bytes).unwrap())),
        any::<[u8; 32]>().prop_map(|seed| Secret::Private(PrivateKey::from_seed(&seed).unwrap())),
    ]
}

proptest! {
    #[test]
    fn whatever_is_signed_verifies_and_no_flipped_bit_does(
        secret in any_secret(), id in "[!-\\-/-~]{1,64}", at in any::<i64>(),
        body in prop::collection::vec(any::<u8>(), 1..200), at_byte in any::<prop::sample::Index>(), bit in 0..8u8,
    ) {
        let now = Timestamp(at);
        let headers = Signer::new(vec![secret.clone()], BTreeSet::new()).unwrap()
            .sign(&Message { id: &id, at: now, body: &body }).unwrap();
        let keys = [secret.verifying_key()];
        prop_assert_eq!(verify(lookup(&headers), &body, &keys, now, Millis::ZERO), Ok(()));

        let mut flipped = body.clone();
        flipped[at_byte.index(body.len())] ^= 1 << bit;
        prop_assert_eq!(
            verify(lookup(&headers), &flipped, &keys, now, Millis::ZERO),
            Err(VerifyError::NoMatch { secrets: 1 })
        );
        let mut headers = headers;
        let mut token = value(&headers, SIGNATURE_HEADER).as_bytes().to_vec();
        let n = at_byte.index(token.len());
        token[n] ^= 1 << bit;
        replace(&mut headers, SIGNATURE_HEADER, &String::from_utf8_lossy(&token));
        prop_assert!(verify(lookup(&headers), &body, &keys, now, Millis::ZERO).is_err());
    }

    #[test]
    fn the_library_and_we_agree_on_every_signature(
        bytes in prop::collection::vec(any::<u8>(), 24..=64), id in "[a-zA-Z0-9_-]{1,40}", secs in 0..1i64 << 40, body in ".{0,200}",
    ) {
        let ours = Secret::Shared(SharedSecret::new(&bytes).unwrap());
        let judge = standardwebhooks::Webhook::new(&ours.reveal()).unwrap();
        let message = Message { id: &id, at: Timestamp::from_secs(secs), body: body.as_bytes() };
        let headers = Signer::new(vec![ours], BTreeSet::new()).unwrap().sign(&message).unwrap();
        prop_assert_eq!(value(&headers, SIGNATURE_HEADER), judge.sign(&id, secs, body.as_bytes()).unwrap());
    }

    #[test]
    fn no_header_makes_a_verifier_panic(
        id in any::<Vec<u8>>(), timestamp in "-?[0-9+.]{0,22}",
        signature in prop_oneof![".*", "((v1|v1a|sha256|t|sig|ts|scheme)[,=][a-zA-Z0-9+/=]{0,90}[ ,]?){0,5}"],
        now in any::<i64>(), tolerance in any::<u64>(),
    ) {
        let keys = keys(&[CURRENT, ASYMMETRIC]);
        let secrets = [CURRENT.parse().unwrap()];
        let header = |name| Some(match name {
            ID_HEADER => id.as_slice(),
            TIMESTAMP_HEADER => timestamp.as_bytes(),
            _ => signature.as_bytes(),
        });
        prop_assert!(verify(header, BODY, &keys, Timestamp(now), Millis(tolerance)).is_err());
        for style in [ExtraStyle::XSignature, ExtraStyle::Github, ExtraStyle::Stripe] {
            prop_assert!(style.verify(header, BODY, &secrets, Timestamp(now), Millis(tolerance)).is_err());
        }
    }

    #[test]
    fn no_text_makes_reading_a_key_panic(text in prop_oneof![".*", "wh(sec|sk|pk)_[a-zA-Z0-9+/=]{0,100}"]) {
        let _ = text.parse::<Secret>();
        let _ = text.parse::<VerifyingKey>();
    }
}
