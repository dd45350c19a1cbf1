//! Values, read from their text. What is refused is answered with what would be right; the caller adds what was given and
//! where, unless it is a secret.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use doorstep_core::address::{AddressRules, RuleFault};
use doorstep_core::retry::{Presets, PresetsFault};
use doorstep_core::time::Millis;
use doorstep_engine::sender::TlsVersion;
use doorstep_server::auth::{KEY_BYTES_MAX, Proxies};
use reqwest::Url;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use crate::master_key::{self, KeyBytes};

/// A value that does not show itself.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret<T>(pub(crate) T);

impl<T> fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogFormat {
    /// Pretty on a terminal, JSON elsewhere.
    Auto,
    Pretty,
    Json,
}

/// The admin key opens everything: it must not be short enough to be guessed.
const ADMIN_KEY_BYTES_MIN: usize = 24;
const PUBLIC_URL_BYTES_MAX: usize = 512;

pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "give an IP address and a port, such as 127.0.0.1:8080 or [::]:8080".to_owned())
}

pub(super) fn optional_address(text: &str) -> Result<Option<SocketAddr>, String> {
    if text.is_empty() { Ok(None) } else { address(text).map(Some) }
}

/// Kept without the slash at its end.
pub(super) fn public_url(text: &str) -> Result<Option<String>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let url = Url::parse(text).ok().filter(|url| {
        let plain = url.query().is_none() && url.fragment().is_none() && url.username().is_empty();
        plain && url.has_host() && matches!(url.scheme(), "http" | "https") && text.len() <= PUBLIC_URL_BYTES_MAX
    });
    let url = url.ok_or("give an http:// or https:// URL without a query, such as https://hooks.example.com")?;
    Ok(Some(url.as_str().trim_end_matches('/').to_owned()))
}

pub(super) fn path(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() { Err("give the path of a directory".to_owned()) } else { Ok(text.into()) }
}

pub(super) fn database_url(text: &str) -> Result<Option<Secret<String>>, String> {
    match text {
        "" => Ok(None),
        _ if text.starts_with("postgres://") || text.starts_with("postgresql://") => {
            Err("PostgreSQL comes in a later release; leave it out to use SQLite".to_owned())
        }
        _ => Err("it must start with postgres://; leave it out to use SQLite".to_owned()),
    }
}

pub(super) fn admin_key(text: &str) -> Result<Option<Secret<String>>, String> {
    match text {
        "" => Ok(None),
        _ if !(ADMIN_KEY_BYTES_MIN..=KEY_BYTES_MAX).contains(&text.len())
            || !text.bytes().all(|byte| byte.is_ascii_graphic()) =>
        {
            Err(format!(
                "give {ADMIN_KEY_BYTES_MIN} to {KEY_BYTES_MAX} printable ASCII characters without spaces, such as `openssl rand -base64 32` \
                 prints; or leave it out, to have one made at the first start"
            ))
        }
        _ => Ok(Some(Secret(text.to_owned()))),
    }
}

pub(super) fn master_key(text: &str) -> Result<Option<Secret<KeyBytes>>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let key = master_key::from_text(text);
    let key = key.ok_or("give 32 bytes in base64, as `openssl rand -base64 32` prints them")?;
    Ok(Some(Secret(key)))
}

pub(super) fn address_rules(text: &str) -> Result<AddressRules, String> {
    AddressRules::default().allowing(text).map_err(|fault| fault.to_string())
}

/// A prefix that was checked to be one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Nat64Prefix(String);

impl Nat64Prefix {
    /// The rules of a network behind it.
    pub(crate) fn applied_to(&self, rules: AddressRules) -> Result<AddressRules, RuleFault> {
        rules.behind_nat64(&self.0)
    }
}

pub(super) fn nat64_prefix(text: &str) -> Result<Option<Nat64Prefix>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let prefix = Nat64Prefix(text.to_owned());
    prefix.applied_to(AddressRules::default()).map_err(|fault| fault.to_string())?;
    Ok(Some(prefix))
}

const DNS_PORT: u16 = 53;
const DNS_SERVERS_MAX: usize = 8;

