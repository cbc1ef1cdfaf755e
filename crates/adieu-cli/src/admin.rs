//! Talks to the admin port of a service.

mod ask;
mod observed;
mod target;

use std::time::Duration;

use adieu::Stage;
use http::{Method, StatusCode};
use serde_json::Value;

pub(crate) use observed::{Check, Observed, Process, UncleanTask, WaitingFor};
pub(crate) use target::Target;

use crate::duration::short;
use crate::ending::Failure;
use ask::{Answer, AskError, ask};

/// The interval of polls while nothing is expected to happen.
pub(crate) const IDLE_POLL: Duration = Duration::from_millis(300);

/// The interval of polls while a service drains or shuts down.
pub(crate) const BUSY_POLL: Duration = Duration::from_millis(100);

/// The admin port answers `?until=over` after half a minute at the latest.
const UNTIL_OVER: Duration = Duration::from_secs(45);

/// How long a command of a page may take. The admin port gives up after ten seconds.
const COMMAND: Duration = Duration::from_secs(12);

/// The address of the admin port, and the token for it.
#[derive(clap::Args, Clone)]
pub(crate) struct Connect {
    /// The address of the admin port: http://HOST:PORT, HOST:PORT or :PORT.
    #[arg(value_name = "URL", default_value = "http://127.0.0.1:8558")]
    url: Target,
    /// The token of the admin port, if it requires one. Other users of this machine can read a
    /// command line, so prefer the variable.
    #[arg(long, env = "ADIEU_ADMIN_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// How long to wait for an answer of the admin port.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = duration)]
    timeout: Duration,
}

/// The result of polling a service.
pub(crate) enum Poll {
    Answered(Box<Observed>),
    /// No process listens there now.
    Gone,
    /// The service did not answer in time, or not as an admin port does.
    Silent(Failure),
}

/// The result of reading a page.
pub(crate) enum Page {
    Shown(Value),
    /// No process listens there.
    Gone(Failure),
}

/// Parses a duration on the command line: more than zero, at most a day.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let duration = humantime::parse_duration(text)
        .map_err(|error| format!("{error}; write a duration such as 5s or 1m 30s"))?;
    match duration {
        Duration::ZERO => Err("the duration must be more than zero".into()),
        duration if duration > Duration::from_secs(24 * 60 * 60) => {
            Err("the duration must be at most a day".into())
        }
        duration => Ok(duration),
    }
}

impl Connect {
    pub(crate) fn target(&self) -> &Target {
        &self.url
    }

    /// Requests the state of the service.
    pub(crate) async fn status(&self) -> Result<Observed, Failure> {
        let answer = self.ask(Method::GET, "/shutdown", self.timeout).await;
        self.observed(answer.map_err(|error| self.unreached(&error))?)
    }

    /// Requests the state of a service that was reached before. A service that is gone is not an
    /// error.
    pub(crate) async fn poll(&self) -> Poll {
        match self.ask(Method::GET, "/shutdown", self.timeout).await {
            Ok(answer) => match self.observed(answer) {
                Ok(seen) => Poll::Answered(Box::new(seen)),
                Err(failure) => Poll::Silent(failure),
            },
            Err(error) if error.is_gone() => Poll::Gone,
            Err(error) => Poll::Silent(self.unreached(&error)),
        }
    }

