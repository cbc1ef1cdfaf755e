//! `adieu watch`: follows a service until its shutdown is over.

mod changes;

use std::pin::pin;
use std::time::Duration;

use adieu::Stage;

use crate::admin::{BUSY_POLL, Connect, IDLE_POLL, Observed, Poll, Process, Target};
use crate::consent::Consent;
use crate::ending::{Failure, Printout, exit_code};
use crate::screen::{Screen, interrupted};
use crate::{report, status};
use changes::{Change, changes};

/// How long to wait for the pending answer after the process has gone.
const LAST_RESPONSE_WAIT: Duration = Duration::from_secs(1);

/// How many polls in a row may remain without an answer.
const SILENCES: u32 = 3;

/// Follow a service until its shutdown is over, whatever begins it.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  adieu watch
  adieu watch pod-7:8558 --json | jq .

At a terminal, the state is redrawn in place; in a pipe, each change is a line. The exit code is 0
if the shutdown was clean, 1 if it was not or the process vanished before it was over, 3 if no
service answered.")]
pub(crate) struct Args {
    #[command(flatten)]
    connect: Connect,
    /// Print each change as a JSON object on its own line.
    #[arg(long)]
    json: bool,
}

/// How watching ended.
enum End {
    Over(Box<Observed>),
    /// The process is gone.
    Vanished,
    /// Another process answers in its place; `None` if it does not report its identity.
    Replaced(Option<Process>),
    /// The user pressed Ctrl-C.
    Interrupted,
    /// The reader has closed the output.
    Unread,
}

pub(crate) async fn run(args: &Args) -> Result<Printout, Failure> {
    follow(&args.connect, args.json, None).await
}

/// Follows until the end; with consent, begins the shutdown first.
pub(crate) async fn follow(
    connect: &Connect,
    json: bool,
    stop: Option<Consent>,
) -> Result<Printout, Failure> {
    let begins = stop.is_some();
    let mut view = View { connect, screen: Screen::new(), json, last: None };
    let end = Box::pin(view.until_end(stop)).await?;
    // The last frame stays, unless a report or an error replaces it.
    if view.draws() && matches!(end, End::Over(_) | End::Vanished | End::Replaced(_)) {
        view.screen.clear()?;
    }
    let View { last, screen, .. } = view;
    drop(screen);
    let target = connect.target();
    match end {
        End::Over(seen) => {
            let is_clean = seen.report.as_ref().is_some_and(|report| report.is_clean());
            let code = if is_clean { exit_code::SUCCESS } else { exit_code::NO };
            let text = match &seen.report {
                Some(report) if !json => report::chart(report),
                Some(_) => String::new(),
                None => {
                    format!("the shutdown of {target} is over, but the service sent no report\n")
                }
            };
            Ok(Printout { text, code })
        }
        End::Vanished => Err(Failure::no(vanished(target, last, ""))),
        End::Replaced(by) => {
            let by = by.map_or_else(|| "another process".into(), |by| by.to_string());
            let by = format!("; {by} answers in its place");
            Err(Failure::no(vanished(target, last, &by)))
        }
        End::Interrupted if begins => {
            let message = format!("{target} continues to shut down: adieu watch follows it");
            Err(Failure::interrupted(message))
        }
        End::Interrupted => Ok(Printout { text: String::new(), code: exit_code::INTERRUPTED }),
        End::Unread => Ok(Printout::success(String::new())),
    }
}

/// Returns the error for a process that is gone, with its last state.
fn vanished(target: &Target, last: Option<Box<Observed>>, by: &str) -> String {
    let how = match last.as_ref().map(|seen| seen.stage) {
        Some(Stage::ShuttingDown) => "in the middle of its shutdown",
        _ => "before a shutdown was observed",
    };
    let shown = last.map_or_else(String::new, |seen| status::draw(&seen, target));
    format!("{target} vanished {how}{by}. Last state:\n{}", shown.trim_end())
}

