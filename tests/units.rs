//! Real processes under a real systemd, which stops and kills them.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use adieu::{ExitCode, Outcome, Phase, Report, Signal};

use super::process::{check_code, started};

/// How long the harness waits for an event.
const PATIENCE: Duration = Duration::from_secs(60);

/// A systemd manager with its own folders.
struct Systemd {
    manager: Child,
    folder: tempfile::TempDir,
    units: Vec<String>,
}

impl Systemd {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("config/systemd/user")).unwrap();
        let mut command = Command::new("unshare");
        if !nix::unistd::geteuid().is_root() {
            command.args(["--user", "--map-root-user"]);
        }
        // systemd checks there whether it was booted.
        let script = "mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/system && \
                      exec /lib/systemd/systemd --user";
        command.args(["--mount", "--kill-child", "--fork", "sh", "-c", script]);
        let log = std::fs::File::create(folder.path().join("log")).unwrap();
        let manager = Self::within(&mut command, &folder)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let systemd = Self { manager, folder, units: Vec::new() };
        let is_up = systemd.path("systemd/private");
        systemd.wait_until("the manager is up", || is_up.exists().then_some(()));
        systemd
    }

    fn within<'a>(command: &'a mut Command, folder: &tempfile::TempDir) -> &'a mut Command {
        command
            .env("XDG_RUNTIME_DIR", folder.path())
            .env("XDG_CONFIG_HOME", folder.path().join("config"))
            .env_remove("DBUS_SESSION_BUS_ADDRESS")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    #[expect(clippy::disallowed_methods, reason = "real processes run in real time")]
    fn wait_until<T>(&self, what: &str, is: impl Fn() -> Option<T>) -> T {
        let give_up = std::time::Instant::now() + PATIENCE;
        loop {
            if let Some(found) = is() {
                return found;
            }
            let log = || std::fs::read_to_string(self.path("log")).unwrap_or_default();
            assert!(std::time::Instant::now() < give_up, "waited in vain until {what}\n{}", log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn systemctl(&self, args: &[&str]) -> String {
        let mut command = Command::new("systemctl");
        let output = Self::within(command.arg("--user").args(args), &self.folder).output().unwrap();
        assert!(output.status.success(), "{args:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    fn show(&self, unit: &str, property: &str) -> String {
        self.systemctl(&["show", "--value", "--property", property, unit])
    }

    /// Starts a service, and waits until it reports that it is ready.
    fn start_service(&mut self, scenario: &str, settings: &str) -> String {
        // Control groups are shared with the whole machine.
        let unit = format!("adieu-{}-{}.service", std::process::id(), self.units.len());
        let file = self.path("config/systemd/user").join(&unit);
        let out = self.path(&format!("{unit}.out"));
        let mut file = std::fs::File::create(file).unwrap();
        write!(
            file,
            "[Service]\nExecStart={victim} {scenario:?}\nNotifyAccess=main\n{settings}\n\
             StandardOutput=file:{out}\nStandardError=file:{out}\n\
             Environment=ADIEU__REPORT_FILE={report}\n",
            victim = env!("CARGO_BIN_EXE_victim"),
            out = out.display(),
            report = self.path(&format!("{unit}.json")).display(),
        )
        .unwrap();
        self.units.push(unit.clone());
        self.systemctl(&["daemon-reload"]);
        self.systemctl(&["start", &unit]);
        self.wait_until("the service is ready", || {
            self.written(&unit).contains("ready").then_some(())
        });
        unit
    }

    /// Waits until the service has logged this. Lines are logged on another thread, so the service may
    /// be ready before that.
    fn logs(&self, unit: &str, text: &str) {
        self.wait_until(&format!("{text:?} is logged"), || {
            self.written(unit).contains(text).then_some(())
        });
    }

    fn written(&self, unit: &str) -> String {
        std::fs::read_to_string(self.path(&format!("{unit}.out"))).unwrap_or_default()
    }
}

impl Drop for Systemd {
    fn drop(&mut self) {
        for unit in &self.units {
            let mut command = Command::new("systemctl");
            let command = command.args(["--user", "kill", "--signal=KILL", unit]);
            let _ = Self::within(command.stderr(Stdio::null()), &self.folder).status();
        }
        let _ = self.manager.kill();
        let _ = self.manager.wait();
    }
}

#[test]
fn s41_the_grace_period_of_a_unit_is_used_and_systemd_does_not_kill() {
    let mut systemd = Systemd::start();
    let unit = systemd.start_service("slow task", "TimeoutStopSec=6");
    let expected =
        format!("deadline              kill_after=6s source=\"TimeoutStopSec of {unit}\"");
    systemd.logs(&unit, &expected);
    systemd.systemctl(&["stop", "--no-block", &unit]);
    systemd.wait_until("the tasks that it waits for", || {
        systemd.show(&unit, "StatusText").contains("service-stop/slow").then_some(())
    });
    // Six seconds less a margin of a quarter.
    let status = systemd.show(&unit, "StatusText");
    let left = status.rsplit(' ').nth(1).unwrap_or_default().trim_end_matches('s');
    assert!(left.parse::<f64>().is_ok_and(|left| left <= 4.5), "{status}");
    systemd.wait_until("it has stopped", || {
        (systemd.show(&unit, "ActiveState") == "failed").then_some(())
    });
    assert_eq!(systemd.show(&unit, "Result"), "exit-code", "{}", systemd.written(&unit));
    assert_eq!(systemd.show(&unit, "ExecMainStatus"), ExitCode::UNCLEAN.to_string());
    assert!(systemd.written(&unit).contains("guard dropped"), "{}", systemd.written(&unit));
    let report = std::fs::File::open(systemd.path(&format!("{unit}.json"))).unwrap();
    let report: Report = serde_json::from_reader(report).unwrap();
    let slow = &report.phase(Phase::SERVICE_STOP).unwrap().task("slow").unwrap().outcome;
    assert!(matches!(slow, Outcome::TimedOut { .. }), "{report}");
}

#[test]
fn s41_a_unit_without_a_limit_is_recognised() {
    let mut systemd = Systemd::start();
    let unit = systemd.start_service("clean", "TimeoutStopSec=infinity");
    systemd.logs(&unit, &format!("kill_after=never source=\"TimeoutStopSec of {unit}\""));
    systemd.systemctl(&["stop", &unit]);
    assert_eq!(systemd.show(&unit, "Result"), "success", "{}", systemd.written(&unit));
}

/// Creates a folder that records this invocation, as a systemd manager does, but without a manager.
fn note_invocation(id: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let units = folder.path().join("systemd/units");
    std::fs::create_dir_all(&units).unwrap();
    std::os::unix::fs::symlink(id, units.join("invocation:shop.service")).unwrap();
    folder
}

#[test]
fn s197_an_unknown_grace_period_is_logged_at_start_up() {
    let id = "b54b6563fb2748b4b1b9180f940a47f5";
    let folder = note_invocation(id);
    let runtime_folder = folder.path().to_str().unwrap();
    let hangs = folder.path().join("systemctl");
    std::fs::write(&hangs, "#!/bin/sh\nexec /bin/sleep 60\n").unwrap();
    let runnable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&hangs, runnable).unwrap();
    for (id, path, problem) in [
        (id, "/nowhere", "failed to run systemctl: No such file"),
        (id, runtime_folder, "systemctl did not answer within 1s"),
        ("0", runtime_folder, "the unit of this process is unknown"),
    ] {
        let vars = [
            ("INVOCATION_ID", id),
            ("XDG_RUNTIME_DIR", runtime_folder),
            ("ADIEU__KILL_AFTER", "auto"),
            ("KUBERNETES_SERVICE_HOST", ""),
            ("PATH", path),
        ];
        let mut process = started("clean", &vars);
        process.signal(Signal::TERM);
        let ended = process.wait();
        check_code(&ended, ExitCode::CLEAN);
        for expected in [
            "deadline              kill_after=\"1m 30s\" source=\"assumed for platform systemd\"",
            &format!("TimeoutStopSec is unknown, assuming 90s: {problem}"),
            "set kill-after, or put Environment=ADIEU__KILL_AFTER=",
        ] {
            assert!(ended.stderr.contains(expected), "{expected}: {ended:#?}");
        }
    }
}
