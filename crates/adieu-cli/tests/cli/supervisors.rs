//! That `adieu check` reads the files of other supervisors as these do: systemd, podman, supervisord,
//! Nomad and scripts.

use super::adieu;
use super::check::SERVICE;
use super::trust::{Folder, TOLD};

fn told_unit(lines: &str) -> String {
    format!("[Service]\nType=notify\nEnvironment={TOLD}=60\nTimeoutStopSec=60\n{lines}")
}

#[test]
fn s834_configurations_of_supervisord_are_read_as_python_does() {
    let told = format!("environment={TOLD}=\"60\"\n");
    let orders = format!("[program:orders]\ncommand=orders\nstopwaitsecs=60\n{told}");
    for (text, expected) in [
        (orders.clone(), "fits"),
        (format!("[program:orders]\nCommand: orders\nSTOPWAITSECS : 60 # s\n{told}"), "fits"),
        (orders.replace("=60\n", "=60\t; a minute\n"), "fits"),
        (orders.replace("=60\n", "=60\nStopSignal = quit ; x\n"), "too-short"),
        (orders.replace("=60\n", "=60 \\\nstopsignal=QUIT\n"), "unknown"),
        (format!("{orders}[DEFAULT]\nstopsignal=QUIT\n"), "too-short"),
        // Lines that are indented like the key before them are keys; those that are deeper are not.
        (
            format!("{orders}  \n")
                .replace("command", "  command")
                .replace("stopwait", "  stopsignal=QUIT\n  stopwait"),
            "too-short",
        ),
        (orders.replace("=orders", "=orders\n  stopsignal=QUIT"), "fits"),
        (
            format!("{},\n  ; a remark\n  ADIEU__DRAIN_TIMEOUT=90s\n", orders.trim_end()),
            "too-short",
        ),
        (format!("{orders}stopsignal=TERM\n[DEFAULT]\nstopsignal=QUIT\n"), "fits"),
        (format!("{orders}[program:orders]\nstopwaitsecs=5\n"), "too-short"),
        (format!("{orders}[eventlistener:mail]\ncommand=mail\nevents=TICK_60\n"), "fits"),
        (orders.replace("[program:", "[fcgi-program:"), "fits"),
        (orders.replace("command=orders", "command=sh -c \"orders; true\""), "too-short"),
        (
            format!("{}stopasgroup=yes\n", orders.replace("=orders", "=sh -c 'orders; :'")),
            "unknown",
        ),
        (format!("{}stopasgroup=yes\n", orders.replace("=orders", "=sudo orders")), "unknown"),
        (format!("{orders}stopasgroup=yes\n"), "fits"),
    ] {
        let folder = Folder::new(&[("supervisord.conf", &text)]);
        assert_eq!(folder.verdict("supervisord.conf", &[]), expected, "{text}");
    }
    // A shell that waits for certain is not removed by the option that states the contrary.
    let shell = orders.replace("=orders", "=sh -c 'orders; :'") + "stopasgroup=yes\n";
    let folder = Folder::new(&[("supervisord.conf", &shell)]);
    assert_eq!(folder.verdict("supervisord.conf", &["--execs"]), "unknown");
}

#[test]
fn s835_a_suggestion_names_the_option_that_overrides_a_key() {
    let args = format!(
        "[Container]\nImage=orders\nStopTimeout=60\nPodmanArgs=--stop-timeout 5\n\
         Environment={TOLD}=60\n[Service]\nTimeoutStopSec=90\n"
    );
    let folder = Folder::new(&[
        ("args.container", &args),
        ("key.container", &args.replace("PodmanArgs=--stop-timeout 5", "StopTimeout=5")),
    ]);
    for (name, line) in
        [("args.container", "PodmanArgs=--stop-timeout 26"), ("key.container", "StopTimeout=26")]
    {
        let path = folder.path(name);
        let path = path.to_str().unwrap();
        let ran = adieu(&["check", "--config", SERVICE, "--manifest", path]);
        let (_, lines) = ran.stdout.split_once("With this it fits:").unwrap();
        assert!(lines.lines().any(|found| found.trim() == line), "{lines}");
        // Applied, it fits.
        let old = if name == "args.container" {
            "PodmanArgs=--stop-timeout 5"
        } else {
            "StopTimeout=5\n"
        };
        let text = std::fs::read_to_string(path).unwrap();
        let text =
            text.replace(old, &format!("{line}\n")).replace("=60\n[Service]", "=26\n[Service]");
        folder.write(name, &text);
        assert_eq!(folder.verdict(name, &[]), "fits", "{text}");
    }
}

