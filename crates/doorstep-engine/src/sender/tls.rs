//! What TLS must prove: version 1.2 at least, and a certificate that leads to a root we trust.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::Verifier;

pub(super) const HTTP_2: &[u8] = b"h2";
const HTTP_1_1: &[u8] = b"http/1.1";

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

/// The settings of every connection without a client certificate.
pub(super) fn client_config(roots: &Roots) -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier: Arc<dyn ServerCertVerifier> = match roots {
        Roots::System => Arc::new(Verifier::new(Arc::clone(&provider))?),
        Roots::SystemAnd(extra) => {
            Arc::new(Verifier::new_with_extra_roots(extra.iter().cloned(), Arc::clone(&provider))?)
        }
        Roots::Only(given) => only(given, &provider)?,
    };
    // rustls knows nothing older than TLS 1.2.
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    config.alpn_protocols = vec![HTTP_2.to_vec(), HTTP_1_1.to_vec()];
    Ok(config)
}

fn only(
    given: &[CertificateDer<'static>],
    provider: &Arc<rustls::crypto::CryptoProvider>,
) -> Result<Arc<WebPkiServerVerifier>, rustls::Error> {
    let mut roots = RootCertStore::empty();
    for root in given {
        roots.add(root.clone())?;
    }
    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
        .build()
        .map_err(|fault| rustls::Error::General(fault.to_string()))
}
