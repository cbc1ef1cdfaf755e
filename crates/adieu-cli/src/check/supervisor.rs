//! The platforms that stop a process: their default grace periods and limits, and how they write
//! them.

use std::time::Duration;

use super::place::Place;

/// A platform that stops a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Supervisor {
    Kubernetes,
    Knative,
    CloudRun,
    Systemd,
    /// A container of podman that systemd starts and stops.
    Quadlet,
    /// The same, if `PodmanArgs` override the key of the quadlet.
    QuadletArgs,
    Compose,
    DockerRun,
    PodmanRun,
    /// A container that is stopped with a command of its own.
    ContainerStop,
    /// Amazon ECS on machines that run docker, or on either.
    Ecs,
    Fargate,
    /// Nomad, with its driver for docker.
    NomadDocker,
    /// Nomad, with any other driver.
    Nomad,
    Fly,
    Supervisord,
    /// There is no manifest.
    Unknown,
}

/// How long the platform waits before it kills.
#[derive(Clone, Debug)]
pub(crate) struct Grace {
    /// `None` if it never does.
    pub(crate) span: Option<Duration>,
    /// Whether the key is not there, and the platform's default holds.
    pub(crate) assumed: bool,
    /// The place where it is set, or would be.
    pub(crate) place: Place,
}

/// The longest grace period that a platform allows.
#[derive(Clone, Debug)]
pub(crate) struct Cap {
    pub(crate) most: Duration,
    /// The place where the limit can be raised; `None` if it cannot.
    pub(crate) key: Option<&'static str>,
    /// Whether the limit itself cannot be seen, and its default is taken.
    pub(crate) assumed: bool,
}

// === impl Supervisor ===

impl Supervisor {
    /// Returns the key that sets how long it waits.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Self::Kubernetes => "terminationGracePeriodSeconds",
            Self::Knative => "timeoutSeconds",
            Self::CloudRun => "grace of Cloud Run",
            Self::Systemd => "TimeoutStopSec",
            Self::Quadlet => "StopTimeout",
            Self::Compose => "stop_grace_period",
            Self::QuadletArgs | Self::DockerRun | Self::PodmanRun => "--stop-timeout",
            Self::ContainerStop => "--time",
            Self::Ecs | Self::Fargate => "stopTimeout",
            Self::NomadDocker | Self::Nomad | Self::Fly => "kill_timeout",
            Self::Supervisord => "stopwaitsecs",
            Self::Unknown => "grace",
        }
    }

    /// Returns the line that sets the grace period.
    pub(crate) fn line(self, seconds: u64) -> String {
        let key = self.key();
        match self {
            Self::Kubernetes | Self::Knative => format!("{key}: {seconds}"),
            Self::Systemd => format!("{key}={seconds}s"),
            Self::Quadlet | Self::Supervisord => format!("{key}={seconds}"),
            Self::QuadletArgs => format!("PodmanArgs={key} {seconds}"),
            Self::Compose => format!("{key}: {seconds}s"),
            Self::DockerRun | Self::PodmanRun => format!("{key} {seconds}"),
            Self::ContainerStop => format!("{key} {seconds} in the command that stops it"),
            Self::Ecs | Self::Fargate => format!("\"{key}\": {seconds}"),
            Self::NomadDocker | Self::Nomad | Self::Fly => format!("{key} = \"{seconds}s\""),
            Self::CloudRun | Self::Unknown => format!("a platform that waits {seconds}s"),
        }
    }

    /// Returns whether the key takes a number of seconds, and not a text with a unit.
    pub(crate) fn is_in_seconds(self) -> bool {
        !matches!(
            self,
            Self::Systemd
                | Self::Compose
                | Self::NomadDocker
                | Self::Nomad
                | Self::Fly
                | Self::CloudRun
                | Self::Unknown
        )
    }

    /// Returns whether preStop can be set there.
    pub(crate) fn has_pre_stop(self) -> bool {
        self == Self::Kubernetes
    }

    /// Returns whether requests are routed away from a process when it is not ready.
    pub(crate) fn has_endpoints(self) -> bool {
        matches!(self, Self::Kubernetes | Self::Knative | Self::Unknown)
    }

    /// Returns how long it waits if the key is not set.
    pub(crate) fn default_grace(self) -> Duration {
        Duration::from_secs(match self {
            Self::Kubernetes | Self::Unknown | Self::Ecs | Self::Fargate => 30,
            Self::Knative => 300,
            Self::Systemd => 90,
            Self::CloudRun
            | Self::Quadlet
            | Self::QuadletArgs
            | Self::Compose
            | Self::DockerRun
            | Self::PodmanRun
            | Self::ContainerStop
            | Self::Supervisord => 10,
            Self::NomadDocker | Self::Nomad | Self::Fly => 5,
        })
    }

    pub(crate) fn cap(self) -> Option<Cap> {
        let fixed = |seconds| Cap { most: Duration::from_secs(seconds), key: None, assumed: false };
        match self {
            Self::CloudRun => Some(fixed(10)),
            Self::Fargate => Some(fixed(120)),
            Self::Fly => Some(fixed(300)),
            Self::Knative => {
                Some(Cap { key: Some("max-revision-timeout-seconds"), assumed: true, ..fixed(600) })
            }
            Self::NomadDocker | Self::Nomad => {
                Some(Cap { key: Some("max_kill_timeout"), assumed: true, ..fixed(30) })
            }
            Self::Kubernetes
            | Self::Systemd
            | Self::Quadlet
            | Self::QuadletArgs
            | Self::Compose
            | Self::DockerRun
            | Self::PodmanRun
            | Self::ContainerStop
            | Self::Ecs
            | Self::Supervisord
            | Self::Unknown => None,
        }
    }
}

// === impl Grace ===

impl Grace {
    /// Returns the grace period that the key sets.
    pub(crate) fn said(span: Option<Duration>, place: Place) -> Self {
        Self { span, assumed: false, place }
    }

    /// The key is not there, but would be at this place.
    pub(crate) fn default_of(supervisor: Supervisor, place: Place) -> Self {
        let path = format!("{}.{}", place.path, supervisor.key());
        let place = Place { path: path.trim_start_matches('.').into(), ..place };
        Self { span: Some(supervisor.default_grace()), assumed: true, place }
    }
}
