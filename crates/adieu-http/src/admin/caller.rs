//! Who may change something.

use std::net::IpAddr;

use http::header::{AUTHORIZATION, HOST, ORIGIN};
use http::{HeaderMap, HeaderValue};
use subtle::ConstantTimeEq;

use super::AdminError;

/// What a caller has to know.
pub(super) struct Token(String);

/// Whether a caller may change something, and why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Allowed,
    /// It has a token, but not ours.
    WrongToken,
    /// It comes from elsewhere and has none.
    FromElsewhere,
    /// It has none, and everybody needs one.
    NoToken,
    /// A web page sent it, perhaps without its reader's knowing.
    FromWebPage,
    /// A proxy on this machine sent it for somebody else.
    FromProxy,
}

/// What proxies add to what they pass on.
const OF_PROXIES: [&str; 4] = ["x-forwarded-for", "forwarded", "x-real-ip", "via"];
const SEC_FETCH_SITE: &str = "sec-fetch-site";

const SHORTEST: usize = 16;

impl Token {
    pub(super) fn new(token: String) -> Result<Self, AdminError> {
        match token.len() {
            len if len < SHORTEST => Err(AdminError::WeakToken { len }),
            _ => Ok(Self(token)),
        }
    }

    /// Takes as long for a token that is nearly right as for one that is all wrong.
    fn is(&self, given: &[u8]) -> bool {
        self.0.as_bytes().ct_eq(given).into()
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}

/// Whether a caller has the token; nothing if it has none at all.
pub(super) fn knows_token(token: Option<&Token>, headers: &HeaderMap) -> Option<bool> {
    let given = headers.get(AUTHORIZATION)?.as_bytes();
    let bearer = given.split_at_checked(b"Bearer ".len());
    Some(bearer.is_some_and(|(scheme, given)| {
        scheme.eq_ignore_ascii_case(b"Bearer ") && token.is_some_and(|token| token.is(given))
    }))
}

/// Judges a caller who wants to change something.
pub(super) fn judge(
    token: Option<&Token>,
    only_token: bool,
    from: IpAddr,
    headers: &HeaderMap,
) -> Verdict {
    match knows_token(token, headers) {
        Some(true) => return Verdict::Allowed,
        Some(false) => return Verdict::WrongToken,
        None => {}
    }
    if only_token {
        return Verdict::NoToken;
    }
    if !from.to_canonical().is_loopback() {
        return Verdict::FromElsewhere;
    }
    if is_rebound(from, headers) {
        return Verdict::FromWebPage;
    }
    if OF_PROXIES.iter().any(|name| headers.contains_key(*name)) {
        return Verdict::FromProxy;
    }
    // Browsers say where a page came from that makes them ask. Not all send an origin.
    let is_from_site = |site: &HeaderValue| !matches!(site.as_bytes(), b"none" | b"same-origin");
    let is_page =
        headers.contains_key(ORIGIN) || headers.get_all(SEC_FETCH_SITE).iter().any(is_from_site);
    if is_page { Verdict::FromWebPage } else { Verdict::Allowed }
}

/// Whether a browser on this machine may have been made to believe that we are a site of its own:
/// it asks from here, under a name that somebody else has given to this address.
pub(super) fn is_rebound(from: IpAddr, headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(HOST).and_then(|host| host.to_str().ok()) else { return false };
    let name = host.rsplit_once(':').map_or(host, |(name, port)| {
        if port.bytes().all(|digit| digit.is_ascii_digit()) { name } else { host }
    });
    let is_address = name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
    let is_local = name.eq_ignore_ascii_case("localhost") || !name.contains('.');
    from.to_canonical().is_loopback() && !is_address && !is_local
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_neighbours_and_those_who_know_the_token_may_change_something() {
        let token = Token::new("correct horse battery".into()).ok();
        let here: IpAddr = [127, 0, 0, 1].into();
        let mapped: IpAddr = "::ffff:127.0.0.1".parse().unwrap_or(here);
        let elsewhere: IpAddr = [10, 0, 0, 7].into();
        let with = |name, value: &'static str| {
            HeaderMap::from_iter([(name, HeaderValue::from_static(value))])
        };
        let none = HeaderMap::new();
        let right = with(AUTHORIZATION, "bearer correct horse battery");
        let wrong = with(AUTHORIZATION, "Bearer correct horse batterx");
        let page = with(ORIGIN, "https://elsewhere.example");
        let judged = |from, headers: &HeaderMap| judge(token.as_ref(), false, from, headers);
        assert_eq!(judged(here, &none), Verdict::Allowed);
        assert_eq!(judged(mapped, &none), Verdict::Allowed);
        assert_eq!(judged(here, &page), Verdict::FromWebPage);
        assert_eq!(judged(here, &wrong), Verdict::WrongToken);
        assert_eq!(judged(elsewhere, &none), Verdict::FromElsewhere);
        assert_eq!(judged(elsewhere, &right), Verdict::Allowed);
        assert_eq!(judged(elsewhere, &wrong), Verdict::WrongToken);
        assert_eq!(judge(None, false, elsewhere, &right), Verdict::WrongToken);
        let rebound = with(HOST, "evil.example:8558");
        assert_eq!(judged(here, &rebound), Verdict::FromWebPage);
        for host in ["localhost:8558", "127.0.0.1:8558", "[::1]:8558", "pod"] {
            assert_eq!(judged(here, &with(HOST, host)), Verdict::Allowed, "{host}");
        }
        assert_eq!(judge(token.as_ref(), true, here, &none), Verdict::NoToken);
        assert_eq!(judge(token.as_ref(), true, here, &right), Verdict::Allowed);
        assert!(matches!(Token::new("short".into()), Err(AdminError::WeakToken { len: 5 })));
    }
}