    /// Waits until the shutdown is over, without a limit, and returns the state.
    pub(crate) async fn over(&self) -> Observed {
        loop {
            let answer = self.ask(Method::GET, "/shutdown?until=over", UNTIL_OVER).await;
            if let Some(seen) = answer.ok().and_then(|answer| self.observed(answer).ok())
                && seen.stage == Stage::Over
            {
                return seen;
            }
            // The service does not support waiting, or is gone: the next request shows which.
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Requests a change.
    ///
    /// # Errors
    ///
    /// Fails if the shutdown has come too far for this change.
    pub(crate) async fn change(&self, path: &str) -> Result<Observed, Failure> {
        let answer = self.ask(Method::POST, path, self.timeout).await;
        let answer = answer.map_err(|error| self.unreached(&error))?;
        if answer.status == StatusCode::CONFLICT {
            return Err(Failure::no(format!("{}: {}", self.target(), answer.error())));
        }
        self.observed(answer)
    }

    /// Returns the page that a part of the process has published, such as `/cluster`.
    pub(crate) async fn page(&self, path: &str) -> Result<Page, Failure> {
        match self.ask(Method::GET, path, self.timeout).await {
            Ok(answer) => self.published(path, answer).map(Page::Shown),
            Err(error) if error.is_gone() => Ok(Page::Gone(self.unreached(&error))),
            Err(error) => Err(self.unreached(&error)),
        }
    }

    /// Sends a command to such a page.
    pub(crate) async fn command(&self, path: &str) -> Result<Value, Failure> {
        // The service waits for its store before it answers.
        let answer = self.ask(Method::POST, path, self.timeout.max(COMMAND)).await;
        self.published(path, answer.map_err(|error| self.unreached(&error))?)
    }

    fn published(&self, path: &str, answer: Answer) -> Result<Value, Failure> {
        let url = &self.url;
        match answer.status {
            StatusCode::OK => {
                serde_json::from_slice(&answer.body).map_err(|_| self.no_admin_port(&answer))
            }
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(self.refused(&answer)),
            StatusCode::NOT_FOUND => {
                let page = path.split(['?', '/']).find(|part| !part.is_empty()).unwrap_or(path);
                Err(Failure::unable(format!(
                    "{url} has no page /{page}: the process has no {page}, or an older adieu"
                )))
            }
            StatusCode::BAD_REQUEST => Err(Failure::input(format!("{url}: {}", answer.error()))),
            StatusCode::CONFLICT => Err(Failure::no(format!("{url}: {}", answer.error()))),
            _ => Err(Failure::unable(format!("{url}: {}", answer.error()))),
        }
    }

    /// Returns the failure for a caller that the admin port refuses.
    fn refused(&self, answer: &Answer) -> Failure {
        let why = answer.error();
        let hint = match (why.as_str(), &self.token) {
            ("the token is wrong", _) => "; see --token and ADIEU_ADMIN_TOKEN",
            // The error contains the advice.
            (why, _) if why.starts_with("the Host header ") => "",
            (_, None) => "; pass --token, or set ADIEU_ADMIN_TOKEN",
            (_, Some(_)) => "; check for a proxy between this machine and the service",
        };
        Failure::unable(format!("{} refuses: {why}{hint}", self.url))
    }

    async fn ask(&self, method: Method, path: &str, timeout: Duration) -> Result<Answer, AskError> {
        ask(&self.url, method, path, self.token.as_deref(), timeout).await
    }

    fn observed(&self, answer: Answer) -> Result<Observed, Failure> {
        let url = &self.url;
        match answer.status {
            StatusCode::OK | StatusCode::ACCEPTED => {
                let value: Option<Value> = serde_json::from_slice(&answer.body).ok();
                let seen = value.and_then(Observed::new);
                seen.ok_or_else(|| self.no_admin_port(&answer))
            }
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(self.refused(&answer)),
            StatusCode::GATEWAY_TIMEOUT => Err(Failure::unable(format!(
                "{url} answered, but a task did not report its progress in time; try again"
            ))),
            _ => Err(self.no_admin_port(&answer)),
        }
    }

    fn no_admin_port(&self, answer: &Answer) -> Failure {
        let Answer { status, kind, .. } = answer;
        let (url, status) = (&self.url, status.as_u16());
        Failure::unable(format!(
            "the server at {url} is not an admin port: it answered {status}, {kind}; check the port \
             that Admin::bind was given"
        ))
    }

    fn unreached(&self, error: &AskError) -> Failure {
        let url = &self.url;
        Failure::unable(match error {
            AskError::Timeout => format!(
                "{url} did not answer within {}; check that it is an admin port, or raise --timeout",
                short(self.timeout)
            ),
            AskError::Connect(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
                format!(
                    "nothing listens at {url}; start the service, or pass the address that it gives to \
                     Admin::bind"
                )
            }
            AskError::Connect(error) => format!("failed to reach {url}: {error}"),
            AskError::TooLong => {
                format!(
                    "the server at {url} is not an admin port: its answer is longer than 64 MiB"
                )
            }
            AskError::Token => {
                "failed to send the token: it has a character that HTTP headers cannot contain"
                    .into()
            }
            AskError::Http(error) => format!(
                "the server at {url} is not an admin port, or closed the connection: {}",
                adieu_core::adapter::error_text(error)
            ),
        })
    }
}
