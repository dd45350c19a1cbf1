//! From a host's name to its addresses. Nothing here judges an address: that is for whoever connects to it.
//!
//! A name is always taken as complete, without the search domains of the machine: `db` never means
//! `db.corp.example`. `localhost` is the loopback interface and is never asked for. The machine's own file of hosts is
//! read only where the operator has allowed targets that are not public: there it names the very machines they mean,
//! elsewhere it could only tell a stranger which names it holds.

use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::time::Duration;

use futures_util::future::select;
use hickory_resolver::config::{ConnectionConfig, LookupIpStrategy, NameServerConfig, ResolveHosts, ResolverConfig};
use hickory_resolver::lookup_ip::LookupIp;
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::op::Query;
use hickory_resolver::proto::rr::{Name, RecordType};
use hickory_resolver::system_conf::read_system_conf;
use hickory_resolver::{Hosts, TokioResolver};
use thiserror::Error;
use tokio::time::timeout;

/// One question to a name server may take this long; then it is asked again, within the budget of the whole.
const TRY: Duration = Duration::from_secs(2);

/// So often a question that got no answer is repeated.
const REPEATS: usize = 2;

/// When the addresses of one family (IPv4 or IPv6) are known, those of the other have this much longer to come (RFC 8305, 3).
const RESOLUTION_DELAY: Duration = Duration::from_millis(50);

/// So many answers are remembered.
const CACHE_ENTRIES: u64 = 4_096;

/// Where names are looked up, and for how long answers are believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsSettings {
    pub servers: NameServers,
    /// An address is believed at most this long, whatever its record says.
    pub positive_ttl_max: Duration,
    /// That there is no address is believed at most this long.
    pub negative_ttl_max: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameServers {
    /// Those of the machine's configuration, read once.
    System,
    These(Vec<SocketAddr>),
}

impl Default for DnsSettings {
    fn default() -> Self {
        Self {
            servers: NameServers::System,
            positive_ttl_max: Duration::from_secs(300),
            negative_ttl_max: Duration::from_secs(30),
        }
    }
}

/// Why there are no addresses.
#[derive(Debug, Error)]
pub(crate) enum LookupFault {
    #[error("no name server answered in time")]
    TimedOut,
    #[error("the name has no address")]
    NoAddress,
    #[error("the name cannot be resolved: {0}")]
    Failed(#[source] NetError),
}

pub(crate) struct Resolver {
    dns: TokioResolver,
    hosts: Hosts,
}

impl Resolver {
    /// `trust_hosts_file`: whether names of the machine's own file count.
    pub(crate) fn new(settings: &DnsSettings, trust_hosts_file: bool) -> Result<Self, NetError> {
        let provider = TokioRuntimeProvider::default();
        let servers = match &settings.servers {
            NameServers::System => read_system_conf()?.0.name_servers,
            NameServers::These(servers) => servers.iter().map(name_server).collect(),
        };
        let config = ResolverConfig::from_parts(None, vec![], servers);
        let mut builder = TokioResolver::builder_with_config(config, provider);
        let options = builder.options_mut();
        options.timeout = TRY;
        options.attempts = REPEATS;
        options.cache_size = CACHE_ENTRIES;
        options.positive_max_ttl = Some(settings.positive_ttl_max);
        options.negative_max_ttl = Some(settings.negative_ttl_max);
        options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
        options.use_hosts_file = ResolveHosts::Never;
        let hosts = if trust_hosts_file { Hosts::from_system().unwrap_or_default() } else { Hosts::default() };
        Ok(Self { dns: builder.build()?, hosts })
    }

    /// The addresses of `name`, at least one, IPv4 first. They are of both families unless only one is answered for in time. How
    /// long it may take in all is for whoever asks.
    pub(crate) async fn lookup(&self, name: &str) -> Result<Vec<IpAddr>, LookupFault> {
        let mut name = Name::from_ascii(name).map_err(|fault| LookupFault::Failed(fault.into()))?;
        name.set_fqdn(true);
        let here = self.in_hosts_file(&name);
        if !here.is_empty() {
            return Ok(here);
        }
        // The library waits for both families, and a name server that never answers for one would make a name of the other
        // one unreachable.
        let v4 = pin!(self.ask(&name, RecordType::A));
        let v6 = pin!(self.ask(&name, RecordType::AAAA));
        let (first, other) = select(v4, v6).await.factor_first();
        let other = other.into_inner();
        let mut found = match first {
            Ok(found) => match timeout(RESOLUTION_DELAY, other).await {
                Ok(Ok(more)) => [found, more].concat(),
                Ok(Err(_)) | Err(_) => found,
            },
            Err(fault) => match other.await {
                Ok(found) => found,
                // Without an answer for one family nobody knows that there is no address.
                Err(LookupFault::TimedOut) => return Err(LookupFault::TimedOut),
                Err(LookupFault::NoAddress | LookupFault::Failed(_)) => return Err(fault),
            },
        };
        found.sort_by_key(IpAddr::is_ipv6);
        Ok(found)
    }

    /// The addresses of one family, at least one.
    async fn ask(&self, name: &Name, kind: RecordType) -> Result<Vec<IpAddr>, LookupFault> {
        match self.dns.lookup(name.clone(), kind).await {
            Ok(found) => match LookupIp::from(found).iter().collect::<Vec<_>>() {
                none if none.is_empty() => Err(LookupFault::NoAddress),
                found => Ok(found),
            },
            Err(NetError::Timeout) => Err(LookupFault::TimedOut),
            Err(fault) => Err(LookupFault::Failed(fault)),
        }
    }

    // The library would ask DNS for whichever family the file does not have, and wait for it.
    fn in_hosts_file(&self, name: &Name) -> Vec<IpAddr> {
        let of = |kind| self.hosts.lookup_static_host(&Query::query(name.clone(), kind));
        let found = [RecordType::A, RecordType::AAAA].map(of).into_iter().flatten();
        found.flat_map(|lookup| LookupIp::from(lookup).iter().collect::<Vec<_>>()).collect()
    }
}

impl std::fmt::Debug for Resolver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Resolver").finish_non_exhaustive()
    }
}

fn name_server(address: &SocketAddr) -> NameServerConfig {
    let on_port = |mut connection: ConnectionConfig| {
        connection.port = address.port();
        connection
    };
    let connections = vec![on_port(ConnectionConfig::udp()), on_port(ConnectionConfig::tcp())];
    NameServerConfig::new(address.ip(), true, connections)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[tokio::test]
    async fn a_name_of_the_hosts_file_is_not_asked_for_elsewhere() {
        // A name server that never answers: whoever asks it waits.
        let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let servers = NameServers::These(vec![silent.local_addr().unwrap()]);
        let mut resolver = Resolver::new(&DnsSettings { servers, ..DnsSettings::default() }, false).unwrap();
        resolver.hosts.read_hosts_conf(&b"10.1.2.3 receiver shop.internal # the shop\n"[..]).unwrap();
        for name in ["receiver", "shop.internal"] {
            assert_eq!(resolver.lookup(name).await.unwrap(), [Ipv4Addr::new(10, 1, 2, 3)]);
        }
        let elsewhere = timeout(Duration::from_millis(100), resolver.lookup("receiver.internal")).await;
        assert!(elsewhere.is_err(), "{elsewhere:?}");
    }
}
