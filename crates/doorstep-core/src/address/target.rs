//! The URL of a destination: read once, normalised, and from then on only the normalised form is used. So there are
//! not two readers who could differ about where it leads.

use std::fmt;
use std::net::IpAddr;

use thiserror::Error;
use url::{Host, Url};

use super::{AddressRules, Denial, Verdict};

/// A URL may be this long, both as it was written and as it is used.
pub const URL_BYTES_MAX: usize = 2_048;

/// A URL that a request may be sent to, as far as can be known before its host is resolved.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TargetUrl(Url);

/// Who answers at a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetHost<'a> {
    /// To be resolved, without search domains. Lower case, punycode, no trailing dot.
    Name(&'a str),
    Address(IpAddr),
}

/// What is wrong with a URL, for the person who wrote it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum UrlFault {
    #[error("the URL is longer than {URL_BYTES_MAX} bytes; shorten it")]
    TooLong,
    #[error("the URL contains a control character, such as a tab or a line break; remove it")]
    ControlCharacter,
    #[error("the URL cannot be read: {0}; write it as https://host/path")]
    Unreadable(url::ParseError),
    #[error("the URL has no scheme; write it as https://host/path")]
    NoScheme,
    #[error("the scheme `{0}` cannot be delivered to; use https://")]
    Scheme(String),
    #[error("http:// is permitted only to ranges in the operator's DOORSTEP_ALLOW_TARGETS; use https://")]
    PlainHttp,
    #[error("the URL contains a user name or password; remove it and set an `authorization` header instead")]
    Userinfo,
    #[error("the URL contains a fragment, which is never sent; remove the part from `#` on")]
    Fragment,
    #[error("port {0} cannot be delivered to; use 443, 80, or 1024 and above")]
    Port(u16),
    #[error("the host name `{0}` is not one that DNS can hold; check its spelling")]
    BadName(String),
    #[error("the host name `{0}` is not public; the operator can permit its range with DOORSTEP_ALLOW_TARGETS")]
    PrivateName(String),
    /// Why it is denied is not told: a tenant could find out which addresses are this machine's.
    #[error(
        "{address} is not an address that may be delivered to; the operator can permit its range with DOORSTEP_ALLOW_TARGETS"
    )]
    Forbidden { address: IpAddr, denial: Denial },
}

/// What a target needs beyond the ordinary. Only addresses that the operator allowed may be reached that way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exception {
    PlainHttp,
    Port(u16),
}

impl TargetUrl {
    /// Reads and normalises `text`. A host that is an address is judged here; a name is judged by
    /// [`AddressRules::permit`] once it is resolved.
    pub fn parse(text: &str, rules: &AddressRules) -> Result<Self, UrlFault> {
        let target = Self(normalised(text)?);
        match target.host() {
            TargetHost::Address(address) => target.check_address(address, rules)?,
            TargetHost::Name(name) => target.check_name(name, rules)?,
        }
        Ok(target)
    }

