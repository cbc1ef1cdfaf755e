//! Queries systemd for the time from SIGTERM to SIGKILL of this process's unit. systemd does not
//! pass that time to its services.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::plan::LONGEST;
use crate::time::{Instant, Short, real_now};

/// How long systemd may take to answer, because start-up waits for it.
const ANSWER: Duration = Duration::from_secs(1);

/// How often the end of `systemctl` is polled.
const POLL: Duration = Duration::from_millis(2);

/// A unit of systemd's system manager or of a user's manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unit {
    pub(crate) name: String,
    is_of_user: bool,
}

impl Unit {
    /// Finds the unit of this process.
    pub(crate) fn current() -> Option<Self> {
        let runtime_folder = std::env::var_os("XDG_RUNTIME_DIR");
        let of_user = runtime_folder.map(|folder| Path::new(&folder).join("systemd/units"));
        let by_invocation = std::env::var("INVOCATION_ID").ok().and_then(|id| {
            let of_system = Self::by_invocation(Path::new("/run/systemd/units"), &id, false);
            of_system.or_else(|| Self::by_invocation(&of_user?, &id, true))
        });
        by_invocation.or_else(|| {
            Self::by_cgroups(&std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default())
        })
    }

    /// Finds the unit by the links in which a manager records the invocations of its units.
    fn by_invocation(folder: &Path, id: &str, is_of_user: bool) -> Option<Self> {
        let links = std::fs::read_dir(folder).ok()?.flatten();
        let mut names = links.filter_map(|link| {
            let target = std::fs::read_link(link.path()).ok()?;
            let file = link.file_name();
            let name = file.to_str()?.strip_prefix("invocation:")?;
            (target.as_os_str() == OsStr::new(id)).then(|| name.to_owned())
        });
        names.next().map(|name| Self { name, is_of_user })
    }

    /// Finds the unit by the control group, whose last part is its name.
    fn by_cgroups(cgroups: &str) -> Option<Self> {
        let paths = cgroups.lines().filter_map(|line| line.splitn(3, ':').nth(2));
        let units = paths.filter_map(|path| {
            let name = path.rsplit('/').find(|part| part.ends_with(".service"))?;
            // A user's manager is itself a service of the system.
            let is_manager = name.starts_with("user@");
            let is_of_user = path.contains("/user@");
            (!is_manager).then(|| Self { name: name.to_owned(), is_of_user })
        });
        units.into_iter().next()
    }

    /// Returns how long systemd waits before it kills the unit; `None` if it does not kill.
    ///
    /// # Errors
    ///
    /// If systemd cannot be queried or does not answer in time.
    pub(crate) fn stop_timeout(&self) -> Result<Option<Duration>, String> {
        let mut command = Command::new("systemctl");
        if self.is_of_user {
            command.arg("--user");
        }
        command.args(["show", "--property=TimeoutStopUSec", "--value", "--", &self.name]);
        let answer = output_of(&mut command)?;
        let answer = answer.trim();
        parse_span(answer).ok_or_else(|| format!("systemctl answered {answer:?}"))
    }
}

/// Returns the line that a command writes to its stdout within a second.
fn output_of(command: &mut Command) -> Result<String, String> {
    let give_up = real_now() + ANSWER;
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|error| format!("failed to run systemctl: {error}"))?;
    let line = read_line(&mut child, give_up);
    let ended = wait_for(&mut child, give_up);
    if ended.is_err() {
        let _ = child.kill();
        let _ = child.wait();
    }
    ended.and(line)
}

/// Reads one line on another thread. The end of the output may never arrive, because a child of the
/// command may have inherited it.
fn read_line(child: &mut Child, give_up: Instant) -> Result<String, String> {
    let stdout = child.stdout.take().ok_or("systemctl has no output")?;
    let (send, line) = std::sync::mpsc::channel();
    let reader = std::thread::Builder::new().name("adieu unit".into()).spawn(move || {
        let mut text = String::new();
        let read = BufReader::new(stdout).read_line(&mut text);
        let _ = send.send(read.map(|_| text));
    });
    reader.map_err(|error| format!("failed to read from systemctl: {error}"))?;
    match line.recv_timeout(give_up.saturating_duration_since(real_now())) {
        Ok(read) => read.map_err(|error| format!("failed to read from systemctl: {error}")),
        Err(_) => Err(no_answer()),
    }
}

