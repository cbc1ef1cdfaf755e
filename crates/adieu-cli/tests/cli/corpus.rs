//! The corpus of manifests: each is judged, and the answer is compared with the stored one.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use expect_test::expect_file;

use super::check::{SERVICE, check, json_of};
use super::{Ran, adieu};

/// A line of `expected.txt`.
struct Expected {
    verdict: String,
    file: String,
}

/// The results, by platform.
#[derive(Default)]
struct Counts {
    manifests: usize,
    right: usize,
    false_ok: usize,
    false_alarm: usize,
    unknown: usize,
}

pub(super) fn folder() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/manifests")
}

fn expected() -> Vec<Expected> {
    let text = std::fs::read_to_string(folder().join("expected.txt")).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let all = lines.map(|line| {
        let mut words = line.split_whitespace().map(str::to_owned);
        Expected { verdict: words.next().unwrap(), file: words.next().unwrap() }
    });
    all.collect()
}

/// The manifests that can be read.
pub(super) fn readable() -> Vec<String> {
    let readable = expected().into_iter().filter(|line| line.verdict != "unreadable");
    readable.map(|line| line.file).collect()
}

/// The platform of a manifest, by its name.
fn platform(file: &str) -> &'static str {
    let starts = |prefixes: &[&str]| prefixes.iter().any(|prefix| file.starts_with(prefix));
    match file {
        _ if starts(&["compose"]) => "compose",
        _ if starts(&["ecs"]) => "ECS",
        _ if starts(&["nomad"]) => "Nomad",
        _ if starts(&["fly."]) => "Fly",
        _ if starts(&["supervisord"]) => "supervisord",
        _ if starts(&["quadlet"]) => "quadlet",
        _ if starts(&["docker-run", "podman-run"]) => "docker run",
        _ if starts(&["knative", "cloud-run"]) => "Knative, Cloud Run",
        _ if starts(&["helm-", "kustomization"]) => "Helm, Kustomize",
        file if file.ends_with(".service") => "systemd",
        _ => "Kubernetes",
    }
}

/// The verdict for programs; what cannot be read is unknown, and named.
fn verdict_of(ran: &Ran) -> String {
    let all = json_of(ran);
    let verdict = all["verdict"].as_str().unwrap();
    match all["unreadable"].as_array().unwrap().as_slice() {
        [] => verdict.to_owned(),
        [problem] => {
            assert_eq!(verdict, "unknown");
            assert_eq!(ran.stderr, format!("adieu: {}\n", problem.as_str().unwrap()));
            "unreadable".into()
        }
        _ => panic!("{}", ran.stdout),
    }
}

#[test]
fn s260_the_corpus_has_no_false_ok_and_no_false_alarm() {
    let expected = expected();
    let listed: BTreeSet<_> = expected.iter().map(|line| line.file.clone()).collect();
    let others = ["expected.txt", "service.toml", "slow.toml"];
    let found: BTreeSet<_> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !name.ends_with(".d") && !name.ends_with(".env"))
        .filter(|name| !others.contains(&name.as_str()))
        .collect();
    assert_eq!(found, listed);
    let mut table: BTreeMap<&str, Counts> = BTreeMap::new();
    let mut wrong = Vec::new();
    for Expected { verdict, file } in &expected {
        let manifest = format!("manifests/{file}");
        let ran = check(&manifest, &["--json"]);
        let got = verdict_of(&ran);
        let counts = table.entry(platform(file)).or_default();
        counts.manifests += 1;
        counts.right += usize::from(got == *verdict);
        counts.false_ok += usize::from(got == "fits" && verdict != "fits");
        counts.false_alarm += usize::from(got != "fits" && verdict == "fits");
        counts.unknown += usize::from(got == "unknown");
        if got != *verdict {
            wrong.push(format!("{file}: {got}, not {verdict}\n{}{}", ran.stdout, ran.stderr));
        }
        let code = match got.as_str() {
            "fits" => 0,
            "too-short" => 1,
            _ => 2,
        };
        assert_eq!(ran.code, code, "{file}");
        // For people it is the same: a verdict on stdout, or on stderr what cannot be read.
        let Ran { code: shown, stdout, stderr } = check(&manifest, &[]);
        assert_eq!(shown, code, "{file}");
        let is_unreadable = got == "unreadable";
        assert_eq!(
            (stdout.is_empty(), stderr.is_empty()),
            (is_unreadable, !is_unreadable),
            "{file}"
        );
        // The place is in the manifest, or in a file beside it.
        assert!(!is_unreadable || stderr.starts_with("adieu: manifests/"), "{stderr}");
        expect_file![format!("../golden/check/{file}.txt")].assert_eq(&(stdout + &stderr));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let mut drawn = format!(
        "{:<20}{:>10}{:>8}{:>10}{:>13}{:>9}\n",
        "", "manifests", "right", "false OK", "false alarm", "unknown"
    );
    let mut all = Counts::default();
    let mut draw = |name: &str, counts: &Counts| {
        let Counts { manifests, right, false_ok, false_alarm, unknown } = counts;
        let _ = writeln!(
            drawn,
            "{name:<20}{manifests:>10}{right:>8}{false_ok:>10}{false_alarm:>13}{unknown:>9}"
        );
    };
    for (name, counts) in &table {
        draw(name, counts);
        all.manifests += counts.manifests;
        all.right += counts.right;
        all.false_ok += counts.false_ok;
        all.false_alarm += counts.false_alarm;
        all.unknown += counts.unknown;
    }
    draw("all", &all);
    assert_eq!((all.false_ok, all.false_alarm), (0, 0), "{drawn}");
    assert_eq!(all.right, all.manifests, "{drawn}");
    expect_file!["../golden/check-corpus.txt"].assert_eq(&drawn);
}

/// The processor time of the processes that this one has waited for.
#[cfg(unix)]
fn of_children() -> Option<Duration> {
    use nix::sys::resource::{UsageWho, getrusage};
    use nix::sys::time::TimeValLike;
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).ok()?;
    let micros = (usage.user_time() + usage.system_time()).num_microseconds();
    u64::try_from(micros).ok().map(Duration::from_micros)
}

#[cfg(not(unix))]
fn of_children() -> Option<Duration> {
    None
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the time of another process, in real time")]
fn s271_the_corpus_is_judged_within_a_second() {
    let (unreadable, readable): (Vec<_>, Vec<_>) =
        expected().into_iter().partition(|line| line.verdict == "unreadable");
    let manifests: Vec<_> =
        readable.iter().map(|line| format!("manifests/{}", line.file)).collect();
    let mut args = vec!["check", "--config", SERVICE, "--json"];
    for manifest in &manifests {
        args.extend(["--manifest", manifest]);
    }
    let judge = || {
        let (began, spent) = (std::time::Instant::now(), of_children());
        let ran = adieu(&args);
        for Expected { file, .. } in &unreadable {
            assert_eq!(check(&format!("manifests/{file}"), &[]).code, 2, "{file}");
        }
        // The processor's time, if less: other processes share the machine.
        let spent = of_children().zip(spent).map(|(after, before)| after - before);
        (spent.map_or(began.elapsed(), |spent| spent.min(began.elapsed())), ran)
    };
    let runs = [judge(), judge(), judge()];
    let all = json_of(&runs[0].1);
    assert!(all["workloads"].as_array().unwrap().len() >= manifests.len());
    assert_eq!((runs[0].1.code, all["verdict"].as_str()), (1, Some("too-short")));
    let best = runs.iter().map(|(took, _)| *took).min().unwrap();
    assert!(best < Duration::from_millis(900), "{best:?}");
}