#[test]
fn s839_signals_that_nomad_sends_when_a_template_changes_must_be_handled() {
    let job = |change: &str| {
        format!(
            "job \"o\" {{\n group \"g\" {{\n  task \"o\" {{\n   driver = \"exec\"\n   kill_timeout = \
             \"30s\"\n   env {{\n    {TOLD} = \"30\"\n   }}\n   config {{\n    command = \"/orders\"\n   \
             }}\n{change}\n  }}\n }}\n}}\n"
        )
    };
    let template = |mode: &str| {
        format!("   template {{\n    data = \"x\"\n    destination = \"local/x\"\n{mode}\n   }}")
    };
    for (change, expected) in [
        (String::new(), "fits"),
        (template(""), "fits"),
        (template("    change_mode = \"restart\""), "fits"),
        (template("    change_mode = \"signal\"\n    change_signal = \"SIGTERM\""), "fits"),
        (template("    change_mode = \"signal\"\n    change_signal = \"SIGHUP\""), "too-short"),
        (template("    change_mode = \"signal\"\n    change_signal = var.signal"), "unknown"),
        (
            "   vault {\n    change_mode = \"signal\"\n    change_signal = \"SIGUSR1\"\n   }"
                .into(),
            "too-short",
        ),
    ] {
        let folder = Folder::new(&[("orders.nomad.hcl", &job(&change))]);
        assert_eq!(folder.verdict("orders.nomad.hcl", &[]), expected, "{change}");
    }
    // The kernel protects the first process of a container from signals that it does not handle.
    let hup = template("    change_mode = \"signal\"\n    change_signal = \"SIGHUP\"");
    let docker = job(&hup).replace("\"exec\"", "\"docker\"");
    for (config, expected) in [
        ("image = \"orders\"", "fits"),
        ("image = \"orders\"\n    init = true", "too-short"),
        ("image = \"orders\"\n    command = \"tini\"\n    args = [\"orders\"]", "too-short"),
    ] {
        let job = docker.replace("command = \"/orders\"", config);
        let folder = Folder::new(&[("orders.nomad.hcl", &job)]);
        assert_eq!(folder.verdict("orders.nomad.hcl", &[]), expected, "{config}");
    }
    // It does not protect it from these.
    let docker = docker.replace("command = \"/orders\"", "image = \"orders\"");
    for (signal, expected) in [
        ("\"SIGKILL\"", "too-short"),
        ("\"SIGSTOP\"", "too-short"),
        ("var.signal", "unknown"),
        ("\"SIGUSR2\"", "fits"),
    ] {
        let folder = Folder::new(&[("orders.nomad.hcl", &docker.replace("\"SIGHUP\"", signal))]);
        assert_eq!(folder.verdict("orders.nomad.hcl", &[]), expected, "{signal}");
    }
}

#[test]
fn s836_each_command_of_a_line_of_a_unit_is_judged() {
    for (lines, expected) in [
        ("ExecStart=/orders\nExecStop=/bin/true ; /bin/kill -9 $MAINPID\n", "too-short"),
        ("ExecStart=/orders\nExecStop=/bin/true ; /bin/sleep 1\n", "fits"),
        ("ExecStart=/orders\nExecStop=@/bin/kill kill -9 $MAINPID\n", "too-short"),
        ("ExecStart=@/bin/sh sh -c 'orders; true'\nKillMode=mixed\n", "too-short"),
        ("ExecStart=-@/orders orders-main\nKillMode=mixed\n", "fits"),
        ("ExecStart=|/orders\n", "unknown"),
    ] {
        let folder = Folder::new(&[("orders.service", &told_unit(lines))]);
        assert_eq!(folder.verdict("orders.service", &[]), expected, "{lines}");
    }
}

#[test]
fn s837_a_container_of_a_quadlet_pod_has_its_own_time() {
    let text = |timeout: u32| {
        format!(
            "[Container]\nImage=orders\nPod=shop.pod\nStopTimeout={timeout}\n\
             Environment={TOLD}={timeout}\n[Service]\nTimeoutStopSec=90\n"
        )
    };
    let folder = Folder::new(&[
        ("orders.container", &text(60)),
        ("short.container", &text(5)),
        ("other.container", &text(60).replace("shop.pod", "shop")),
        ("shop.pod", "[Pod]\nStopTimeout=5\n"),
    ]);
    assert_eq!(folder.verdict("orders.container", &[]), "fits");
    assert_eq!(folder.verdict("short.container", &[]), "too-short");
    assert_eq!(folder.verdict("other.container", &[]), "unknown");
}

#[test]
fn s838_scripts_that_start_containers_are_recognised() {
    let run = format!("run -d --name orders --stop-timeout 60 -e {TOLD}=60 orders");
    for (script, expected) in [
        (format!("docker {run}"), "fits"),
        (format!("docker --context prod {run}"), "fits"),
        (format!("docker -H tcp://build:2375 {run}"), "fits"),
        (format!("DOCKER_HOST=tcp://build:2375 docker {run}"), "fits"),
        (format!("export DOCKER_HOST=tcp://build:2375\ndocker {run}"), "fits"),
        (format!("sudo docker container {run}"), "fits"),
        (
            format!("docker pull orders && docker stop orders; docker rm orders; docker {run}"),
            "fits",
        ),
        (format!("docker pull orders && docker stop -t 5 orders; docker {run}"), "too-short"),
        (format!("docker pull orders && docker kill orders; docker {run}"), "too-short"),
        (format!("docker pull orders || ./stop-all; docker {run}"), "unknown"),
        (format!("command -v docker; docker {run}"), "fits"),
        (format!("set -e; command docker kill orders; docker {run}"), "too-short"),
        (format!("set -e; nice -n 5 docker kill orders; docker {run}"), "too-short"),
        (format!("set -e; env A=1 sudo docker rm orders -f; docker {run}"), "too-short"),
        (format!("set -e; command -p ./stop-all; docker {run}"), "unknown"),
    ] {
        for shebang in ["", "#!/bin/sh\n"] {
            let folder = Folder::new(&[("deploy.sh", &format!("{shebang}{script}\n"))]);
            assert_eq!(folder.verdict("deploy.sh", &[]), expected, "{shebang}{script}");
        }
    }
}