/// Waits until the child has exited with code 0.
fn wait_for(child: &mut Child, give_up: Instant) -> Result<(), String> {
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(format!("systemctl failed: {status}")),
            Ok(None) if real_now() >= give_up => return Err(no_answer()),
            Ok(None) => std::thread::sleep(POLL),
            Err(error) => return Err(format!("failed to wait for systemctl: {error}")),
        }
    }
}

fn no_answer() -> String {
    format!("systemctl did not answer within {}", Short(ANSWER))
}

/// Parses a duration in systemd's format, such as `1min 30s`. Returns `Some(None)` for `infinity`.
fn parse_span(text: &str) -> Option<Option<Duration>> {
    if text == "infinity" {
        return Some(None);
    }
    let mut seconds = 0.0;
    for part in text.split_whitespace() {
        let unit_at = part.find(|c: char| c.is_ascii_alphabetic())?;
        let (number, unit) = part.split_at(unit_at);
        let in_seconds = match unit {
            "us" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "min" => 60.0,
            "h" => 3_600.0,
            "d" => 86_400.0,
            "w" => 604_800.0,
            "month" => 2_629_800.0,
            "y" => 31_557_600.0,
            _ => return None,
        };
        seconds += number.parse::<f64>().ok()? * in_seconds;
    }
    let span = Duration::try_from_secs_f64(seconds).ok().filter(|span| !span.is_zero())?;
    Some(Some(span).filter(|span| *span <= LONGEST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s563_durations_are_parsed_in_the_format_of_systemd() {
        let millis = |millis| Some(Some(Duration::from_millis(millis)));
        for (text, span) in [
            ("6s", millis(6_000)),
            ("1min 30s", millis(90_000)),
            ("1.500s", millis(1_500)),
            ("500ms", millis(500)),
            ("1h 2min 3s 4ms", millis(3_723_004)),
            ("infinity", Some(None)),
            ("2y", Some(None)),
            ("", None),
            ("0", None),
            ("soon", None),
            ("5 parsecs", None),
        ] {
            assert_eq!(parse_span(text), span, "{text}");
        }
    }

    #[test]
    fn s563_a_query_that_leaves_its_output_open_ends_after_a_second() {
        let run = |script: &str| {
            let began = real_now();
            let output = output_of(Command::new("sh").args(["-c", script]));
            (output, real_now() - began)
        };
        let (answer, took) = run("echo 6s; sleep 5 &");
        assert_eq!(answer.as_deref(), Ok("6s\n"));
        assert!(took < ANSWER, "{took:?}");
        for silent in ["sleep 5 &", "sleep 5", "echo 6s; exec sleep 5", "printf 6s; sleep 5 &"] {
            let (answer, took) = run(silent);
            assert_eq!(answer, Err(no_answer()), "{silent}");
            assert!(took < 2 * ANSWER, "{silent}: {took:?}");
        }
        assert!(run("echo 6s; exit 3").0.is_err());
        assert_eq!(run("true").0.as_deref(), Ok(""));
    }

    #[test]
    fn s563_the_unit_is_found_by_its_control_group() {
        let unit = |name: &str, is_of_user| Some(Unit { name: name.into(), is_of_user });
        for (cgroups, found) in [
            ("0::/system.slice/shop.service\n", unit("shop.service", false)),
            ("0::/system.slice/shop.service/payload\n", unit("shop.service", false)),
            ("9:name=systemd:/system.slice/shop@1.service\n0::/\n", unit("shop@1.service", false)),
            (
                "0::/user.slice/user-7.slice/user@7.service/app.slice/shop.service\n",
                unit("shop.service", true),
            ),
            ("0::/user.slice/user-7.slice/user@7.service\n", None),
            ("0::/user.slice/user-7.slice/session-2.scope\n", None),
            ("0::/\n", None),
            ("", None),
        ] {
            assert_eq!(Unit::by_cgroups(cgroups), found, "{cgroups}");
        }
    }
}
