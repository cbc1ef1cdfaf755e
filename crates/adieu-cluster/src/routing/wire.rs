//! How requests and responses travel between nodes. The encoding is that of protobuf, so that nodes of
//! different builds understand each other.

use bytes::Bytes;
use http::header::{CONNECTION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, Version};
use http::{Request, Response, request, response};
use prost::Message as _;

use super::body::RoutedBody;

/// The most bytes of the head of a request or response.
const LONGEST_HEAD: usize = 64 * 1024;

#[derive(Clone, PartialEq, Eq, prost::Message)]
struct RequestParcel {
    #[prost(string, tag = "1")]
    method: String,
    #[prost(string, tag = "2")]
    uri: String,
    #[prost(uint32, tag = "3")]
    version: u32,
    #[prost(message, repeated, tag = "4")]
    headers: Vec<Header>,
    #[prost(bytes = "bytes", tag = "5")]
    body: Bytes,
    #[prost(message, repeated, tag = "6")]
    trailers: Vec<Header>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
struct ResponseParcel {
    #[prost(uint32, tag = "1")]
    status: u32,
    #[prost(message, repeated, tag = "2")]
    headers: Vec<Header>,
    #[prost(bytes = "bytes", tag = "3")]
    body: Bytes,
    #[prost(message, repeated, tag = "4")]
    trailers: Vec<Header>,
    /// Instead of a response: why there is none.
    #[prost(string, tag = "5")]
    problem: String,
    /// Whether the handler has run nevertheless.
    #[prost(bool, tag = "6")]
    has_run: bool,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
struct Header {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(bytes = "bytes", tag = "2")]
    value: Bytes,
}

/// A body as a whole, with its trailers.
#[derive(Debug, Default)]
pub(super) struct Whole {
    pub(super) bytes: Bytes,
    pub(super) trailers: HeaderMap,
}

/// Why the owner has no response to a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NoResponse {
    pub(super) problem: String,
    pub(super) has_run: bool,
}

/// The head is longer than nodes forward.
#[derive(Debug)]
pub(super) struct LongHead;

/// Encodes a request.
pub(super) fn encode_request(head: request::Parts, body: Whole) -> Result<Bytes, LongHead> {
    let parcel = RequestParcel {
        method: head.method.as_str().to_owned(),
        // The type bounds its length.
        uri: head.uri.to_string(),
        version: version_number(head.version),
        headers: packed(&head.headers)?,
        body: body.bytes,
        trailers: packed(&body.trailers)?,
    };
    Ok(parcel.encode_to_vec().into())
}

/// Decodes a request. The error describes the defect.
pub(super) fn decode_request(bytes: Bytes) -> Result<Request<RoutedBody>, String> {
    let parcel = RequestParcel::decode(bytes).map_err(|error| error.to_string())?;
    let method = Method::from_bytes(parcel.method.as_bytes()).map_err(|error| error.to_string())?;
    let uri: Uri = parcel.uri.parse().map_err(|error: http::uri::InvalidUri| error.to_string())?;
    let mut request = Request::new(RoutedBody::whole(parcel.body, unpacked(parcel.trailers)?));
    *request.method_mut() = method;
    *request.uri_mut() = uri;
    *request.version_mut() = version(parcel.version);
    *request.headers_mut() = unpacked(parcel.headers)?;
    Ok(request)
}

/// Encodes a response.
pub(super) fn encode_response(head: response::Parts, body: Whole) -> Bytes {
    let headers = packed(&head.headers);
    let (Ok(headers), Ok(trailers)) = (headers, packed(&body.trailers)) else {
        let problem = format!("the headers of its response have more than {LONGEST_HEAD} bytes");
        return encode_problem(problem, true);
    };
    let status = head.status.as_u16().into();
    let parcel =
        ResponseParcel { status, headers, body: body.bytes, trailers, ..Default::default() };
    parcel.encode_to_vec().into()
}

/// Encodes why there is no response.
pub(super) fn encode_problem(problem: String, has_run: bool) -> Bytes {
    ResponseParcel { problem, has_run, ..Default::default() }.encode_to_vec().into()
}

