//! The known programs that start others.
//!
//! A command is understood if it consists of wrappers that are listed here, with options that are
//! listed here, and of a program that has no argument like another program. Every other program may stand
//! between the platform's signal and the process.

use super::script::{self, Word};

/// A program that runs another in its place, or passes every signal on to it.
struct Wrapper {
    name: &'static str,
    /// The options that are known, without their dashes if they are letters. A colon marks those
    /// that take a value.
    options: &'static str,
    /// How many words stand between the options and the command.
    before: usize,
}

const fn wrapper(name: &'static str, options: &'static str, before: usize) -> Wrapper {
    Wrapper { name, options, before }
}

/// `env` is not among them, because it changes variables; see [`super::launch`].
const WRAPPERS: [Wrapper; 29] = [
    wrapper("exec", "l a:", 0),
    wrapper("command", "p", 0),
    wrapper("builtin", "", 0),
    wrapper("nohup", "", 0),
    wrapper("busybox", "", 0),
    wrapper("nice", "n: --adjustment:", 0),
    wrapper("ionice", "c: n: t --class: --classdata: --ignore", 0),
    wrapper("taskset", "a c --all-tasks --cpu-list", 1),
    wrapper("chroot", "--userspec: --groups: --skip-chdir", 1),
    wrapper(
        "chrt",
        "b d f i o r R v --batch --deadline --fifo --idle --other --rr --reset-on-fork",
        1,
    ),
    wrapper("choom", "n: --adjust:", 0),
    wrapper(
        "prlimit",
        "c: d: e: f: i: l: m: n: q: r: s: u: v: x: y: --nofile: --nproc: --core:",
        0,
    ),
    wrapper("linux64", "", 0),
    wrapper("setarch", "R --addr-no-randomize", 1),
    wrapper("stdbuf", "i: o: e: --input: --output: --error:", 0),
    wrapper(
        "setpriv",
        "--reuid: --regid: --ruid: --euid: --rgid: --egid: --clear-groups --init-groups \
         --keep-groups --groups: --inh-caps: --ambient-caps: --bounding-set: --no-new-privs --nnp \
         --securebits: --selinux-label: --apparmor-profile:",
        0,
    ),
    wrapper("gosu", "", 1),
    wrapper("su-exec", "", 1),
    wrapper("setuidgid", "", 1),
    wrapper("s6-setuidgid", "", 1),
    wrapper("chpst", "u: U: b: n: l: L: m: d: o: p: f: c: r: /: v P 0 1 2", 0),
    wrapper(
        "numactl",
        "N: m: C: p: i: l --cpunodebind: --membind: --physcpubind: --interleave:",
        0,
    ),
    wrapper("tini", TINI, 0),
    wrapper("tini-static", TINI, 0),
    wrapper("docker-init", TINI, 0),
    wrapper("dumb-init", "c v --single-child --verbose", 0),
    wrapper("catatonit", "g", 0),
    // Without `-k`: with it, a signal that is passed on is followed by SIGKILL after that time.
    wrapper("timeout", "s: v --signal: --foreground --preserve-status --verbose", 1),
    wrapper("sudo", "E n H u: g:", 0),
];

const TINI: &str = "g v s w l p: e:";

/// Wrappers that signal all that they have started, and end when their child has ended.
const GROUP_INITS: [&str; 5] = ["tini", "tini-static", "docker-init", "dumb-init", "catatonit"];

pub(crate) const SHELLS: [&str; 6] = ["sh", "bash", "dash", "ash", "zsh", "ksh"];

/// Programs that run others as their children, and stop them by rules of their own, whichever
/// process is signalled.
const MANAGERS: &str = "\
    supervisord s6-svscan s6-overlay-suexec runsvdir runsv runit pm2 pm2-runtime foreman \
    honcho overmind hivemind goreman watchexec circusd monit init systemd multirun \
    concurrently docker podman nerdctl docker-compose podman-compose systemd-nspawn \
    systemd-run ctr runc crun machinectl kubectl nomad screen tmux forever nodemon at crond \
    cron lxc lxc-execute lxc-start lxc-attach lxd incus ssh rsh mosh dtach abduco daemontools \
    svscan supervise s6-supervise s6-rc inetd xinetd tcpserver launchd upstart bluepill \
    procodile skaffold vagrant flatpak snap apptainer singularity dinit horust immortal \
    process-compose mprocs mpirun srun";

