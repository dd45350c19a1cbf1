//! A receiver whose certificate leads to a root of its destination, or to one that everybody's may lead to.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};

#[derive(Debug)]
pub(super) struct AlsoBelieved {
    /// Of this destination alone: the machine's roots are many, and are kept once.
    pub(super) own: Arc<WebPkiServerVerifier>,
    pub(super) usual: Arc<dyn ServerCertVerifier>,
}

impl ServerCertVerifier for AlsoBelieved {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match self.own.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            // Others may vouch for whom the destination's own roots do not know; what they do know they say.
            Err(Error::InvalidCertificate(CertificateError::UnknownIssuer)) => {
                self.usual.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.usual.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.usual.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.usual.supported_verify_schemes()
    }
}