    /// The normalised form: the one to store, to show and to send to.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    pub fn is_https(&self) -> bool {
        self.0.scheme() == "https"
    }

    pub fn host(&self) -> TargetHost<'_> {
        match self.0.host() {
            Some(Host::Ipv4(v4)) => TargetHost::Address(v4.into()),
            Some(Host::Ipv6(v6)) => TargetHost::Address(v6.into()),
            Some(Host::Domain(name)) => TargetHost::Name(name),
            None => unreachable!("http and https URLs have a host"),
        }
    }

    pub fn port(&self) -> u16 {
        self.0.port().unwrap_or(if self.is_https() { 443 } else { 80 })
    }

    /// What the `host` header carries: the port only where it is not the scheme's own.
    pub fn authority(&self) -> &str {
        self.0.authority()
    }

    /// What the request line carries: never empty, starts with `/`.
    pub fn path_and_query(&self) -> &str {
        &self.0[url::Position::BeforePath..url::Position::AfterQuery]
    }

    pub(super) fn exception(&self) -> Option<Exception> {
        if !self.is_https() {
            return Some(Exception::PlainHttp);
        }
        // Below 1024 live mail, shells and other services that would read an HTTP request as their own protocol.
        (!matches!(self.port(), 80 | 443 | 1_024..)).then_some(Exception::Port(self.port()))
    }

    fn check_address(&self, address: IpAddr, rules: &AddressRules) -> Result<(), UrlFault> {
        match rules.judge(address) {
            Verdict::Denied(denial) => Err(UrlFault::Forbidden { address, denial }),
            Verdict::Allowed => self.exception().map_or(Ok(()), |needed| Err(needed.into())),
            Verdict::AllowedByOperator => Ok(()),
        }
    }

    /// A name leads wherever DNS says, so this check is only a courtesy: it tells a person at once what would be refused
    /// at every connection. An operator with ranges of their own has names for them, `localhost` among others, and then
    /// nothing can be said before the name is resolved.
    fn check_name(&self, name: &str, rules: &AddressRules) -> Result<(), UrlFault> {
        if !could_be_in_dns(name) {
            return Err(UrlFault::BadName(name.to_owned()));
        }
        if rules.makes_exceptions() {
            return Ok(());
        }
        if is_private_name(name) {
            return Err(UrlFault::PrivateName(name.to_owned()));
        }
        self.exception().map_or(Ok(()), |needed| Err(needed.into()))
    }
}

impl fmt::Display for TargetUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl From<Exception> for UrlFault {
    fn from(exception: Exception) -> Self {
        match exception {
            Exception::PlainHttp => Self::PlainHttp,
            Exception::Port(port) => Self::Port(port),
        }
    }
}

fn normalised(text: &str) -> Result<Url, UrlFault> {
    if text.len() > URL_BYTES_MAX {
        return Err(UrlFault::TooLong);
    }
    // The parser drops tabs and line breaks without a word; whoever hid one there had a reason.
    if text.chars().any(char::is_control) {
        return Err(UrlFault::ControlCharacter);
    }
    let mut url = Url::parse(text).map_err(unreadable)?;
    check_parts(&url)?;
    drop_trailing_dot(&mut url)?;
    if url.as_str().len() > URL_BYTES_MAX { Err(UrlFault::TooLong) } else { Ok(url) }
}

fn unreadable(fault: url::ParseError) -> UrlFault {
    match fault {
        url::ParseError::RelativeUrlWithoutBase => UrlFault::NoScheme,
        other => UrlFault::Unreadable(other),
    }
}

fn check_parts(url: &Url) -> Result<(), UrlFault> {
    // First of all: of other schemes the parser takes 127.0.0.1 for a name.
    if !matches!(url.scheme(), "https" | "http") {
        return Err(UrlFault::Scheme(url.scheme().to_owned()));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(UrlFault::Userinfo);
    }
    if url.fragment().is_some() {
        return Err(UrlFault::Fragment);
    }
    if url.port() == Some(0) {
        return Err(UrlFault::Port(0));
    }
    Ok(())
}

/// `example.com.` is `example.com` to DNS, but not to certificates.
fn drop_trailing_dot(url: &mut Url) -> Result<(), UrlFault> {
    let bare = match url.host() {
        Some(Host::Domain(name)) => name.strip_suffix('.').map(str::to_owned),
        Some(Host::Ipv4(_) | Host::Ipv6(_)) | None => None,
    };
    bare.map_or(Ok(()), |name| url.set_host(Some(&name)).map_err(unreadable))
}

fn could_be_in_dns(name: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len()) && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    name.len() <= 253 && name.split('.').all(is_label)
}

/// Names that by their form belong to a machine or a local network.
fn is_private_name(name: &str) -> bool {
    match name.rsplit_once('.') {
        Some((_, last)) => ["localhost", "local", "internal", "arpa"].contains(&last),
        None => true,
    }
}

#[cfg(test)]
mod tests;