/// Programs that are not the service, whatever their arguments: programs that change user, session or
/// root, shells whose language is not read here, interpreters and task runners, debuggers, and
/// programs that wait or fetch variables first.
const OTHERS: &str = "\
    su sudo doas runuser pkexec flock start-stop-daemon setsid sg newgrp daemonize daemon \
    unshare nsenter ip script nspawn bwrap firejail proot fakeroot schroot cgexec capsh \
    systemd-cat systemd-inhibit dbus-run-session dbus-launch xvfb-run fish csh tcsh pwsh powershell nu elvish xonsh rc \
    python python2 python3 node nodejs deno bun ruby perl php lua java npm npx yarn pnpm \
    make gmake just task mage rake cargo bazel go ant gradle mvn bundle poetry uv pipenv \
    entr watch parallel xargs find unbuffer expect strace ltrace gdb valgrind perf heaptrack \
    catchsegv faketime dockerize wait-for wait-for-it envconsul consul-template consul vault \
    vault-env doppler chamber aws-vault infisical op teller berglas envdir direnv dotenv \
    sops envchain summon secrethub akeyless bws dotenvx with-contenv execlineb softlimit \
    setlock pgrphack envuidgid argv0 cpulimit trickle torsocks proxychains proxychains4 eatmydata \
    rlwrap socat eval source . time gtime rr uftrace minijail0 nsjail chronic run-one lckdo retry \
    confd ssm-env aws-env secrets-init ddtrace-run newrelic-admin opentelemetry-instrument \
    systemd-socket-activate systemfd spawn-fcgi nix nix-shell conda micromamba mise asdf pixi";

/// Commands that end at once, whatever their arguments are, and signal no process.
const QUICK: &str = "\
    true : false echo printf touch rm mkdir cd export set unset test [ date umask ulimit \
    exit shift";

/// Programs that neither signal a process nor stop a container; how long they take is not known.
const HARMLESS: &str = "\
    sleep cat ls cp mv ln chmod chown grep egrep sed awk head tail sort uniq tr cut wc tee \
    jq id whoami hostname uname logger basename dirname readlink realpath sync seq which \
    command pidof pgrep ps stat install wait";

/// Endings of scripts, and names that scripts often have.
const SCRIPT_ENDINGS: [&str; 9] =
    [".sh", ".bash", ".py", ".js", ".rb", ".pl", ".ps1", ".jar", ".php"];
const SCRIPT_NAMES: [&str; 10] =
    ["start", "run", "launch", "boot", "bootstrap", "startup", "entry", "cmd", "main.sh", "rc"];

/// Folders in which programs do not live.
const DATA: &str = "var etc data srv mnt tmp dev run proc config storage home logs cache";

/// How many wrappers may stand in front of a program.
pub(crate) const MOST_WRAPPERS: usize = 32;

