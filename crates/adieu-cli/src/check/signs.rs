//! The signs by which a process recognises its platform, and the grace period that it assumes there.
//!
//! The order is the one of `adieu::Platform`: Kubernetes, a terminal, systemd, docker.

use std::time::Duration;

use super::supervisor::Supervisor;

/// The variable by which a process recognises Kubernetes.
pub(crate) const OF_KUBERNETES: &str = "KUBERNETES_SERVICE_HOST";

/// The variables by which a process recognises systemd. Each unit has the first one, and a unit that
/// notifies has both.
pub(crate) const OF_SYSTEMD: [&str; 2] = ["INVOCATION_ID", "NOTIFY_SOCKET"];

/// Whether a process finds a sign.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Sign {
    /// As usual on its platform.
    #[default]
    Usual,
    Present,
    Absent,
    /// It cannot be seen whether the sign is present.
    Unseen,
}

/// The signs, as far as a manifest changes them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Signs {
    pub(crate) kubernetes: Sign,
    pub(crate) systemd: Sign,
    /// Whether standard input is a terminal.
    pub(crate) terminal: Sign,
}

// === impl Sign ===

impl Sign {
    fn or(self, usual: Self) -> Self {
        if self == Self::Usual { usual } else { self }
    }
}

// === impl Signs ===

impl Signs {
    /// Returns whether the process recognises systemd, and so queries it.
    pub(crate) fn has_systemd(self, platform: Supervisor) -> bool {
        let is_alone = self.kubernetes.or(Sign::Absent) == Sign::Absent
            && self.terminal.or(Sign::Absent) == Sign::Absent;
        let usual = if platform == Supervisor::Systemd { Sign::Present } else { Sign::Absent };
        is_alone && self.systemd.or(usual) == Sign::Present
    }

    /// Returns the grace periods that a process may assume on a platform if nothing states one, with
    /// the likeliest first. `None` is no limit. `left` is the time that systemd answers with.
    pub(crate) fn assumptions(
        self,
        platform: Supervisor,
        left: Option<Duration>,
    ) -> Vec<Option<Duration>> {
        use Sign::{Absent, Present, Unseen};
        use Supervisor as On;
        let [kubernetes, systemd, docker] = match platform {
            // Nodes with docker are rare.
            On::Kubernetes | On::Knative | On::Unknown => [Present, Absent, Unseen],
            On::Systemd => [Absent, Present, Absent],
            On::Compose | On::DockerRun | On::ContainerStop | On::NomadDocker => {
                [Absent, Absent, Present]
            }
            On::CloudRun
            | On::Fly
            | On::Fargate
            | On::Quadlet
            | On::QuadletArgs
            | On::PodmanRun => [Absent, Absent, Absent],
            // With docker or without.
            On::Ecs => [Absent, Absent, Unseen],
            // The variables of a unit around it are passed on.
            On::Nomad => [Absent, Unseen, Absent],
            On::Supervisord => [Absent, Unseen, Unseen],
        };
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        // Only the unit itself finds an answer. A container that gets the variables of one does not.
        let of_unit = if platform == On::Systemd { left } else { seconds(90) };
        let signs = [
            (self.kubernetes.or(kubernetes), seconds(30)),
            (self.terminal.or(Absent), None),
            (self.systemd.or(systemd), of_unit),
            (docker, seconds(10)),
        ];
        let mut all = Vec::new();
        for (sign, assumed) in signs {
            if sign != Absent {
                all.push(assumed);
            }
            if sign == Present {
                return all;
            }
        }
        all.push(None);
        // A machine of ECS runs docker more often than not. Elsewhere, no sign is the likeliest.
        if platform != On::Ecs {
            all.rotate_right(1);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assumed(platform: Supervisor, signs: Signs) -> Vec<Option<u64>> {
        let left = Some(Duration::from_secs(26));
        let all = signs.assumptions(platform, left).into_iter();
        all.map(|assumed| assumed.map(|span| span.as_secs())).collect()
    }

    #[test]
    fn s1040_without_its_sign_a_platform_is_not_recognised() {
        let usual = Signs::default();
        let lost = Signs { kubernetes: Sign::Absent, systemd: Sign::Absent, ..usual };
        let on_terminal = Signs { terminal: Sign::Present, ..usual };
        for (platform, signs, expected) in [
            (Supervisor::Kubernetes, usual, vec![Some(30)]),
            (Supervisor::Kubernetes, on_terminal, vec![Some(30)]),
            (Supervisor::Kubernetes, lost, vec![None, Some(10)]),
            (Supervisor::Systemd, usual, vec![Some(26)]),
            (Supervisor::Systemd, lost, vec![None]),
            (Supervisor::Systemd, on_terminal, vec![None]),
            (Supervisor::Compose, usual, vec![Some(10)]),
            (Supervisor::Compose, on_terminal, vec![None]),
            (Supervisor::Compose, Signs { terminal: Sign::Unseen, ..usual }, vec![None, Some(10)]),
            (Supervisor::Compose, Signs { systemd: Sign::Present, ..usual }, vec![Some(90)]),
            (Supervisor::Compose, Signs { kubernetes: Sign::Present, ..usual }, vec![Some(30)]),
            (Supervisor::Ecs, usual, vec![Some(10), None]),
            (Supervisor::Nomad, usual, vec![None, Some(90)]),
            (Supervisor::Fly, usual, vec![None]),
        ] {
            assert_eq!(assumed(platform, signs), expected, "{platform:?} {signs:?}");
        }
    }
}
