//! The address of an admin port.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

const PORT: u16 = 8558;

/// The address of an admin port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// Without the brackets of an IPv6 address.
    pub(super) host: String,
    pub(super) port: u16,
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let example = "such as http://127.0.0.1:8558, pod:8558 or :8558";
        let rest = match text.split_once("://") {
            Some(("http", rest)) => rest,
            Some(("https", _)) => {
                return Err("the admin port serves plain HTTP: write http://, and use a tunnel \
                            (kubectl port-forward, ssh -L) if the network is not trusted"
                    .into());
            }
            Some((scheme, _)) => {
                return Err(format!("{scheme}:// is not supported; write a URL {example}"));
            }
            None => text,
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if rest.contains(['/', '?', '#']) {
            return Err(format!("write the URL without a path, {example}"));
        }
        if rest.contains('@') {
            return Err("write the URL without a user; pass a token with --token".into());
        }
        let wrong = || format!("write a URL {example}");
        // An IPv6 address is in brackets, unless no port follows.
        let is_bare = rest.matches(':').count() > 1 && !rest.starts_with('[');
        let (host, port) = match rest.rsplit_once(':') {
            Some((host, port)) if !is_bare && !port.contains(']') => {
                (host, port.parse().ok().filter(|port| *port > 0).ok_or_else(wrong)?)
            }
            _ => (rest, PORT),
        };
        let bracketed = host.strip_prefix('[').map(|host| host.strip_suffix(']'));
        let is_v6 = bracketed.is_some() || host.contains(':');
        let host = bracketed.unwrap_or(Some(host)).ok_or_else(wrong)?;
        let host = if host.is_empty() { "127.0.0.1" } else { host };
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':');
        if !host.chars().all(is_allowed) || is_v6 && host.parse::<Ipv6Addr>().is_err() {
            return Err(wrong());
        }
        Ok(Self { host: host.into(), port })
    }
}

impl Target {
    /// Returns the value of the header `host`.
    pub(super) fn authority(&self) -> String {
        let Self { host, port } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}", self.authority())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scheme_the_host_and_the_port_are_optional() {
        let cases = [
            ("", "http://127.0.0.1:8558"),
            (":9000", "http://127.0.0.1:9000"),
            ("pod-7", "http://pod-7:8558"),
            ("pod-7:9000", "http://pod-7:9000"),
            ("http://pod-7:9000/", "http://pod-7:9000"),
            ("http://10.0.0.7", "http://10.0.0.7:8558"),
            ("[::1]:9000", "http://[::1]:9000"),
            ("::1", "http://[::1]:8558"),
        ];
        for (text, shown) in cases {
            assert_eq!(text.parse::<Target>().map(|target| target.to_string()), Ok(shown.into()));
        }
        let wrong = [
            "https://pod:1",
            "ftp://pod",
            "pod:0",
            "pod:99999",
            "pod:x",
            "pod/shutdown",
            "me@pod",
            "[::1",
            "a b",
            "pod\r\nx: y",
            "[x]:1",
            "a:b:c",
        ];
        for text in wrong {
            assert!(text.parse::<Target>().is_err(), "{text}");
        }
    }
}
