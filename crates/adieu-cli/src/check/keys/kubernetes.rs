//! The keys of Kubernetes objects, from the API of version 1.34, and of the kinds that make pods.

use super::Keys;

/// The table of each kind, from the root of its document.
pub(crate) static KINDS: &[(&str, &Keys)] = &[
    ("Pod", &POD),
    ("Deployment", &DEPLOYMENT),
    ("StatefulSet", &STATEFUL_SET),
    ("DaemonSet", &DAEMON_SET),
    ("ReplicaSet", &REPLICA_SET),
    ("ReplicationController", &REPLICA_SET),
    ("Job", &JOB),
    ("CronJob", &CRON_JOB),
    ("Rollout", &ROLLOUT),
    ("DeploymentConfig", &DEPLOYMENT_CONFIG),
    ("CloneSet", &CLONE_SET),
    ("ScaledJob", &SCALED_JOB),
    // Of Knative and Cloud Run.
    ("Service", &SERVING),
    ("Configuration", &SERVING),
    ("WorkerPool", &SERVING),
    ("Revision", &REVISION),
];

/// The table of a job of Cloud Run, which is called like a job of Kubernetes.
pub(crate) static CLOUD_RUN_JOB: Keys = document(&[("spec", &CLOUD_RUN_JOB_SPEC)]);

const fn document(inner: &'static [(&'static str, &'static Keys)]) -> Keys {
    Keys::new("this document", "apiVersion kind metadata spec", "status").with(inner)
}

static POD: Keys = document(&[("spec", &POD_SPEC)]);
static REVISION: Keys = document(&[("spec", &REVISION_SPEC)]);
static DEPLOYMENT: Keys = document(&[("spec", &DEPLOYMENT_SPEC)]);
static STATEFUL_SET: Keys = document(&[("spec", &STATEFUL_SET_SPEC)]);
static DAEMON_SET: Keys = document(&[("spec", &DAEMON_SET_SPEC)]);
static REPLICA_SET: Keys = document(&[("spec", &REPLICA_SET_SPEC)]);
static JOB: Keys = document(&[("spec", &JOB_SPEC)]);
static CRON_JOB: Keys = document(&[("spec", &CRON_JOB_SPEC)]);
static ROLLOUT: Keys = document(&[("spec", &ROLLOUT_SPEC)]);
static DEPLOYMENT_CONFIG: Keys = document(&[("spec", &DEPLOYMENT_CONFIG_SPEC)]);
static CLONE_SET: Keys = document(&[("spec", &CLONE_SET_SPEC)]);
static SCALED_JOB: Keys = document(&[("spec", &SCALED_JOB_SPEC)]);
static SERVING: Keys = document(&[("spec", &SERVING_SPEC)]);

static DEPLOYMENT_SPEC: Keys = Keys::new(
    "the spec of a Deployment",
    "replicas strategy template",
    "minReadySeconds paused progressDeadlineSeconds revisionHistoryLimit selector",
)
.with(&[("strategy", &STRATEGY), ("template", &TEMPLATE)]);

static STRATEGY: Keys =
    Keys::new("a strategy", "type rollingUpdate", "").with(&[("rollingUpdate", &ROLLING_UPDATE)]);

static ROLLING_UPDATE: Keys = Keys::new("a rollingUpdate", "maxUnavailable", "maxSurge partition");

static STATEFUL_SET_SPEC: Keys = Keys::new(
    "the spec of a StatefulSet",
    "replicas template updateStrategy",
    "minReadySeconds ordinals persistentVolumeClaimRetentionPolicy podManagementPolicy \
     revisionHistoryLimit selector serviceName volumeClaimTemplates",
)
.with(&[("updateStrategy", &STRATEGY), ("template", &TEMPLATE)]);

static DAEMON_SET_SPEC: Keys = Keys::new(
    "the spec of a DaemonSet",
    "template updateStrategy",
    "minReadySeconds revisionHistoryLimit selector",
)
.with(&[("updateStrategy", &STRATEGY), ("template", &TEMPLATE)]);

static REPLICA_SET_SPEC: Keys =
    Keys::new("the spec of a ReplicaSet", "replicas template", "minReadySeconds selector")
        .with(&[("template", &TEMPLATE)]);

static JOB_SPEC: Keys = Keys::new(
    "the spec of a Job",
    "template",
    "activeDeadlineSeconds backoffLimit backoffLimitPerIndex completionMode completions managedBy \
     manualSelector maxFailedIndexes parallelism podFailurePolicy podReplacementPolicy selector \
     successPolicy suspend ttlSecondsAfterFinished",
)
.with(&[("template", &TEMPLATE)]);

static CRON_JOB_SPEC: Keys = Keys::new(
    "the spec of a CronJob",
    "jobTemplate",
    "concurrencyPolicy failedJobsHistoryLimit schedule startingDeadlineSeconds \
     successfulJobsHistoryLimit suspend timeZone",
)
.with(&[("jobTemplate", &JOB_TEMPLATE)]);

static JOB_TEMPLATE: Keys =
    Keys::new("a jobTemplate", "spec", "metadata").with(&[("spec", &JOB_SPEC)]);

static ROLLOUT_SPEC: Keys = Keys::new(
    "the spec of a Rollout",
    "replicas template workloadRef",
    "analysis minReadySeconds paused progressDeadlineAbort progressDeadlineSeconds restartAt \
     revisionHistoryLimit rollbackWindow selector strategy",
)
.with(&[("template", &TEMPLATE)]);

