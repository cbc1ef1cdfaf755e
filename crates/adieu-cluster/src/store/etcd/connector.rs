//! The connection to a cluster: one member at a time, and the next one when it fails.

use std::error::Error as _;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use adieu_core::adapter::lock;
use etcd_client::{Client, ConnectOptions, Error};

use super::NAME;
use crate::store::StoreError;

/// How long a member may take to accept a connection.
const CONNECTING: Duration = Duration::from_secs(2);

/// After this time of silence a connection is tested. etcd closes connections that are tested more
/// often than every 5 s (`--grpc-keepalive-min-time`).
const SILENCE: Duration = Duration::from_secs(6);

/// How long a member may take to answer that test.
const TEST: Duration = Duration::from_secs(2);

pub(super) struct Connector {
    endpoints: Vec<String>,
    options: ConnectOptions,
    current: Mutex<Current>,
}

#[derive(Clone, Default)]
struct Current {
    /// How many clients have been given up. It also selects the endpoint.
    given_up: usize,
    client: Option<Arc<Client>>,
}

/// Gives the client up when a request has not been answered, also if its future was dropped:
/// otherwise the next request would wait on the same dead connection.
struct Asked<'a> {
    connector: &'a Connector,
    given_up: usize,
    is_answered: bool,
}

/// An error of the client: its message and the innermost cause. The text of the client itself contains
/// the debug output of all causes.
#[derive(Debug)]
pub(super) struct Plain(pub(super) Error);

// === impl Connector ===

impl Connector {
    pub(super) fn new(endpoints: Vec<String>, options: ConnectOptions) -> Self {
        let options = options
            .with_connect_timeout(CONNECTING)
            .with_keep_alive(SILENCE, TEST)
            // etcd closes connections that are tested while nothing is requested.
            .with_keep_alive_while_idle(false)
            .with_require_leader(true)
            .with_auto_token_refresh(true);
        Self { endpoints, options, current: Mutex::default() }
    }

    /// Makes one request to the member that is in use.
    pub(super) async fn request<T>(
        &self,
        request: impl AsyncFnOnce(&Client) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let Current { given_up, client } = self.current().clone();
        let mut asked = Asked { connector: self, given_up, is_answered: false };
        let client = match client {
            Some(client) => Ok(client),
            None => Box::pin(self.connect(given_up)).await,
        };
        let answer = match client {
            Ok(client) => Box::pin(request(&client)).await,
            Err(error) => Err(error),
        };
        let is_answered = |error: &Error| is_answer(error) && !has_outdated_token(error);
        asked.is_answered = answer.as_ref().map_or_else(is_answered, |_| true);
        answer
    }

    /// Makes a client, which connects with its first request or, if there is a user, at once.
    async fn connect(&self, given_up: usize) -> Result<Arc<Client>, Error> {
        let endpoint = &self.endpoints[given_up % self.endpoints.len()];
        let client = Client::connect([endpoint], Some(self.options.clone())).await?;
        let client = Arc::new(client);
        let mut current = self.current();
        if current.given_up == given_up {
            current.client = Some(Arc::clone(&client));
        }
        Ok(client)
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        lock(&self.current)
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let mut current = self.connector.current();
        if !self.is_answered && current.given_up == self.given_up {
            *current = Current { given_up: self.given_up.wrapping_add(1), client: None };
        }
    }
}

// --- what errors mean ---

/// Returns the code of gRPC.
pub(super) fn code(error: &Error) -> Option<i32> {
    let Error::GRpcStatus(status) = error else { return None };
    Some(status.code().into())
}

fn message(error: &Error) -> &str {
    let Error::GRpcStatus(status) = error else { return "" };
    status.message()
}

/// Returns whether etcd itself has answered, and has refused the request: not a proxy, not the
/// client, and not a member that has lost its majority or its leader while it worked on it.
fn is_answer(error: &Error) -> bool {
    const UNAVAILABLE: i32 = 14;
    let is_etcd = ["etcdserver: ", "grpc: received message larger than max"]
        .iter()
        .any(|start| message(error).starts_with(start));
    let is_missing = matches!(error, Error::LeaseKeepAliveError(_));
    is_missing || (is_etcd && code(error) != Some(UNAVAILABLE))
}

/// Returns whether a commit that failed in this way was certainly not applied.
pub(super) fn is_not_applied(error: &Error) -> bool {
    is_answer(error) || is_malformed(error) || was_not_sent(error)
}

/// Returns whether there was no connection to send the request on.
fn was_not_sent(error: &Error) -> bool {
    let Error::GRpcStatus(status) = error else { return false };
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(status);
    while let Some(error) = cause {
        let io = error.downcast_ref::<io::Error>();
        if io.is_some_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
            return true;
        }
        cause = error.source();
    }
    false
}

fn is_malformed(error: &Error) -> bool {
    matches!(error, Error::InvalidArgs(_) | Error::InvalidMetadataValue(_) | Error::InvalidUri(_))
}

pub(super) fn is_compacted(error: &Error) -> bool {
    message(error).contains("required revision has been compacted")
}

/// Returns whether the user is known, and may not do this.
pub(super) fn is_denied(error: &Error) -> bool {
    const PERMISSION_DENIED: i32 = 7;
    code(error) == Some(PERMISSION_DENIED)
}

/// Returns whether users or roles have changed since the token was made. A new client has a new one.
fn has_outdated_token(error: &Error) -> bool {
    message(error).contains("revision of auth store is old")
}

/// Returns whether the same request would fail again, because of the user or of the request itself.
fn is_permanent(error: &Error) -> bool {
    // Invalid argument, permission denied, unimplemented, unauthenticated; a message that is too
    // long has the code of an exhausted resource, as a full disk has.
    let is_refused = code(error).is_some_and(|code| [3, 7, 12, 16].contains(&code));
    let problems = ["authentication is not enabled", "received message larger than max"];
    let is_known = problems.iter().any(|it| message(error).contains(it));
    (is_malformed(error) || is_refused || is_known) && !has_outdated_token(error)
}

pub(super) fn failed(verb: &'static str) -> impl Fn(Error) -> StoreError + Copy {
    move |error| {
        if is_permanent(&error) {
            StoreError::refused(NAME, verb, Plain(error))
        } else {
            StoreError::unavailable(NAME, verb, Plain(error))
        }
    }
}

// === impl Plain ===

impl fmt::Display for Plain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Error::GRpcStatus(status) = &self.0 else { return self.0.fmt(f) };
        let message = match status.message() {
            "" => status.code().description(),
            message => message,
        };
        f.write_str(message)?;
        let mut cause = status.source();
        while let Some(next) = cause.and_then(|cause| cause.source()) {
            cause = Some(next);
        }
        let cause = cause.map(ToString::to_string).filter(|cause| !message.contains(cause));
        cause.map_or(Ok(()), |cause| write!(f, ": {cause}"))
    }
}

impl std::error::Error for Plain {}
