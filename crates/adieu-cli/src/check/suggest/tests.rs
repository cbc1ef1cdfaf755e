//! If all suggestions are applied, every workload fits.

use super::*;
use crate::check::needs::Counted;
use crate::check::place::Place;
use crate::check::stop_signal::{Handled, StopSignal};
use crate::check::supervisor::Grace;
use crate::check::verdict::{Answer, Verdict};

const SECOND: Duration = Duration::from_secs(1);

fn configs() -> Vec<Config> {
    let plain = Config::new();
    let first = Phase::BEFORE_SERVICE_UNBIND;
    vec![
        plain.clone(),
        plain.clone().lame_duck(Duration::ZERO),
        plain.clone().lame_duck(12 * SECOND),
        plain.clone().lame_duck(SECOND).phase_timeout(first.clone(), 3 * SECOND),
        plain.clone().phase_enabled(first, false),
        plain.clone().kill_after(KillAfter::After(9 * SECOND)),
        plain.clone().kill_after(KillAfter::After(45 * SECOND)),
        plain.clone().kill_after(KillAfter::Never),
        plain.clone().reserve(Duration::from_millis(100)),
        plain.clone().phase_timeout(Phase::SERVICE_REQUESTS_DONE, 70 * SECOND),
        plain.clone().phase_timeout(Phase::CLUSTER_EXITING, Duration::from_millis(33_333)),
        plain.default_phase_timeout(Duration::from_millis(50)),
    ]
}

const SUPERVISORS: [Supervisor; 16] = [
    Supervisor::Kubernetes,
    Supervisor::Knative,
    Supervisor::CloudRun,
    Supervisor::Systemd,
    Supervisor::Quadlet,
    Supervisor::Compose,
    Supervisor::DockerRun,
    Supervisor::PodmanRun,
    Supervisor::ContainerStop,
    Supervisor::Ecs,
    Supervisor::Fargate,
    Supervisor::NomadDocker,
    Supervisor::Nomad,
    Supervisor::Fly,
    Supervisor::Supervisord,
    Supervisor::Unknown,
];

fn facts(routing_lag: Option<Duration>) -> Facts {
    Facts { routing_lag, sidecar: 2 * SECOND, handled: Handled::default() }
}

/// Returns findings that have a fix, as the readers of manifests make them.
fn faults() -> Vec<Vec<Finding>> {
    let fault = |level, fix| Finding::new(level, Place::start(), "p", "a").fixed_by(fix);
    vec![
        vec![],
        vec![fault(Level::Unknown, Fix::PreStop), fault(Level::Error, Fix::Exec)],
        vec![fault(Level::Unknown, Fix::StateGrace), fault(Level::Error, Fix::Line("x".into()))],
        vec![fault(Level::Unknown, Fix::Say("--no-hidden-env"))],
    ]
}

fn workloads() -> Vec<Workload> {
    let mut all = Vec::new();
    for supervisor in SUPERVISORS {
        for (grace, pre_stop, sidecars, stated) in [
            (0, 0, 0, None),
            (9, 0, 0, None),
            (9, 7, 3, Some(12)),
            (31, 0, 0, None),
            (31, 0, 0, Some(31)),
            (31, 90, 0, None),
            (60, 7, 1, Some(60)),
            (60, 0, 3, None),
            (3_600, 0, 0, None),
            (3_600, 90, 1, Some(12)),
        ] {
            if !supervisor.has_pre_stop() && (pre_stop > 0 || sidecars > 0) {
                continue;
            }
            // Use each kind of fault in turn.
            let at = all.len() % faults().len();
            let signal = StopSignal {
                text: ["SIGTERM", "SIGQUIT", "${SIGNAL}", "SIGINT"][at].into(),
                place: Place::start(),
                fix: "SIGTERM".into(),
            };
            all.push(Workload {
                grace: Grace::said(Some(Duration::from_secs(grace)), Place::start()),
                pre_stop: Duration::from_secs(pre_stop),
                sidecars,
                sidecar_hooks: SECOND * sidecars,
                stated: StatedTimes { grace: stated, pre_stop: None },
                has_unseen_variables: [1, 3].contains(&at) && stated.is_none(),
                signals: vec![signal],
                findings: faults().swap_remove(at),
                ..Workload::new(supervisor, "workload", "", Place::start())
            });
        }
    }
    all
}

/// Returns whether no change to the manifest can make the workload fit: the grace period has a
/// limit that cannot be raised, or neither a lame duck nor a preStop gives routers time to move
/// away.
fn is_hopeless(needs: &Needs, workload: &Workload, sums: &Sums) -> bool {
    let first = needs.plan.phase(Phase::BEFORE_SERVICE_UNBIND).unwrap();
    let cannot_route =
        needs.takes(first).is_none() && !workload.supervisor.has_pre_stop() && !sums.has_routed();
    let is_capped = workload.cap.as_ref().is_some_and(|cap| cap.key.is_none());
    cannot_route || is_capped
}

#[test]
fn s184_suggestions_fit_on_every_platform() {
    let (mut fitted, mut changed) = (0, 0);
    let mut helped = std::collections::HashSet::new();
    for config in configs() {
        for counted in ["usual", "all", "service-requests-done,actor-system-terminate"] {
            let counted: Counted = counted.parse().unwrap();
            let needs = Needs::new(config.clone(), config.plan().unwrap(), counted).unwrap();
            for workload in workloads() {
                for routing_lag in [None, Some(Duration::ZERO), Some(Duration::from_millis(9_500))]
                {
                    let facts = facts(routing_lag);
                    let first = Verdict::of(&needs, &workload, facts);
                    if first.fits() {
                        fitted += 1;
                        assert_eq!(first.suggestion, Suggestion::default());
                        continue;
                    }
                    if first.suggestion == Suggestion::default() {
                        assert!(
                            is_hopeless(&needs, &workload, &first.sums),
                            "{config:?}\n{workload:?}\n{facts:?}\n{:?}",
                            first.findings
                        );
                        continue;
                    }
                    changed += 1;
                    helped.insert(workload.supervisor.key());
                    let (new_needs, new_workload) = first.suggestion.apply(&needs, &workload);
                    let second = Verdict::of(&new_needs, &new_workload, facts);
                    assert_eq!(
                        second.answer(),
                        Answer::Fits,
                        "{config:?}\n{workload:?}\n{facts:?}\n{:?}\n{:?}",
                        first.suggestion,
                        second.findings,
                    );
                    assert!(!first.suggestion.lines(&workload, false).is_empty());
                }
            }
        }
    }
    assert!(fitted > 300 && changed > 5_000, "{fitted} {changed}");
    assert!(helped.len() >= 10, "{helped:?}");
}

#[test]
fn s184_a_second_less_than_suggested_does_not_fit() {
    let config = Config::new();
    let needs = Needs::new(config.clone(), config.plan().unwrap(), Counted::All).unwrap();
    let mut tried = 0;
    for workload in workloads() {
        let verdict = Verdict::of(&needs, &workload, facts(None));
        let Some(grace) = verdict.suggestion.grace else { continue };
        let (needs, mut workload) = verdict.suggestion.apply(&needs, &workload);
        workload.grace.span = Some(grace - SECOND);
        assert!(!Verdict::of(&needs, &workload, facts(None)).fits(), "{workload:?}");
        tried += 1;
    }
    assert!(tried > 30, "{tried}");
}