/// Decodes a response.
pub(super) fn decode_response(bytes: Bytes) -> Result<Response<RoutedBody>, NoResponse> {
    let unreadable = |why: String| NoResponse {
        problem: format!("the response of its owner cannot be decoded: {why}"),
        has_run: true,
    };
    let parcel = ResponseParcel::decode(bytes).map_err(|error| unreadable(error.to_string()))?;
    let ResponseParcel { status, headers, body, trailers, problem, has_run } = parcel;
    if !problem.is_empty() {
        return Err(NoResponse { problem, has_run });
    }
    let status = u16::try_from(status).ok().and_then(|it| StatusCode::from_u16(it).ok());
    let status = status.ok_or_else(|| unreadable("it has no status".to_owned()))?;
    let trailers = unpacked(trailers).map_err(unreadable)?;
    let mut response = Response::new(RoutedBody::whole(body, trailers));
    *response.status_mut() = status;
    *response.headers_mut() = unpacked(headers).map_err(unreadable)?;
    Ok(response)
}

fn packed(headers: &HeaderMap) -> Result<Vec<Header>, LongHead> {
    let size: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    if size > LONGEST_HEAD {
        return Err(LongHead);
    }
    let named = headers.get_all(CONNECTION);
    let named: Vec<_> = named.iter().filter_map(|it| it.to_str().ok()).collect();
    let is_named = |name: &HeaderName| {
        let names = named.iter().flat_map(|it| it.split(','));
        names.into_iter().any(|it| it.trim().eq_ignore_ascii_case(name.as_str()))
    };
    let kept = headers.iter().filter(|(name, _)| !is_of_connection(name) && !is_named(name));
    let header = |(name, value): (&HeaderName, &HeaderValue)| Header {
        name: name.as_str().to_owned(),
        value: Bytes::copy_from_slice(value.as_bytes()),
    };
    Ok(kept.map(header).collect())
}

/// Returns whether a header is about one connection and not about the message.
fn is_of_connection(name: &HeaderName) -> bool {
    [CONNECTION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE].contains(name)
        || ["keep-alive", "proxy-connection", "proxy-authenticate", "proxy-authorization"]
            .contains(&name.as_str())
}

fn unpacked(headers: Vec<Header>) -> Result<HeaderMap, String> {
    let mut map = HeaderMap::with_capacity(headers.len());
    for Header { name, value } in headers {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|error| error.to_string())?;
        let value = HeaderValue::from_maybe_shared(value).map_err(|error| error.to_string())?;
        map.append(name, value);
    }
    Ok(map)
}

fn version_number(version: Version) -> u32 {
    match version {
        Version::HTTP_09 => 9,
        Version::HTTP_10 => 10,
        Version::HTTP_2 => 20,
        Version::HTTP_3 => 30,
        _ => 11,
    }
}

