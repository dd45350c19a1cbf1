//! A new connection: resolve, vet, connect, prove.
//!
//! Every address of the answer is vetted before the first is connected to, and only vetted addresses are connected to:
//! between the two nothing is resolved again, so a name cannot change its mind.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use doorstep_core::address::{AddressRules, TargetHost, TargetUrl};
use doorstep_core::attempt::Timings;
use doorstep_core::outcome::Fault;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;

use super::deadline::Deadline;
use super::fault::NoAnswer;
use super::wire::Stream;
use super::{Deadlines, millis_since};
use crate::resolve::{LookupFault, Resolver};

/// Of the addresses of one name, so many are tried.
const ADDRESSES_TRIED_MAX: usize = 8;

#[derive(Debug)]
pub(super) struct Connector {
    pub(super) rules: AddressRules,
    pub(super) resolver: Resolver,
    pub(super) deadlines: Deadlines,
}

impl Connector {
    /// Opens a connection that the rules permit. What each phase took is written down also where it fails.
    pub(super) async fn open(
        &self,
        target: &TargetUrl,
        tls: &Arc<ClientConfig>,
        deadline: &mut Deadline,
        timings: &mut Timings,
    ) -> Result<Stream, NoAnswer> {
        let addresses = self.vetted(target, deadline, timings).await?;

        let started = Instant::now();
        let stream = connect(&addresses, deadline, self.deadlines.connect).await;
        timings.connect = Some(millis_since(started));
        let stream = stream?;
        if !target.is_https() {
            return Ok(Stream::Plain(stream));
        }

        let started = Instant::now();
        let stream = prove(stream, target, tls, deadline, self.deadlines.tls).await;
        timings.tls = Some(millis_since(started));
        stream
    }

    async fn vetted(
        &self,
        target: &TargetUrl,
        deadline: &mut Deadline,
        timings: &mut Timings,
    ) -> Result<Vec<SocketAddr>, NoAnswer> {
        let addresses = match target.host() {
            TargetHost::Address(address) => vec![address],
            TargetHost::Name(name) => {
                let started = Instant::now();
                let found = deadline.wait(Some(self.deadlines.dns), self.resolver.lookup(name)).await;
                timings.dns = Some(millis_since(started));
                found.unwrap_or(Err(LookupFault::TimedOut))?
            }
        };
        self.rules.permit(target, &addresses).map_err(|refusal| NoAnswer::new(Fault::AddressBlocked, refusal))?;
        Ok(addresses.into_iter().map(|address| SocketAddr::new(address, target.port())).collect())
    }
}

impl From<LookupFault> for NoAnswer {
    fn from(fault: LookupFault) -> Self {
        let kind = match &fault {
            LookupFault::TimedOut => Fault::DnsTimedOut,
            LookupFault::NoAddress | LookupFault::Failed(_) => Fault::DnsFailed,
        };
        Self::new(kind, fault)
    }
}

/// Tries one address after the other. Each gets an equal share of the time that is left, so that one which does not
/// answer leaves time for the next.
async fn connect(addresses: &[SocketAddr], deadline: &mut Deadline, phase: Duration) -> Result<TcpStream, NoAnswer> {
    let addresses = &addresses[..addresses.len().min(ADDRESSES_TRIED_MAX)];
    let mut told: Option<NoAnswer> = None;
    let mut time = deadline.left().min(phase);
    for (n, address) in addresses.iter().enumerate() {
        let left = u32::try_from(addresses.len() - n).unwrap_or(u32::MAX);
        let (share, started) = (time / left, Instant::now());
        let fault = match deadline.wait(Some(share), TcpStream::connect(address)).await {
            Some(Ok(stream)) => return checked(stream, *address),
            Some(Err(fault)) => refused(*address, &fault),
            None => NoAnswer::new(Fault::ConnectTimedOut, format!("{address} did not answer in time")),
        };
        // An address takes no more than its share, also if the process was stopped meanwhile.
        time -= started.elapsed().min(share);
        // A machine without IPv6 fails at once there; what the other addresses said is the news.
        if told.as_ref().is_none_or(|earlier| earlier.fault == Fault::ConnectFailed) {
            told = Some(fault);
        }
    }
    Err(told.unwrap_or_else(|| NoAnswer::new(Fault::ConnectFailed, "there is no address to connect to")))
}

fn refused(address: SocketAddr, fault: &io::Error) -> NoAnswer {
    let kind = match fault.kind() {
        io::ErrorKind::ConnectionRefused => Fault::ConnectRefused,
        io::ErrorKind::TimedOut => Fault::ConnectTimedOut,
        _ => Fault::ConnectFailed,
    };
    NoAnswer::new(kind, format!("{address}: {fault}"))
}

/// Whom we are connected to is whom we vetted. It cannot be otherwise; if it is, nothing is sent.
fn checked(stream: TcpStream, vetted: SocketAddr) -> Result<TcpStream, NoAnswer> {
    // A connection that is reset at once has no peer any more.
    let lost = |fault: io::Error| NoAnswer::new(Fault::ConnectionLost, format!("{vetted}: {fault}"));
    let peer = stream.peer_addr().map_err(lost)?;
    if canonical(peer) != canonical(vetted) {
        return Err(NoAnswer::new(Fault::AddressBlocked, format!("connected to {peer} instead of {vetted}")));
    }
    stream.set_nodelay(true).map_err(lost)?;
    Ok(stream)
}

fn canonical(address: SocketAddr) -> (IpAddr, u16) {
    (address.ip().to_canonical(), address.port())
}

async fn prove(
    stream: TcpStream,
    target: &TargetUrl,
    tls: &Arc<ClientConfig>,
    deadline: &mut Deadline,
    phase: Duration,
) -> Result<Stream, NoAnswer> {
    let name = match target.host() {
        TargetHost::Address(address) => ServerName::from(address),
        TargetHost::Name(name) => {
            ServerName::try_from(name.to_owned()).map_err(|fault| NoAnswer::new(Fault::TlsFailed, fault))?
        }
    };
    match deadline.wait(Some(phase), TlsConnector::from(Arc::clone(tls)).connect(name, stream)).await {
        Some(Ok(stream)) => Ok(Stream::Tls(Box::new(stream))),
        Some(Err(fault)) => Err(NoAnswer::new(Fault::TlsFailed, fault)),
        None => Err(NoAnswer::new(Fault::TlsTimedOut, "the TLS handshake took too long")),
    }
}
