//! Decides whether a caller may change the process.

use std::net::IpAddr;

use http::header::{AUTHORIZATION, HOST, ORIGIN};
use http::{HeaderMap, HeaderName, HeaderValue};
use subtle::ConstantTimeEq;

use super::AdminError;

/// The secret that authorises a caller.
pub(super) struct Token(String);

/// Whether a caller may change the process, or why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Allowed,
    /// The caller has sent a token that is not the right one.
    WrongToken,
    /// The caller is on another machine and has sent no token.
    Remote,
    /// The token is required, and the caller has sent none.
    NoToken,
    /// A web page has sent the request, perhaps without its reader's knowledge.
    FromWebPage,
    /// A proxy on this machine has forwarded the request.
    FromProxy,
}

/// The headers that proxies add, in addition to those that begin with `x-forwarded-`.
const PROXY_HEADERS: [&str; 8] = [
    "forwarded",
    "via",
    "x-real-ip",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-envoy-external-address",
    "cf-connecting-ip",
    "true-client-ip",
];
const X_FORWARDED: &str = "x-forwarded-";
const SEC_FETCH_SITE: &str = "sec-fetch-site";

const MIN_LEN: usize = 16;

impl Token {
    pub(super) fn new(token: String) -> Result<Self, AdminError> {
        match token.len() {
            len if len < MIN_LEN => Err(AdminError::WeakToken { len }),
            _ => Ok(Self(token)),
        }
    }

