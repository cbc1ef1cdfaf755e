//! Checks the address at which other nodes reach a node.

#[cfg(feature = "links")]
use std::net::IpAddr;
use std::net::{Ipv6Addr, SocketAddr};

/// Checks that other nodes can connect to an address.
///
/// # Errors
///
/// If it is not `host:port`, or has a host or a port that no node can connect to. The text states what
/// is wrong and what to write.
pub(crate) fn check(address: &str) -> Result<(), String> {
    let problem = problem(address);
    let advice =
        "set the host and port at which other nodes reach this node, such as 10.0.0.7:7070";
    problem.map_or(Ok(()), |problem| Err(format!("{address:?} {problem}: {advice}")))
}

/// Returns the IP address of an address, if it has no host name.
#[cfg(feature = "links")]
pub(crate) fn ip(address: &str) -> Option<IpAddr> {
    address.parse().ok().map(|address: SocketAddr| address.ip())
}

fn problem(address: &str) -> Option<&'static str> {
    if address.parse::<Ipv6Addr>().is_ok() {
        return Some("is an IPv6 address without brackets and port");
    }
    let Some((host, port)) = address.rsplit_once(':') else { return Some("has no port") };
    let number = port.parse().ok();
    match (number, address.parse::<SocketAddr>()) {
        (None, _) => Some("has a port that is not a number from 1 to 65535"),
        (Some(0_u16), _) => Some("has port 0, which no node can connect to"),
        (Some(_), Ok(socket)) if socket.ip().to_canonical().is_unspecified() => {
            Some("stands for all addresses of a machine")
        }
        (Some(_), Ok(_)) => None,
        (Some(_), Err(_)) => (!is_name(host)).then_some("has no valid host"),
    }
}

/// Returns whether a text can be a host name.
fn is_name(host: &str) -> bool {
    let is_label = |label: &str| {
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        !label.is_empty() && label.chars().all(is_allowed)
    };
    let host = host.strip_suffix('.').unwrap_or(host);
    host.len() <= 253 && host.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s1624_an_address_to_which_no_node_can_connect_is_an_error_that_names_the_problem() {
        for good in
            ["10.0.0.7:7070", "[fd00::7]:7070", "shop-1:7070", "shop-1.shop.svc.:7070", "h_1:1"]
        {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for (bad, problem) in [
            ("shop-1", "has no port"),
            ("", "has no port"),
            ("10.0.0.7", "has no port"),
            ("shop-1:", "has a port that is not a number"),
            ("shop-1:http", "has a port that is not a number"),
            ("shop-1:70700", "has a port that is not a number"),
            ("shop-1:0", "has port 0"),
            ("10.0.0.7:0", "has port 0"),
            ("0.0.0.0:7070", "stands for all addresses"),
            ("[::]:7070", "stands for all addresses"),
            ("[::ffff:0.0.0.0]:7070", "stands for all addresses"),
            ("fd00::7:7070", "is an IPv6 address without brackets"),
            ("fd00::7", "is an IPv6 address without brackets"),
            (":7070", "has no valid host"),
            ("http://shop-1:7070", "has no valid host"),
            ("shop 1:7070", "has no valid host"),
        ] {
            let error = check(bad).unwrap_err();
            assert!(error.starts_with(&format!("{bad:?} {problem}")), "{error}");
            assert!(error.ends_with("reach this node, such as 10.0.0.7:7070"), "{error}");
        }
    }
}
