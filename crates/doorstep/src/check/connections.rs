//! What connections to receivers need: trusted certificates, and name servers.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::thread;
use std::time::Duration;

use doorstep_engine::sender::{Roots, SetupFault, TlsVersion};

use super::{Finding, Verdict};
use crate::config::Config;
use crate::failure::Failure;
use crate::{runtime, wire};

/// A name server that is there answers within this.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

pub(super) fn look(config: &Config) -> Result<[Finding; 2], Failure> {
    let tls = |result, detail| Finding { check: "TLS", result, detail };
    let settings = match wire::sender_settings(config, String::new()) {
        Ok(settings) => settings,
        Err(fault) => return Ok([tls(Verdict::Fail, format!("{fault:#}")), dns(&config.dns_servers, None)]),
    };
    let trusted = tls(Verdict::Ok, trusted(config, &settings.roots));
    Ok(match runtime::run(1, async { Ok(settings.check()) })? {
        Ok(()) => [trusted, dns(&config.dns_servers, None)],
        Err(fault @ SetupFault::Roots(_)) => [tls(Verdict::Fail, in_full(&fault)), dns(&config.dns_servers, None)],
        Err(fault @ SetupFault::Dns(_)) => [trusted, dns(&config.dns_servers, Some(&fault))],
    })
}

fn trusted(config: &Config, roots: &Roots) -> String {
    let version = match config.tls_min_version {
        TlsVersion::V1_2 => "TLS 1.2 or 1.3",
        TlsVersion::V1_3 => "TLS 1.3",
    };
    let file = config.tls_ca_file.as_deref().map(|path| path.display().to_string()).unwrap_or_default();
    let trusted = match roots {
        Roots::System => "the machine's certificate authorities".to_owned(),
        Roots::SystemAnd(more) => {
            format!("the machine's certificate authorities, and {file} (certificates: {})", more.len())
        }
        Roots::Only(given) => format!("{file} alone (certificates: {})", given.len()),
    };
    format!("{version}; trusts {trusted}")
}

/// Name servers that were given are asked something. Those of the machine are its own business.
fn dns(given: &[SocketAddr], fault: Option<&SetupFault>) -> Finding {
    let silent: Vec<String> = thread::scope(|scope| {
        let asked: Vec<_> = given.iter().map(|server| (server, scope.spawn(|| ask(*server)))).collect();
        let told = |fault: io::Error| match fault.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                format!("no answer within {} s", ANSWER_WITHIN.as_secs())
            }
            _ => fault.to_string(),
        };
        let failed = |(server, answer): (&SocketAddr, thread::ScopedJoinHandle<'_, io::Result<()>>)| {
            let fault = answer.join().unwrap_or_else(|_| Err(io::Error::other("it could not be asked"))).err()?;
            Some(format!("{server} ({})", told(fault)))
        };
        asked.into_iter().filter_map(failed).collect()
    });
    let (result, detail) = match (fault, given) {
        (Some(fault), _) => (Verdict::Fail, in_full(fault)),
        (None, []) => (Verdict::Ok, "the machine's name servers are asked".to_owned()),
        (None, _) if silent.is_empty() => (Verdict::Ok, "all of dns_servers answer".to_owned()),
        (None, _) => {
            let advice = "check the address, or leave the setting out to use the machine's name servers";
            (Verdict::Warn, format!("of dns_servers, these do not answer: {}; {advice}", silent.join(", ")))
        }
    };
    Finding { check: "name servers", result, detail }
}

/// Whatever it says to a question for the root's name servers will do.
fn ask(server: SocketAddr) -> io::Result<()> {
    const ID: [u8; 2] = *b"dc";
    const QUESTION: [u8; 15] = [1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 1];
    let any = if server.is_ipv4() { (Ipv4Addr::UNSPECIFIED, 0).into() } else { (Ipv6Addr::UNSPECIFIED, 0).into() };
    let socket = UdpSocket::bind::<SocketAddr>(any)?;
    // Once it is connected, nobody else's packets are received.
    socket.connect(server)?;
    socket.set_read_timeout(Some(ANSWER_WITHIN))?;
    socket.send(&[&ID[..], &QUESTION].concat())?;
    let mut answer = [0; 512];
    match socket.recv(&mut answer)? {
        12.. if answer.starts_with(&ID) => Ok(()),
        _ => Err(io::Error::other("what it answers is not DNS")),
    }
}

fn in_full(fault: &SetupFault) -> String {
    let cause = std::error::Error::source(fault).map(ToString::to_string).unwrap_or_default();
    format!("{fault} ({cause})")
}
