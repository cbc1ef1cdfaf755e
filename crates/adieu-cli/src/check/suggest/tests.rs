//! What is suggested makes it fit, whatever it was.

use super::*;
use crate::check::arithmetic::Verdict;
use crate::check::needs::Counted;
use crate::check::place::Place;
use crate::check::workload::Grace;

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

fn workloads() -> Vec<Workload> {
    let mut all = Vec::new();
    for supervisor in [Supervisor::Kubernetes, Supervisor::Systemd, Supervisor::Compose] {
        for grace in [0, 9, 31, 60, 3_600].map(Duration::from_secs) {
            for (pre_stop, pre_stop_fails) in [(0, false), (0, true), (7, false), (90, false)] {
                for (sidecars, told) in [(0, None), (3, Some(12)), (1, Some(60))] {
                    let is_pod = supervisor == Supervisor::Kubernetes;
                    if !is_pod && (pre_stop > 0 || pre_stop_fails || sidecars > 0) {
                        continue;
                    }
                    all.push(Workload {
                        supervisor,
                        grace: Grace::said(Some(grace), Place::start()),
                        pre_stop: Duration::from_secs(pre_stop),
                        pre_stop_fails,
                        sidecars,
                        told: Told { grace: told, pre_stop: None },
                        ..Workload::nameless()
                    });
                }
            }
        }
    }
    all
}

#[test]
fn what_is_suggested_fits() {
    let (mut fitted, mut changed) = (0, 0);
    for config in configs() {
        for counted in ["usual", "all", "service-requests-done,actor-system-terminate"] {
            let counted: Counted = counted.parse().unwrap();
            let needs = Needs::new(config.clone(), config.plan().unwrap(), counted).unwrap();
            for workload in workloads() {
                for routing_lag in [None, Some(Duration::ZERO), Some(Duration::from_millis(9_500))]
                {
                    let facts = Facts { routing_lag, sidecar: 2 * SECOND };
                    let first = Verdict::of(&needs, &workload, facts);
                    if first.fits() {
                        fitted += 1;
                        assert_eq!(first.suggestion, Suggestion::default());
                        continue;
                    }
                    // Without a lame duck, only Kubernetes has something else to wait with.
                    let first_phase = needs.plan.phase(Phase::BEFORE_SERVICE_UNBIND).unwrap();
                    let cannot = needs.takes(first_phase).is_none()
                        && workload.supervisor != Supervisor::Kubernetes
                        && !first.sums.has_routed();
                    if cannot {
                        continue;
                    }
                    changed += 1;
                    let (new_needs, new_workload) = first.suggestion.apply(&needs, &workload);
                    let second = Verdict::of(&new_needs, &new_workload, facts);
                    assert!(
                        second.fits(),
                        "{config:?}\n{workload:?}\n{facts:?}\n{:?}\n{:?}",
                        first.suggestion,
                        second.findings,
                    );
                }
            }
        }
    }
    assert!(fitted > 500 && changed > 500, "{fitted} {changed}");
}

#[test]
fn a_second_less_than_what_is_suggested_does_not_fit() {
    let config = Config::new();
    let needs = Needs::new(config.clone(), config.plan().unwrap(), Counted::All).unwrap();
    let facts = Facts { routing_lag: None, sidecar: 2 * SECOND };
    for workload in workloads() {
        let verdict = Verdict::of(&needs, &workload, facts);
        let Some(grace) = verdict.suggestion.grace else { continue };
        let (needs, mut workload) = verdict.suggestion.apply(&needs, &workload);
        workload.grace.span = Some(grace - SECOND);
        assert!(!Verdict::of(&needs, &workload, facts).fits(), "{workload:?}");
    }
}