/// The kind of program at the start of a command.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Start<'a> {
    /// A wrapper, and the command that it runs.
    Wrapper(&'a [Word]),
    /// `env`, and its arguments.
    Env(&'a [Word]),
    /// A wrapper with options that are not known here.
    Odd,
    Shell,
    /// It runs others, and stops them by its own rules.
    Manager,
    Script,
    /// It is not the service.
    Other,
    /// It may be the service, but this argument looks like a program that it runs.
    May(&'a str),
    /// The process itself.
    Process,
}

/// Returns the kind of program that a command starts with.
pub(crate) fn start(words: &[Word]) -> Start<'_> {
    let Some((first, rest)) = words.split_first() else { return Start::Odd };
    let name = base(first);
    if let Some(wrapper) = WRAPPERS.iter().find(|wrapper| wrapper.name == name && name != "sudo") {
        return wrapper.command(rest).map_or(Start::Odd, Start::Wrapper);
    }
    match name {
        "env" => Start::Env(rest),
        _ if SHELLS.contains(&name) => Start::Shell,
        _ if is_listed(MANAGERS, name) => Start::Manager,
        _ if is_script(name) => Start::Script,
        _ if is_listed(OTHERS, name) || is_quick(name) || is_harmless(name) => Start::Other,
        _ => inner_program(rest).map_or(Start::Process, Start::May),
    }
}

/// Returns the command without `sudo` in front of it, for scripts that are run by hand.
fn without_sudo(words: &[Word]) -> &[Word] {
    let sudo = words.first().is_some_and(|first| base(first) == "sudo");
    let wrapper = WRAPPERS.iter().find(|wrapper| wrapper.name == "sudo" && sudo);
    wrapper.and_then(|wrapper| wrapper.command(&words[1..])).unwrap_or(words)
}

/// Returns the command itself, without `sudo` and the wrappers in front of it.
pub(crate) fn without_wrappers(words: &[Word]) -> &[Word] {
    let mut words = words;
    for _ in 0..MOST_WRAPPERS {
        words = match start(without_sudo(words)) {
            Start::Wrapper(inner) => inner,
            Start::Env(arguments) => script::after_assignments(arguments),
            Start::Odd
            | Start::Shell
            | Start::Manager
            | Start::Script
            | Start::Other
            | Start::May(_)
            | Start::Process => return without_sudo(words),
        };
    }
    words
}

/// Returns whether a wrapper signals all that it has started, and not its child alone.
pub(crate) fn signals_the_group(words: &[Word]) -> bool {
    let Some((first, options)) = words.split_first() else { return false };
    let mut options =
        options.iter().map(|word| word.text.as_str()).take_while(|word| word.starts_with('-'));
    match base(first) {
        "dumb-init" => !options.any(|word| ["-c", "--single-child"].contains(&word)),
        name => GROUP_INITS.contains(&name) && options.any(|word| word == "-g"),
    }
}

pub(crate) fn is_quick(name: &str) -> bool {
    is_listed(QUICK, name)
}

/// Returns whether a program is known to leave processes and containers alone.
pub(crate) fn is_harmless(name: &str) -> bool {
    is_quick(name) || is_listed(HARMLESS, name)
}

fn is_listed(list: &str, name: &str) -> bool {
    list.split_whitespace().any(|one| one == name)
}

fn is_script(name: &str) -> bool {
    let is_named = SCRIPT_NAMES.contains(&name)
        || ["start-", "run-", "launch-", "wait-for"].iter().any(|part| name.starts_with(part));
    is_named || name.contains("entrypoint") || SCRIPT_ENDINGS.iter().any(|end| name.ends_with(end))
}

/// Returns the argument that looks like a program: after `--`, or with the path of one.
fn inner_program(arguments: &[Word]) -> Option<&str> {
    let mut before = "";
    for argument in arguments {
        let text = argument.text.as_str();
        let is_value = before.starts_with('-') && before != "--";
        let name = base(argument);
        let is_file = name.is_empty() || name.contains('.');
        let mut folders = text.split('/').filter(|folder| !folder.is_empty());
        let top = folders.next().unwrap_or_default();
        let is_program = match text {
            _ if before == "--" => true,
            _ if is_file => false,
            _ if text.starts_with("./") => true,
            _ if ["/bin/", "/sbin/"].iter().any(|folder| text.contains(folder)) => true,
            _ if text.starts_with('/') => !is_value && !is_listed(DATA, top),
            _ => SHELLS.contains(&text) && !is_value,
        };
        if is_program && !text.starts_with('-') {
            return Some(text);
        }
        before = text;
    }
    None
}

/// Returns the last part of a path.
pub(crate) fn base(word: &Word) -> &str {
    word.text.rsplit('/').next().unwrap_or(&word.text)
}

// === impl Wrapper ===

impl Wrapper {
    /// Returns the command after its own options; `None` if these are not known or there is no
    /// command.
    fn command<'a>(&self, words: &'a [Word]) -> Option<&'a [Word]> {
        let rest = after_options(words, self.options)?.get(self.before..)?;
        Some(rest).filter(|rest| !rest.is_empty())
    }
}