pub(super) fn dns_servers(text: &str) -> Result<Vec<SocketAddr>, String> {
    let server = |item: &str| {
        let alone = item.parse::<IpAddr>().map(|address| SocketAddr::new(address, DNS_PORT));
        let server = alone.or_else(|_| item.parse::<SocketAddr>()).ok();
        let server =
            server.filter(|server| server.port() != 0 && !server.ip().is_multicast() && !server.ip().is_unspecified());
        server.ok_or_else(|| format!("`{item}` is no name server; use 192.0.2.53 or [2001:db8::53]:5353"))
    };
    let items = text.split([',', ' ']).filter(|item| !item.is_empty());
    let servers = items.map(server).collect::<Result<Vec<_>, _>>()?;
    if servers.len() > DNS_SERVERS_MAX {
        return Err(format!("give at most {DNS_SERVERS_MAX} name servers"));
    }
    Ok(servers)
}

pub(super) fn tls_version(text: &str) -> Result<TlsVersion, String> {
    match text {
        "1.2" => Ok(TlsVersion::V1_2),
        "1.3" => Ok(TlsVersion::V1_3),
        _ => Err("use 1.2 or 1.3".to_owned()),
    }
}

pub(super) fn file(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() { Err("give the path of a file".to_owned()) } else { Ok(text.into()) }
}

pub(super) fn proxies(text: &str) -> Result<Proxies, String> {
    Proxies::parse(text).map_err(|fault| match fault {
        RuleFault::NotARange(item) => {
            format!("`{item}` is neither an address nor a CIDR; name proxies as 10.1.2.3, 10.0.0.0/8 or fd00::/8")
        }
        fault => fault.to_string(),
    })
}

/// A policy's name. Whether there is one of that name is seen once all settings are read.
pub(super) fn name(text: &str) -> Result<String, String> {
    if text.is_empty() { Err("give a policy's name, such as standard".to_owned()) } else { Ok(text.to_owned()) }
}

pub(super) fn policies(text: &str) -> Result<Presets, String> {
    if text.is_empty() { Ok(Presets::default()) } else { text.parse().map_err(|fault: PresetsFault| fault.to_string()) }
}

/// A wait is 1 second to 30 days long, and there are at most this many.
const WAITS_MAX: usize = 16;

pub(super) fn waits(text: &str) -> Result<Vec<Millis>, String> {
    let one = millis(1_000, 30 * 86_400_000);
    let waits: Result<Vec<Millis>, String> = text.split([',', ' ']).filter(|item| !item.is_empty()).map(one).collect();
    let waits = waits.map_err(|fault| format!("{fault}, for each wait"))?;
    if (1..=WAITS_MAX).contains(&waits.len()) { Ok(waits) } else { Err(format!("give 1 to {WAITS_MAX} waits")) }
}

pub(super) fn log_format(text: &str) -> Result<LogFormat, String> {
    match text {
        "auto" => Ok(LogFormat::Auto),
        "pretty" => Ok(LogFormat::Pretty),
        "json" => Ok(LogFormat::Json),
        _ => Err("use auto, pretty or json".to_owned()),
    }
}

pub(super) fn log_level(text: &str) -> Result<String, String> {
    // A word alone would be taken for the name of a part, and everything else would go unlogged: most likely it is a slip.
    let is_slip = |part: &str| part.is_empty() || (!part.contains(['=', '[']) && part.parse::<LevelFilter>().is_err());
    let fault = match text.split(',').map(str::trim).find(|part| is_slip(part)) {
        Some("") => Some(String::new()),
        Some(slip) => Some(format!(" (`{slip}` is no level)")),
        None => EnvFilter::try_new(text).err().map(|fault| format!(" ({fault})")),
    };
    match fault {
        Some(fault) => {
            Err(format!("use error, warn, info, debug or trace, also by part: info,doorstep_engine=debug{fault}"))
        }
        None => Ok(text.to_owned()),
    }
}

pub(super) fn switch(text: &str) -> Result<bool, String> {
    match text {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err("use true or false".to_owned()),
    }
}

/// A whole number from `least` to `most`.
pub(super) fn between<T: TryFrom<u64>>(least: u64, most: u64) -> impl Fn(&str) -> Result<T, String> {
    move |text| {
        let number = text.parse().ok().filter(|number| (least..=most).contains(number));
        let number = number.and_then(|number| T::try_from(number).ok());
        number.ok_or_else(|| format!("give a whole number from {least} to {most}"))
    }
}

/// The same, or nothing at all.
pub(super) fn optional<T>(read: impl Fn(&str) -> Result<T, String>) -> impl Fn(&str) -> Result<Option<T>, String> {
    move |text| if text.is_empty() { Ok(None) } else { read(text).map(Some) }
}

pub(super) fn millis(least: u64, most: u64) -> impl Fn(&str) -> Result<Millis, String> {
    move |text| between(least, most)(text).map(Millis)
}