/// The service that is followed, and its observed states.
struct View<'a> {
    connect: &'a Connect,
    screen: Screen,
    json: bool,
    last: Option<Box<Observed>>,
}

impl View<'_> {
    /// Returns whether it is redrawn in place.
    fn draws(&self) -> bool {
        self.screen.is_terminal() && !self.json
    }

    async fn until_end(&mut self, stop: Option<Consent>) -> Result<End, Failure> {
        let connect = self.connect;
        let first = Box::new(connect.status().await?);
        // A requested shutdown begins whether or not its progress can be shown.
        let shown = self.take(first);
        // This request is sent now and answered at the end of the shutdown. The process exits soon
        // after that, so a poll could come too late for the report.
        let mut over = pin!(connect.over());
        let mut interrupted = pin!(interrupted());
        let begins = stop.is_some();
        if let Some(consent) = stop {
            // The request for the end must arrive before the one that begins the shutdown.
            let asked = tokio::time::sleep(BUSY_POLL);
            tokio::select! {
                biased;
                () = &mut interrupted => return Err(Failure::interrupted("nothing was changed")),
                seen = &mut over => return self.end(Box::new(seen)),
                () = asked => {}
            }
            consent.stop(connect).await?;
        }
        if !shown? {
            return Ok(End::Unread);
        }
        let mut silences = 0;
        loop {
            let busy = self.last.as_ref().is_some_and(|seen| seen.stage != Stage::Up);
            let look = async {
                tokio::time::sleep(if busy || begins { BUSY_POLL } else { IDLE_POLL }).await;
                connect.poll().await
            };
            let look = tokio::select! {
                biased;
                () = &mut interrupted => return Ok(End::Interrupted),
                seen = &mut over => return self.end(Box::new(seen)),
                look = look => look,
            };
            match look {
                Poll::Answered(seen) if self.is_another(&seen) => {
                    return Ok(End::Replaced(seen.process));
                }
                Poll::Answered(seen) if seen.stage == Stage::Over => return self.end(seen),
                Poll::Answered(seen) => {
                    silences = 0;
                    if !self.take(seen)? {
                        return Ok(End::Unread);
                    }
                }
                Poll::Gone => {
                    return match tokio::time::timeout(LAST_RESPONSE_WAIT, &mut over).await {
                        Ok(seen) => self.end(Box::new(seen)),
                        Err(_) => Ok(End::Vanished),
                    };
                }
                Poll::Silent(failure) => {
                    silences += 1;
                    if silences == SILENCES {
                        return Err(failure);
                    }
                }
            }
        }
    }

    /// Returns whether another process has answered. A service that is up again after it was shutting
    /// down is another process.
    fn is_another(&self, seen: &Observed) -> bool {
        let Some(last) = &self.last else { return false };
        let differs = match (&seen.process, &last.process) {
            (Some(now), Some(before)) => now.is_another_than(before),
            _ => false,
        };
        differs || (last.stage != Stage::Up && seen.stage == Stage::Up)
    }

    fn end(&mut self, seen: Box<Observed>) -> Result<End, Failure> {
        if self.is_another(&seen) {
            return Ok(End::Replaced(seen.process));
        }
        Ok(if self.take(seen.clone())? { End::Over(seen) } else { End::Unread })
    }

    /// Shows the changes. Returns false if the reader has closed the output.
    fn take(&mut self, seen: Box<Observed>) -> Result<bool, Failure> {
        let changes = changes(self.last.as_deref(), &seen);
        let reads = if self.draws() {
            self.screen.show(&status::draw(&seen, self.connect.target()))?
        } else {
            let line =
                |change: &Change| if self.json { change.json(&seen) } else { change.text(&seen) };
            let lines: String = changes.iter().map(line).collect();
            lines.is_empty() || self.screen.show(&lines)?
        };
        self.last = Some(seen);
        Ok(reads)
    }
}
