//! The portal's cookie, and whether a request with it comes from our own pages.

use http::HeaderMap;
use http::header::{COOKIE, HOST, ORIGIN};

/// Over https, a browser takes this one from us alone, for the whole host alone …
pub(crate) const SECURE_NAME: &str = "__Host-doorstep_portal";
/// … and without it, this one.
pub(crate) const PLAIN_NAME: &str = "doorstep_portal";

/// The secure one counts where it is there: the other one could have been planted by whoever has a name beside ours. Of two with the
/// same name, nobody can say which one is ours.
pub(crate) fn read(headers: &HeaderMap) -> Option<&str> {
    let secure = named(headers, SECURE_NAME);
    let found = if secure.is_empty() { named(headers, PLAIN_NAME) } else { secure };
    match found.as_slice() {
        [only] => Some(only),
        _ => None,
    }
}

fn named<'a>(headers: &'a HeaderMap, wanted: &str) -> Vec<&'a str> {
    let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let pairs = cookies.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.filter(|(name, _)| *name == wanted).map(|(_, value)| value).collect()
}

/// Scripts do not see it, and other sites do not get it sent along.
pub(crate) fn set(token: &str, lasts_secs: u64, secure: bool) -> String {
    let (name, secure) = if secure { (SECURE_NAME, "; Secure") } else { (PLAIN_NAME, "") };
    format!("{name}={token}; Path=/; Max-Age={lasts_secs}; HttpOnly; SameSite=Strict{secure}")
}

/// Whether the page that asks was loaded over https.
pub(crate) fn is_secure(headers: &HeaderMap) -> bool {
    headers.get(ORIGIN).is_some_and(|origin| origin.as_bytes().starts_with(b"https://"))
}

/// Whether a browser says that the request comes from our own pages: by `Sec-Fetch-Site`, or by `Origin` where that is
/// missing. One that says nothing is not believed.
pub(crate) fn is_from_our_pages(headers: &HeaderMap) -> bool {
    if let Some(site) = headers.get("sec-fetch-site") {
        return site == "same-origin";
    }
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let origin = headers.get(ORIGIN).and_then(|origin| origin.to_str().ok());
    let origin_host = origin.and_then(|origin| origin.split_once("://")).map(|(_, host)| host);
    host.is_some() && origin_host == host
}

/// Whether it comes from another site's pages. A program that is no browser says nothing of the kind.
pub(crate) fn is_from_elsewhere(headers: &HeaderMap) -> bool {
    (headers.contains_key("sec-fetch-site") || headers.contains_key(ORIGIN)) && !is_from_our_pages(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| ((*name).try_into().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn only_our_own_pages_are_believed() {
        for (given, ours, elsewhere) in [
            (vec![("sec-fetch-site", "same-origin")], true, false),
            (vec![("sec-fetch-site", "same-site")], false, true),
            (vec![("sec-fetch-site", "cross-site"), ("origin", "http://a"), ("host", "a")], false, true),
            (vec![("sec-fetch-site", "none")], false, true),
            (vec![("origin", "https://a:8443"), ("host", "a:8443")], true, false),
            (vec![("origin", "https://b"), ("host", "a")], false, true),
            (vec![("origin", "null"), ("host", "a")], false, true),
            (vec![("host", "a")], false, false),
            (vec![], false, false),
        ] {
            let headers = headers(&given);
            assert_eq!((is_from_our_pages(&headers), is_from_elsewhere(&headers)), (ours, elsewhere), "{given:?}");
        }
    }

    #[test]
    fn a_cookie_that_was_planted_counts_for_nothing() {
        let (ours, planted) = ("__Host-doorstep_portal=ours", "doorstep_portal=planted");
        for lines in [
            vec![format!("{planted}; {ours}")],
            vec![format!("{ours}; {planted}")],
            vec![planted.to_owned(), ours.to_owned()],
        ] {
            let mut all = HeaderMap::new();
            for line in &lines {
                all.append(COOKIE, line.parse().unwrap());
            }
            assert_eq!(read(&all), Some("ours"), "{lines:?}");
        }
        for name in [SECURE_NAME, PLAIN_NAME] {
            assert_eq!(read(&headers(&[("cookie", &format!("{name}=a; {name}=b"))])), None);
            let mut two = HeaderMap::new();
            for value in ["a", "b"] {
                two.append(COOKIE, format!("{name}={value}").parse().unwrap());
            }
            assert_eq!(read(&two), None, "also in two headers");
        }
        let doubled = format!("{SECURE_NAME}=a; {SECURE_NAME}=b; {planted}");
        assert_eq!(read(&headers(&[("cookie", &doubled)])), None, "the plain one does not stand in");
    }

    #[test]
    fn the_cookie_is_found_among_others() {
        for (line, found) in [
            ("doorstep_portal=x", Some("x")),
            ("a=b; __Host-doorstep_portal=y ;c=d", Some("y")),
            ("xdoorstep_portal=x", None),
            ("doorstep_portal", None),
        ] {
            assert_eq!(read(&headers(&[("cookie", line)])), found, "{line}");
        }
        assert!(
            set("t", 5, true)
                .starts_with("__Host-doorstep_portal=t; Path=/; Max-Age=5; HttpOnly; SameSite=Strict; Secure")
        );
        assert!(!set("t", 5, false).contains("Secure"));
    }
}
