//! What is shown of a certificate: which one it is, and until when it is good.

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use utoipa::ToSchema;

use crate::when::Given;

#[derive(Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct CertificateView {
    /// Of the whole certificate, in hexadecimal, as `openssl x509 -fingerprint -sha256` says it.
    sha256: String,
    /// Receivers refuse it from then on.
    #[schema(required)]
    not_after: Option<Given>,
}

impl CertificateView {
    /// Of the first certificate in a text that the sender has accepted.
    pub(super) fn of(pem: &str) -> Option<Self> {
        let der = der(pem)?;
        let sha256 = digest(&SHA256, &der).as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        Some(Self { sha256, not_after: not_after(&der) })
    }
}

fn der(pem: &str) -> Option<Vec<u8>> {
    let (_, rest) = pem.split_once("-----BEGIN CERTIFICATE-----")?;
    let (body, _) = rest.split_once("-----END CERTIFICATE-----")?;
    let body: String = body.split_whitespace().collect();
    STANDARD.decode(body).ok()
}

const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// RFC 5280, 4.1: `Certificate` holds `TBSCertificate`, and that a version, a serial number, an algorithm, the issuer, and
/// the validity.
fn not_after(certificate: &[u8]) -> Option<Given> {
    let (_, certificate, _) = element(certificate)?;
    let (_, signed, _) = element(certificate)?;
    let (tag, _, mut rest) = element(signed)?;
    if tag == VERSION {
        (_, _, rest) = element(rest)?;
    }
    (_, _, rest) = element(rest)?;
    (_, _, rest) = element(rest)?;
    let (tag, validity, _) = element(rest)?;
    let (_, _, rest) = (tag == SEQUENCE).then(|| element(validity))??;
    let (tag, text, _) = element(rest)?;
    let text = std::str::from_utf8(text).ok().filter(|text| text.is_ascii())?;
    let (year, rest) = match tag {
        UTC_TIME => text.split_at_checked(2)?,
        GENERALIZED_TIME => text.split_at_checked(4)?,
        _ => return None,
    };
    let century = match tag {
        UTC_TIME if year < "50" => "20",
        UTC_TIME => "19",
        _ => "",
    };
    let part = |at: usize| rest.get(2 * at..2 * at + 2);
    let (month, day, hour, minute, second) = (part(0)?, part(1)?, part(2)?, part(3)?, part(4)?);
    Given::parse(&format!("{century}{year}-{month}-{day}T{hour}:{minute}:{second}Z")).ok()
}

/// The tag and the content of what comes first, and what follows it.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (tag, rest) = der.split_first()?;
    let (length, rest) = rest.split_first()?;
    let (length, rest) = match length {
        0..=0x7f => (usize::from(*length), rest),
        0x81..=0x83 => {
            let (length, rest) = rest.split_at_checked(usize::from(length & 0x7f))?;
            (length.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((*tag, content, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Before 2050 and after: the two are written differently.
    const SAMPLES: [(&str, &str, &str); 2] = [
        (
            "-----BEGIN CERTIFICATE-----\n\
             MIIBezCCASGgAwIBAgIUc6KrLhzsR6t+a1q8/31kwTAfGz8wCgYIKoZIzj0EAwIw\n\
             EzERMA8GA1UEAwwIZG9vcnN0ZXAwHhcNMjYxMTE1MTM1MDM0WhcNMzYxMTEyMTM1\n\
             MDM0WjATMREwDwYDVQQDDAhkb29yc3RlcDBZMBMGByqGSM49AgEGCCqGSM49AwEH\n\
             A0IABFZS771IWZp+S7h+TvlZZmRwGoTj/YJPD+yVRytqgZVDHc+aGUUuY1w9oYX3\n\
             qbqwoIp7BUzO2Yl9eEqFO2J6PBOjUzBRMB0GA1UdDgQWBBSKWxnMm6ls5JqUyoxU\n\
             YC/CcFY/KjAfBgNVHSMEGDAWgBSKWxnMm6ls5JqUyoxUYC/CcFY/KjAPBgNVHRMB\n\
             Af8EBTADAQH/MAoGCCqGSM49BAMCA0gAMEUCIQDacHi9+Kjd/uGSPRhdi945Kb7H\n\
             /Zx33BQqjDzSq+0EdwIgWGFahijokoHjMBjqFWshIDrxmOBT5pJtrPtVjMYqzZw=\n\
             -----END CERTIFICATE-----",
            "e3cb477bc899e24971963bfbd36a9afe6a3c8fb51fd6aa8a1815e9751074cf1c",
            "2036-11-12T13:50:34.000Z",
        ),
        (
            "-----BEGIN CERTIFICATE-----\n\
             MIIBfTCCASOgAwIBAgIUNGRBBgNRBisV797bg2LbbesSdFowCgYIKoZIzj0EAwIw\n\
             EzERMA8GA1UEAwwIZG9vcnN0ZXAwIBcNMjYxMTE1MTM1MDM0WhgPMjA2MTAyMDQx\n\
             MzUwMzRaMBMxETAPBgNVBAMMCGRvb3JzdGVwMFkwEwYHKoZIzj0CAQYIKoZIzj0D\n\
             AQcDQgAEVlLvvUhZmn5LuH5O+VlmZHAahOP9gk8P7JVHK2qBlUMdz5oZRS5jXD2h\n\
             hfepurCginsFTM7ZiX14SoU7Yno8E6NTMFEwHQYDVR0OBBYEFIpbGcybqWzkmpTK\n\
             jFRgL8JwVj8qMB8GA1UdIwQYMBaAFIpbGcybqWzkmpTKjFRgL8JwVj8qMA8GA1Ud\n\
             EwEB/wQFMAMBAf8wCgYIKoZIzj0EAwIDSAAwRQIgDkvl5ipHmCxiXPgtZtk16R8C\n\
             tKiPe9tHtu/lxkBT7JgCIQDbPOpDrlFzd1/OfTDL3+HH7gj/BXv4kjLJPOafJzeW\n\
             dw==\n\
             -----END CERTIFICATE-----",
            "db5bec5fc48e08b760e1c9c6cdc72b2626c62f092b1e2693cc463c1f182c71de",
            "2061-02-04T13:50:34.000Z",
        ),
    ];

    #[test]
    fn a_certificate_is_named_as_openssl_names_it() {
        for (pem, sha256, not_after) in SAMPLES {
            let not_after = Some(Given::parse(not_after).unwrap());
            assert_eq!(CertificateView::of(pem), Some(CertificateView { sha256: sha256.to_owned(), not_after }));
            let chain = format!("a comment\n{pem}\n{}", SAMPLES[0].0);
            assert_eq!(CertificateView::of(&chain), CertificateView::of(pem), "the first one counts");
        }
    }

    #[test]
    fn what_is_cut_off_or_no_certificate_has_no_end() {
        let der = der(SAMPLES[0].0).unwrap();
        for at in 0..der.len() {
            assert_eq!(not_after(&der[..at]), None);
        }
        for text in ["", "x", "-----BEGIN CERTIFICATE-----", "-----BEGIN CERTIFICATE-----!-----END CERTIFICATE-----"] {
            assert_eq!(CertificateView::of(text), None, "{text}");
        }
    }
}