    /// Compares in constant time, so that the time does not reveal how much of a guess is right.
    fn matches(&self, given: &[u8]) -> bool {
        self.0.as_bytes().ct_eq(given).into()
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}

/// Returns whether the request has the right token, or `None` if it has none.
pub(super) fn has_token(token: Option<&Token>, headers: &HeaderMap) -> Option<bool> {
    let given = headers.get(AUTHORIZATION)?.as_bytes();
    let bearer = given.split_at_checked(b"Bearer ".len());
    Some(bearer.is_some_and(|(scheme, given)| {
        scheme.eq_ignore_ascii_case(b"Bearer ") && token.is_some_and(|token| token.matches(given))
    }))
}

/// Decides whether a request may change the process.
pub(super) fn authorize(
    token: Option<&Token>,
    is_token_required: bool,
    from: IpAddr,
    bound: IpAddr,
    headers: &HeaderMap,
) -> Verdict {
    match has_token(token, headers) {
        Some(true) => return Verdict::Allowed,
        Some(false) => return Verdict::WrongToken,
        None => {}
    }
    if is_token_required {
        return Verdict::NoToken;
    }
    if !from.to_canonical().is_loopback() {
        return Verdict::Remote;
    }
    if rebound_name(from, headers).is_some() {
        return Verdict::FromWebPage;
    }
    let is_of_proxy = |name: &HeaderName| {
        name.as_str().starts_with(X_FORWARDED) || PROXY_HEADERS.contains(&name.as_str())
    };
    if headers.keys().any(is_of_proxy) || !is_local_host(bound, headers) {
        return Verdict::FromProxy;
    }
    // Browsers name the site of the page that sent the request, in one of two headers.
    let is_from_site = |site: &HeaderValue| !matches!(site.as_bytes(), b"none" | b"same-origin");
    let is_page =
        headers.contains_key(ORIGIN) || headers.get_all(SEC_FETCH_SITE).iter().any(is_from_site);
    if is_page { Verdict::FromWebPage } else { Verdict::Allowed }
}

/// Returns whether the request is addressed to this machine: to a loopback name or address, or to the
/// address that the port is bound to.
///
/// A proxy passes on the name under which its own client has reached it, or, as nginx does by
/// default, the name of its upstream. The latter is local, so that proxy is not recognised.
fn is_local_host(bound: IpAddr, headers: &HeaderMap) -> bool {
    let mut hosts = headers.get_all(HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return !headers.contains_key(HOST); // HTTP/1.0 needs none.
    };
    let Ok(host) = host.to_str() else { return false };
    let name = host_name(host);
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    match name.trim_matches(['[', ']']).parse::<IpAddr>() {
        Ok(address) => address.to_canonical().is_loopback() || address == bound,
        Err(_) => name == "localhost" || name.ends_with(".localhost"),
    }
}

/// Returns the part of a `Host` header before the port.
fn host_name(host: &str) -> &str {
    host.rsplit_once(':').map_or(host, |(name, port)| {
        if port.bytes().all(|digit| digit.is_ascii_digit()) { name } else { host }
    })
}

/// Returns the name in the `Host` header if the request may come from a browser that is subject to DNS
/// rebinding: it was sent from this machine, under a host name that is not local.
pub(super) fn rebound_name(from: IpAddr, headers: &HeaderMap) -> Option<&str> {
    let name = host_name(headers.get(HOST)?.to_str().ok()?);
    let is_address = name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
    let is_local = name.eq_ignore_ascii_case("localhost") || !name.contains('.');
    (from.to_canonical().is_loopback() && !is_address && !is_local).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_local_callers_and_callers_with_the_token_may_change_the_process() {
        let token = Token::new("correct horse battery".into()).ok();
        let here: IpAddr = [127, 0, 0, 1].into();
        let mapped: IpAddr = "::ffff:127.0.0.1".parse().unwrap_or(here);
        let remote: IpAddr = [10, 0, 0, 7].into();
        let with = |name, value: &'static str| {
            HeaderMap::from_iter([(name, HeaderValue::from_static(value))])
        };
        let none = HeaderMap::new();
        let right = with(AUTHORIZATION, "bearer correct horse battery");
        let wrong = with(AUTHORIZATION, "Bearer correct horse batterx");
        let page = with(ORIGIN, "https://remote.example");
        let judged =
            |from, headers: &HeaderMap| authorize(token.as_ref(), false, from, here, headers);
        assert_eq!(judged(here, &none), Verdict::Allowed);
        assert_eq!(judged(mapped, &none), Verdict::Allowed);
        assert_eq!(judged(here, &page), Verdict::FromWebPage);
        assert_eq!(judged(here, &wrong), Verdict::WrongToken);
        assert_eq!(judged(remote, &none), Verdict::Remote);
        assert_eq!(judged(remote, &right), Verdict::Allowed);
        assert_eq!(judged(remote, &wrong), Verdict::WrongToken);
        assert_eq!(authorize(None, false, remote, here, &right), Verdict::WrongToken);
        let rebound = with(HOST, "evil.example:8558");
        assert_eq!(judged(here, &rebound), Verdict::FromWebPage);
        for host in ["localhost:8558", "127.0.0.1:8558", "[::1]:8558", "LOCALHOST"] {
            assert_eq!(judged(here, &with(HOST, host)), Verdict::Allowed, "{host}");
        }
        for host in ["pod", "10.0.0.7:8558", "[::1", "0.0.0.0", "[fe80::1]:8558"] {
            assert_eq!(judged(here, &with(HOST, host)), Verdict::FromProxy, "{host}");
        }
        let bound: IpAddr = [10, 0, 0, 7].into();
        let own = with(HOST, "10.0.0.7:8558");
        assert_eq!(authorize(token.as_ref(), false, here, bound, &own), Verdict::Allowed);
        for name in [
            "x-forwarded-host",
            "x-forwarded-proto",
            "x-forwarded-port",
            "x-forwarded-server",
            "cf-connecting-ip",
            "true-client-ip",
            "x-envoy-external-address",
        ] {
            let headers = with(HeaderName::from_static(name), "10.0.0.7");
            assert_eq!(judged(here, &headers), Verdict::FromProxy, "{name}");
        }
        assert_eq!(authorize(token.as_ref(), true, here, here, &none), Verdict::NoToken);
        assert_eq!(authorize(token.as_ref(), true, here, here, &right), Verdict::Allowed);
        assert!(matches!(Token::new("short".into()), Err(AdminError::WeakToken { len: 5 })));
    }
}