fn version(number: u32) -> Version {
    match number {
        9 => Version::HTTP_09,
        10 => Version::HTTP_10,
        20 => Version::HTTP_2,
        30 => Version::HTTP_3,
        _ => Version::HTTP_11,
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;
    use proptest::prelude::*;

    use super::*;

    fn sent(request: http::request::Builder) -> Request<RoutedBody> {
        let (head, ()) = request.body(()).unwrap().into_parts();
        let body = Whole { bytes: "body".into(), trailers: HeaderMap::new() };
        decode_request(encode_request(head, body).unwrap()).unwrap()
    }

    #[test]
    fn s1458_headers_of_the_connection_do_not_travel_and_others_do() {
        let request = Request::put("/carts/17?x=1")
            .version(Version::HTTP_10)
            .header("connection", "keep-alive, X-Hop")
            .header("x-hop", "1")
            .header("keep-alive", "timeout=5")
            .header("te", "trailers")
            .header("transfer-encoding", "chunked")
            .header("x-forwarded-for", "10.0.0.1")
            .header("x-forwarded-for", "10.0.0.2")
            .header("host", "shop")
            .header("x-odd", &b"\xff\x01 "[..1]);
        let arrived = sent(request);
        assert_eq!(arrived.method(), Method::PUT);
        assert_eq!(arrived.uri(), "/carts/17?x=1");
        assert_eq!(arrived.version(), Version::HTTP_10);
        let mut names: Vec<_> = arrived.headers().keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["host", "x-forwarded-for", "x-odd"]);
        assert_eq!(arrived.headers().get_all("x-forwarded-for").iter().count(), 2);
        assert_eq!(arrived.headers()["x-odd"].as_bytes(), b"\xff");
    }

    #[tokio::test]
    async fn responses_travel_with_their_trailers() {
        let (mut head, ()) = Response::builder().status(201).body(()).unwrap().into_parts();
        head.headers.insert("x-cart", HeaderValue::from_static("17"));
        let trailers =
            HeaderMap::from_iter([("grpc-status".parse().unwrap(), "0".parse().unwrap())]);
        let sent = encode_response(head, Whole { bytes: "done".into(), trailers });
        let arrived = decode_response(sent).unwrap();
        assert_eq!(
            (arrived.status().as_u16(), &arrived.headers()["x-cart"]),
            (201, &"17".parse().unwrap())
        );
        let body = arrived.into_body().collect().await.unwrap();
        assert_eq!(body.trailers().unwrap()["grpc-status"], "0");
        assert_eq!(body.to_bytes(), "done");
    }

    #[test]
    fn a_head_that_is_too_long_is_not_encoded() {
        let long = "x".repeat(LONGEST_HEAD);
        let (head, ()) = Request::get("/").header("x-long", long).body(()).unwrap().into_parts();
        assert!(encode_request(head, Whole::default()).is_err());
    }

    #[test]
    fn garbage_is_an_error() {
        let header = |name: &str, value: &'static [u8]| {
            vec![Header { name: name.to_owned(), value: Bytes::from_static(value) }]
        };
        let (method, uri, get) = ("GET".to_owned(), "/".to_owned(), RequestParcel::default());
        let get = RequestParcel { method, uri, ..get };
        assert!(decode_request(get.encode_to_vec().into()).is_ok());
        for broken in [
            RequestParcel { method: "G T".to_owned(), ..get.clone() },
            RequestParcel { uri: "/ /".to_owned(), ..get.clone() },
            RequestParcel { headers: header("x y", b""), ..get.clone() },
            RequestParcel { headers: header("x", b"\n"), ..get.clone() },
            RequestParcel { trailers: header("x", b"\n"), ..get.clone() },
        ] {
            assert!(decode_request(broken.encode_to_vec().into()).is_err(), "{broken:?}");
        }
        let done = ResponseParcel { status: 200, ..ResponseParcel::default() };
        assert!(decode_response(done.encode_to_vec().into()).is_ok());
        for broken in [
            ResponseParcel { status: 99, ..done.clone() },
            ResponseParcel { status: 65_736, ..done.clone() },
            ResponseParcel { headers: header("", b""), ..done.clone() },
            ResponseParcel { trailers: header("x", b"\n"), ..done },
        ] {
            let NoResponse { problem, has_run } =
                decode_response(broken.encode_to_vec().into()).unwrap_err();
            assert!(has_run && problem.contains("cannot be decoded"), "{broken:?}: {problem}");
        }
        let cut = get.encode_to_vec();
        let cut = Bytes::copy_from_slice(&cut[..cut.len() - 1]);
        assert!(decode_request(cut.clone()).is_err());
        assert!(decode_response(cut).unwrap_err().has_run);
    }

    proptest! {
        #[test]
        fn a_damaged_request_is_an_error_or_another_request(
            uri in "/[a-z]{0,40}", value in "[a-z]{0,40}", at: prop::sample::Index, byte: u8,
        ) {
            let (head, ()) = Request::get(uri).header("x-cart", value).body(()).unwrap().into_parts();
            let mut bytes = encode_request(head, Whole::default()).unwrap().to_vec();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            if let Ok(request) = decode_request(bytes.into()) {
                let (head, _) = request.into_parts();
                let again = encode_request(head.clone(), Whole::default()).unwrap();
                let again = decode_request(again).unwrap();
                prop_assert_eq!((again.method(), again.uri()), (&head.method, &head.uri));
            }
        }

        /// A build without requests decodes them as commands.
        #[test]
        fn a_request_is_never_a_command(uri in "/[a-z]{0,40}", body in ".{0,40}") {
            let (head, ()) = Request::get(uri).body(()).unwrap().into_parts();
            let body = Whole { bytes: body.into(), trailers: HeaderMap::new() };
            let bytes = encode_request(head, body).unwrap();
            prop_assert!(serde_json::from_slice::<serde_json::Value>(&bytes).is_err());
        }
    }
}
