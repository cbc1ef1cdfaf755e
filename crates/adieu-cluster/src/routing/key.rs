//! Finds the key of a request.

use http::HeaderName;
use http::request::Parts;

/// Finds the key of a request. Requests without one run on the node that has received them.
///
/// Functions implement it, and arrays of keys, of which the first that is there counts.
pub trait RequestKey: Send + Sync + 'static {
    /// Returns the key, if the request has one.
    fn key(&self, request: &Parts) -> Option<String>;
}

/// A parameter of the path. Created by [`path`].
#[derive(Clone, Debug)]
pub struct PathKey {
    segments: Vec<Segment>,
}

/// A header. Created by [`header`].
#[derive(Clone, Debug)]
pub struct HeaderKey {
    name: HeaderName,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    Text(String),
    Parameter,
    /// One or more segments, at the end.
    Rest,
}

/// Takes the first parameter of the path as the key. The template is written as in axum: `{id}` is one
/// segment, and `{*rest}` at the end is one or more. A path that does not fit has no key.
///
/// ```
/// use adieu_cluster::routing::{RequestKey, path};
///
/// let keys = [path("/carts/{id}"), path("/carts/{id}/{*rest}")];
/// let key = |uri| keys.key(&http::Request::get(uri).body(()).unwrap().into_parts().0);
/// assert_eq!(key("/carts/17?full"), Some("17".to_owned()));
/// assert_eq!(key("/carts/a%20b/items/3"), Some("a b".to_owned()));
/// assert_eq!(key("/carts"), None);
/// ```
#[must_use]
pub fn path(template: &str) -> PathKey {
    let is_parameter = |it: &str| it.starts_with('{') && it.ends_with('}');
    let segment = |it: &str| match it {
        it if it.starts_with("{*") && it.ends_with('}') => Segment::Rest,
        it if is_parameter(it) => Segment::Parameter,
        it => Segment::Text(it.to_owned()),
    };
    PathKey { segments: split(template).map(segment).collect() }
}

/// Takes a header as the key.
#[must_use]
pub fn header(name: HeaderName) -> HeaderKey {
    HeaderKey { name }
}

fn split(path: &str) -> std::str::Split<'_, char> {
    path.strip_prefix('/').unwrap_or(path).split('/')
}

impl RequestKey for PathKey {
    fn key(&self, request: &Parts) -> Option<String> {
        let mut key = None;
        let mut found = split(request.uri.path());
        for segment in &self.segments {
            let text = found.next()?;
            match segment {
                Segment::Text(expected) if expected == text => {}
                Segment::Text(_) => return None,
                Segment::Parameter | Segment::Rest if text.is_empty() => return None,
                Segment::Parameter => key = key.or(Some(text)),
                Segment::Rest => return key.map(decoded),
            }
        }
        key.filter(|_| found.next().is_none()).map(decoded)
    }
}

impl RequestKey for HeaderKey {
    fn key(&self, request: &Parts) -> Option<String> {
        Some(request.headers.get(&self.name)?.to_str().ok()?.to_owned())
    }
}

impl<F> RequestKey for F
where
    F: Fn(&Parts) -> Option<String> + Send + Sync + 'static,
{
    fn key(&self, request: &Parts) -> Option<String> {
        self(request)
    }
}

impl<K: RequestKey, const N: usize> RequestKey for [K; N] {
    fn key(&self, request: &Parts) -> Option<String> {
        self.iter().find_map(|key| key.key(request))
    }
}

/// Decodes `%20` and the like. A text that is not UTF-8 then is taken as it is.
fn decoded(text: &str) -> String {
    let (bytes, mut decoded) = (text.as_bytes(), Vec::with_capacity(text.len()));
    let mut at = 0;
    while at < bytes.len() {
        let hex = bytes.get(at + 1..at + 3).filter(|_| bytes[at] == b'%');
        let hex = hex.filter(|hex| hex.iter().all(u8::is_ascii_hexdigit));
        let hex = hex.and_then(|hex| std::str::from_utf8(hex).ok());
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                decoded.push(byte);
                at += 3;
            }
            None => {
                decoded.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8(decoded).unwrap_or_else(|_| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(uri: &str) -> Parts {
        http::Request::get(uri).header("x-cart", "h-1").body(()).unwrap().into_parts().0
    }

    #[test]
    fn a_path_has_a_key_only_if_all_of_it_fits_the_template() {
        let cases = [
            ("/carts/{id}", "/carts/17", Some("17")),
            ("/carts/{id}", "/carts/17?a=/b", Some("17")),
            ("/carts/{id}", "/carts/17/", None),
            ("/carts/{id}", "/carts/17/items", None),
            ("/carts/{id}", "/carts/", None),
            ("/carts/{id}", "/users/17", None),
            ("/carts/{id}/items/{item}", "/carts/17/items/3", Some("17")),
            ("/carts/{id}/{*rest}", "/carts/17/items/3", Some("17")),
            ("/carts/{id}/{*rest}", "/carts/17", None),
            ("/carts/{id}/{*rest}", "/carts/17/", None),
            ("/carts/{id}", "/carts/%C3%BC%2F1", Some("ü/1")),
            ("/carts/{id}", "/carts/%FF", Some("%FF")),
            ("/carts/{id}", "/carts/100%", Some("100%")),
            ("/carts/{id}", "/carts/%+1", Some("%+1")),
        ];
        for (template, uri, key) in cases {
            assert_eq!(path(template).key(&parts(uri)).as_deref(), key, "{template} {uri}");
        }
    }

    #[test]
    fn a_key_can_be_a_header_or_the_result_of_a_function() {
        assert_eq!(header(HeaderName::from_static("x-cart")).key(&parts("/")).unwrap(), "h-1");
        assert_eq!(header(HeaderName::from_static("x-user")).key(&parts("/")), None);
        let by_query = |it: &Parts| it.uri.query().map(str::to_owned);
        assert_eq!(by_query.key(&parts("/a?q")).unwrap(), "q");
    }
}
