//! What TLS must prove: version 1.2 or 1.3 at least, and a certificate that leads to a root we trust; and what it proves in turn.

mod believed;

use std::sync::Arc;

use doorstep_core::destination::Destination;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
use rustls_platform_verifier::Verifier;
use thiserror::Error;

use believed::AlsoBelieved;

pub(super) const HTTP_2: &[u8] = b"h2";
const HTTP_1_1: &[u8] = b"http/1.1";

/// A client certificate and those that lead to its root are this many together, and so are the roots of one receiver.
pub const CERTIFICATES_MAX: usize = 8;
/// Each of the texts of a destination's TLS settings is at most this long.
pub const PEM_BYTES_MAX: usize = 32 * 1_024;

/// Whose certificates are believed (S3).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Roots {
    /// The machine's.
    #[default]
    System,
    /// The machine's, and these.
    SystemAnd(Vec<CertificateDer<'static>>),
    /// These and no others.
    Only(Vec<CertificateDer<'static>>),
}

/// A file of trusted certificates is at most this long, and holds at most this many.
pub const ROOTS_BYTES_MAX: usize = 4 * 1_024 * 1_024;
pub const ROOTS_MAX: usize = 1_000;

impl Roots {
    /// The certificates of a PEM file, at least one.
    pub fn read(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsFault> {
        if pem.len() > ROOTS_BYTES_MAX {
            return Err(TlsFault::RootsTooLong);
        }
        let found = CertificateDer::pem_slice_iter(pem).take(ROOTS_MAX + 1).collect::<Result<Vec<_>, _>>();
        let found = found.map_err(|_| TlsFault::NotPem(FILE))?;
        // Each by itself, so that the one that is wrong stops the start and is not left out in silence.
        for root in &found {
            RootCertStore::empty().add(root.clone()).map_err(|fault| TlsFault::BadRoot(FILE, fault.to_string()))?;
        }
        match found.len() {
            0 => Err(TlsFault::NoCertificate(FILE)),
            1..=ROOTS_MAX => Ok(found),
            _ => Err(TlsFault::TooManyRoots),
        }
    }
}

/// The lowest version of TLS that a receiver has to speak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsVersion {
    #[default]
    V1_2,
    V1_3,
}

impl TlsVersion {
    /// It and whatever is higher. rustls knows nothing older than TLS 1.2.
    fn and_higher(self) -> &'static [&'static SupportedProtocolVersion] {
        static VERSIONS: [&SupportedProtocolVersion; 2] = [&TLS13, &TLS12];
        match self {
            Self::V1_2 => &VERSIONS,
            Self::V1_3 => &VERSIONS[..1],
        }
    }
}

