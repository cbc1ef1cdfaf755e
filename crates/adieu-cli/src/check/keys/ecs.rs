//! The keys of task definitions, from the API of Amazon ECS and from CloudFormation.

use super::Keys;

pub(crate) static TASK: Keys = Keys::new(
    "a task definition",
    "containerDefinitions family requiresCompatibilities runtimePlatform",
    "compatibilities cpu deregisteredAt enableFaultInjection ephemeralStorage executionRoleArn \
     inferenceAccelerators ipcMode memory networkMode pidMode placementConstraints \
     proxyConfiguration registeredAt registeredBy requiresAttributes revision status tags \
     taskDefinitionArn taskRoleArn volumes",
)
.with(&[("containerDefinitions", &CONTAINER), ("runtimePlatform", &PLATFORM)])
.capitalised();

static PLATFORM: Keys =
    Keys::new("a runtimePlatform", "operatingSystemFamily", "cpuArchitecture").capitalised();

static CONTAINER: Keys = Keys::new(
    "a container definition",
    "command dependsOn entryPoint environment environmentFiles image name pseudoTerminal secrets \
     stopTimeout",
    "cpu credentialSpecs disableNetworking dnsSearchDomains dnsServers dockerLabels \
     dockerSecurityOptions essential extraHosts firelensConfiguration healthCheck hostname \
     interactive linuxParameters links logConfiguration memory memoryReservation mountPoints \
     portMappings privileged readonlyRootFilesystem repositoryCredentials \
     resourceRequirements restartPolicy startTimeout systemControls ulimits user versionConsistency \
     volumesFrom workingDirectory",
)
.with(&[("environment", &VARIABLE), ("secrets", &SECRET), ("dependsOn", &DEPENDENCY)])
.capitalised();

static VARIABLE: Keys = Keys::new("a variable", "name value", "").capitalised();

static SECRET: Keys = Keys::new("a secret", "name", "valueFrom").capitalised();

static DEPENDENCY: Keys = Keys::new("dependsOn", "containerName", "condition").capitalised();