/// Returns the words after the options, of which all must be known.
pub(crate) fn after_options<'a>(words: &'a [Word], known: &str) -> Option<&'a [Word]> {
    let has = |option: &str| known.split_whitespace().any(|one| one == option);
    let mut rest = words;
    while let Some((word, more)) = rest.split_first() {
        let text = word.text.as_str();
        if text == "--" {
            return Some(more);
        }
        if !text.starts_with('-') || text == "-" {
            break;
        }
        if !word.is_known {
            return None;
        }
        rest = more;
        let takes_next = match text.strip_prefix("--") {
            Some(long) => match long.split_once('=') {
                Some((name, _)) if has(&format!("--{name}:")) => false,
                None if has(&format!("--{long}:")) => true,
                None if has(text) => false,
                _ => return None,
            },
            None => {
                let mut letters = text.chars().skip(1);
                loop {
                    match letters.next() {
                        None => break false,
                        Some(letter) if has(&format!("{letter}:")) => {
                            break letters.next().is_none();
                        }
                        Some(letter) if has(&letter.to_string()) => {}
                        Some(_) => return None,
                    }
                }
            }
        };
        if takes_next {
            rest = rest.get(1..)?;
        }
    }
    Some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(line: &str) -> String {
        let words: Vec<_> = script::split(line).into_iter().map(Word::known).collect();
        match start(&words) {
            Start::Wrapper(inner) => {
                inner.iter().map(|word| word.text.as_str()).collect::<Vec<_>>().join(" ")
            }
            Start::May(inner) => format!("May({inner})"),
            Start::Odd => "Odd".into(),
            Start::Env(_) => "Env".into(),
            Start::Shell => "Shell".into(),
            Start::Manager => "Manager".into(),
            Start::Script => "Script".into(),
            Start::Other => "Other".into(),
            Start::Process => "Process".into(),
        }
    }

    #[test]
    fn s500_only_wrappers_with_known_options_are_passed_through() {
        for (line, expected) in [
            ("tini -g -- orders", "orders"),
            ("tini -p SIGTERM orders", "orders"),
            ("nice -n 10 orders -n 3", "orders -n 3"),
            ("taskset -c 0-3 orders", "orders"),
            ("gosu app orders", "orders"),
            ("setpriv --reuid=1000 --clear-groups orders", "orders"),
            ("timeout -k 5 60 orders", "Odd"),
            ("dumb-init --rewrite 15:3 orders", "Odd"),
            ("dumb-init -r 15:3 orders", "Odd"),
            ("nice -10 orders", "Odd"),
            ("tini --", "Odd"),
            ("setsid -f orders", "Other"),
            ("chroot --userspec=app /srv orders", "orders"),
            ("chrt --rr 10 orders", "orders"),
            ("prlimit --nofile=4096 orders", "orders"),
            ("command exec orders", "exec orders"),
            ("sudo -u app orders", "Other"),
            ("ip netns exec blue orders", "Other"),
            ("at now -f orders", "Manager"),
            ("lxc-execute -n orders -- orders", "Manager"),
            ("ssh host orders", "Manager"),
            ("make run", "Other"),
            ("fish -c orders", "Other"),
            ("python3 run.py", "Other"),
            ("sleep infinity", "Other"),
            ("/usr/bin/time -v orders", "Other"),
            ("time orders", "Other"),
            ("nix run .", "Other"),
            ("dinit orders", "Manager"),
            ("/init", "Manager"),
            ("docker run orders", "Manager"),
            ("/docker-entrypoint orders", "Script"),
            ("./start", "Script"),
            ("/bin/sh -c orders", "Shell"),
            ("secrets-run -- orders", "May(orders)"),
            ("secrets-run ./orders", "May(./orders)"),
            ("secrets-run --wait /usr/local/bin/orders", "May(/usr/local/bin/orders)"),
            ("secrets-run /app/orders", "May(/app/orders)"),
        ] {
            assert_eq!(shown(line), expected, "{line}");
        }
    }

    #[test]
    fn s500_a_service_with_ordinary_arguments_is_the_process() {
        for line in [
            "orders",
            "./service",
            "/app/orders serve --port 8080",
            "orders --config /etc/orders.toml --static /app/static",
            "orders /data ./orders.toml",
            "orders --root /app -c orders.toml",
        ] {
            assert_eq!(shown(line), "Process", "{line}");
        }
    }
}