static DEPLOYMENT_CONFIG_SPEC: Keys = Keys::new(
    "the spec of a DeploymentConfig",
    "replicas template",
    "minReadySeconds paused revisionHistoryLimit selector strategy test triggers",
)
.with(&[("template", &TEMPLATE)]);

static CLONE_SET_SPEC: Keys = Keys::new(
    "the spec of a CloneSet",
    "replicas template",
    "lifecycle minReadySeconds progressDeadlineSeconds revisionHistoryLimit scaleStrategy selector \
     updateStrategy volumeClaimTemplates",
)
.with(&[("template", &TEMPLATE)]);

static SCALED_JOB_SPEC: Keys = Keys::new(
    "the spec of a ScaledJob",
    "jobTargetRef",
    "envSourceContainerName failedJobsHistoryLimit maxReplicaCount minReplicaCount pollingInterval \
     rollout rolloutStrategy scalingStrategy successfulJobsHistoryLimit triggers",
)
.with(&[("jobTargetRef", &JOB_SPEC)]);

static SERVING_SPEC: Keys =
    Keys::new("this spec", "template", "traffic instanceSplits scaling launchStage")
        .with(&[("template", &REVISION_TEMPLATE)]);

static REVISION_TEMPLATE: Keys =
    Keys::new("a template", "spec metadata", "").with(&[("spec", &REVISION_SPEC)]);

static CLOUD_RUN_JOB_SPEC: Keys =
    Keys::new("the spec of a Job", "template", "startExecutionToken runExecutionToken")
        .with(&[("template", &EXECUTION)]);

static EXECUTION: Keys =
    Keys::new("a template", "spec", "metadata").with(&[("spec", &EXECUTION_SPEC)]);

static EXECUTION_SPEC: Keys =
    Keys::new("the spec of an execution", "template", "parallelism taskCount")
        .with(&[("template", &REVISION_TEMPLATE)]);

static TEMPLATE: Keys =
    Keys::new("a pod template", "spec metadata", "").with(&[("spec", &POD_SPEC)]);

/// `shareProcessNamespace` and `hostPID` change the number of the process, not how it is signalled.
/// `activeDeadlineSeconds` ends a pod with its grace period.
macro_rules! harmless_in_pod {
    () => {
        "\
    activeDeadlineSeconds automountServiceAccountToken dnsConfig dnsPolicy enableServiceLinks \
    ephemeralContainers hostAliases hostIPC hostNetwork hostPID hostUsers hostname hostnameOverride \
    imagePullSecrets nodeName overhead preemptionPolicy priority priorityClassName readinessGates \
    resourceClaims resources restartPolicy schedulerName schedulingGates securityContext \
    serviceAccount serviceAccountName setHostnameAsFQDN shareProcessNamespace subdomain \
    tolerations topologySpreadConstraints workloadRef"
    };
}

static POD_SPEC: Keys = Keys::new(
    "the spec of a pod",
    "affinity containers initContainers nodeSelector os runtimeClassName \
     terminationGracePeriodSeconds volumes",
    harmless_in_pod!(),
)
.with(&[("containers", &CONTAINER), ("initContainers", &CONTAINER)]);

/// `terminationGracePeriodSeconds` cannot be set there.
static REVISION_SPEC: Keys = Keys::new(
    "the spec of a revision",
    "affinity containers initContainers nodeSelector os runtimeClassName timeoutSeconds volumes",
    concat!(
        harmless_in_pod!(),
        " containerConcurrency idleTimeoutSeconds maxRetries responseStartTimeoutSeconds"
    ),
)
.with(&[("containers", &CONTAINER), ("initContainers", &CONTAINER)]);

static CONTAINER: Keys = Keys::new(
    "a container",
    "args command env envFrom image lifecycle livenessProbe name ports readinessProbe restartPolicy \
     startupProbe volumeMounts workingDir",
    "imagePullPolicy resizePolicy resources restartPolicyRules securityContext stdin stdinOnce \
     terminationMessagePath terminationMessagePolicy tty volumeDevices",
)
.with(&[
    ("env", &VARIABLE),
    ("envFrom", &VARIABLES),
    ("lifecycle", &LIFECYCLE),
    ("livenessProbe", &PROBE),
    ("readinessProbe", &PROBE),
    ("startupProbe", &PROBE),
]);

static VARIABLE: Keys =
    Keys::new("a variable", "name value valueFrom", "").with(&[("valueFrom", &VALUE_FROM)]);

static VALUE_FROM: Keys =
    Keys::new("valueFrom", "configMapKeyRef secretKeyRef", "fieldRef fileKeyRef resourceFieldRef");

static VARIABLES: Keys = Keys::new("envFrom", "configMapRef prefix secretRef", "");

static LIFECYCLE: Keys =
    Keys::new("a lifecycle", "preStop stopSignal", "postStart").with(&[("preStop", &HANDLER)]);

static HANDLER: Keys = Keys::new("a preStop hook", "exec httpGet sleep tcpSocket", "")
    .with(&[("exec", &EXEC), ("sleep", &SLEEP)]);

static EXEC: Keys = Keys::new("exec", "command", "");

static SLEEP: Keys = Keys::new("sleep", "seconds", "");

static PROBE: Keys = Keys::new(
    "a probe",
    "failureThreshold httpGet periodSeconds terminationGracePeriodSeconds timeoutSeconds",
    "exec grpc initialDelaySeconds successThreshold tcpSocket",
);