/// Why a destination's TLS settings cannot be used, for the person who wrote them. No message contains a key.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TlsFault {
    #[error("{0} is longer than {PEM_BYTES_MAX} bytes")]
    TooLong(&'static str),
    #[error("{0} cannot be read: give PEM, with its BEGIN and END lines")]
    NotPem(&'static str),
    #[error("{0} holds no certificate: give PEM, with its BEGIN CERTIFICATE and END CERTIFICATE lines")]
    NoCertificate(&'static str),
    #[error("{0} holds more than {CERTIFICATES_MAX} certificates; leave some out")]
    TooMany(&'static str),
    #[error("{CERTIFICATE} needs its key: give {KEY} with it")]
    NoKey,
    #[error("{KEY} needs its certificate: give {CERTIFICATE} with it")]
    NoCertificateForKey,
    #[error("{KEY} and {CERTIFICATE} do not belong together: {0}")]
    Mismatch(String),
    #[error("{0} holds what is not a certificate, which has to be taken out: {1}")]
    BadRoot(&'static str, String),
    #[error("{FILE} is longer than {ROOTS_BYTES_MAX} bytes; leave some certificates out")]
    RootsTooLong,
    #[error("{FILE} holds more than {ROOTS_MAX} certificates; leave some out")]
    TooManyRoots,
}

const CERTIFICATE: &str = "client_certificate_pem";
const KEY: &str = "client_key_pem";
const CA: &str = "ca_pem";
const FILE: &str = "the file";

/// The settings of connections: one set for all who want nothing special.
#[derive(Debug)]
pub(super) struct Tls {
    provider: Arc<CryptoProvider>,
    min: TlsVersion,
    verifier: Arc<dyn ServerCertVerifier>,
    usual: Arc<ClientConfig>,
}

impl Tls {
    pub(super) fn new(roots: &Roots, min: TlsVersion) -> Result<Self, rustls::Error> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let verifier: Arc<dyn ServerCertVerifier> = match roots {
            Roots::System => Arc::new(Verifier::new(Arc::clone(&provider))?),
            Roots::SystemAnd(extra) => {
                Arc::new(Verifier::new_with_extra_roots(extra.iter().cloned(), Arc::clone(&provider))?)
            }
            Roots::Only(given) => only(given, &provider)?,
        };
        let usual = Arc::new(config(&provider, min, Arc::clone(&verifier), None)?);
        Ok(Self { provider, min, verifier, usual })
    }

    /// The settings for this destination: those of everybody, or its own.
    pub(super) fn of(&self, destination: &Destination) -> Result<Arc<ClientConfig>, TlsFault> {
        let (tls, key) = (&destination.settings.tls, destination.secrets.client_key_pem.as_deref());
        if tls.is_usual() && key.is_none() {
            return Ok(Arc::clone(&self.usual));
        }
        let identity = match (&tls.client_certificate_pem, key) {
            (None, None) => None,
            (Some(chain), Some(key)) => Some((certificates(CERTIFICATE, chain)?, private_key(key)?)),
            (Some(_), None) => return Err(TlsFault::NoKey),
            (None, Some(_)) => return Err(TlsFault::NoCertificateForKey),
        };
        let verifier = match &tls.ca_pem {
            None => Arc::clone(&self.verifier),
            Some(roots) => {
                let own = only(&certificates(CA, roots)?, &self.provider)
                    .map_err(|fault| TlsFault::BadRoot(CA, fault.to_string()))?;
                Arc::new(AlsoBelieved { own, usual: Arc::clone(&self.verifier) })
            }
        };
        config(&self.provider, self.min, verifier, identity)
            .map(Arc::new)
            .map_err(|fault| TlsFault::Mismatch(fault.to_string()))
    }
}

type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn config(
    provider: &Arc<CryptoProvider>,
    min: TlsVersion,
    verifier: Arc<dyn ServerCertVerifier>,
    identity: Option<Identity>,
) -> Result<ClientConfig, rustls::Error> {
    let config = ClientConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(min.and_higher())?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let mut config = match identity {
        None => config.with_no_client_auth(),
        Some((chain, key)) => config.with_client_auth_cert(chain, key)?,
    };
    config.alpn_protocols = vec![HTTP_2.to_vec(), HTTP_1_1.to_vec()];
    Ok(config)
}

fn only(
    given: &[CertificateDer<'static>],
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<WebPkiServerVerifier>, rustls::Error> {
    let mut roots = RootCertStore::empty();
    for root in given {
        roots.add(root.clone())?;
    }
    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
        .build()
        .map_err(|fault| rustls::Error::General(fault.to_string()))
}

fn certificates(what: &'static str, pem: &str) -> Result<Vec<CertificateDer<'static>>, TlsFault> {
    let mut found = Vec::new();
    for certificate in CertificateDer::pem_slice_iter(bounded(what, pem)?) {
        if found.len() == CERTIFICATES_MAX {
            return Err(TlsFault::TooMany(what));
        }
        found.push(certificate.map_err(|_| TlsFault::NotPem(what))?);
    }
    if found.is_empty() { Err(TlsFault::NoCertificate(what)) } else { Ok(found) }
}

fn private_key(pem: &str) -> Result<PrivateKeyDer<'static>, TlsFault> {
    PrivateKeyDer::from_pem_slice(bounded(KEY, pem)?).map_err(|_| TlsFault::NotPem(KEY))
}

fn bounded<'a>(what: &'static str, pem: &'a str) -> Result<&'a [u8], TlsFault> {
    if pem.len() > PEM_BYTES_MAX { Err(TlsFault::TooLong(what)) } else { Ok(pem.as_bytes()) }
}
