//! The keys of task definitions, from the API of Amazon ECS and from CloudFormation.

use super::Keys;

pub(crate) static TASK: Keys = Keys::new(
    "a task definition",
    "containerDefinitions family placementConstraints requiresCompatibilities runtimePlatform",
    "compatibilities cpu deregisteredAt enableFaultInjection ephemeralStorage executionRoleArn \
     inferenceAccelerators ipcMode memory networkMode pidMode \
     proxyConfiguration registeredAt registeredBy requiresAttributes revision status tags \
     taskDefinitionArn taskRoleArn volumes",
)
.with(&[
    ("containerDefinitions", &CONTAINER),
    ("placementConstraints", &CONSTRAINT),
    ("runtimePlatform", &PLATFORM),
])
.capitalised();

static PLATFORM: Keys =
    Keys::new("a runtimePlatform", "operatingSystemFamily", "cpuArchitecture").capitalised();

static CONSTRAINT: Keys = Keys::new("a constraint", "expression", "type").capitalised();

static LIMIT: Keys = Keys::new("a limit", "name", "hardLimit softLimit").capitalised();

static CONTAINER: Keys = Keys::new(
    "a container definition",
    "command dependsOn entryPoint environment environmentFiles image name pseudoTerminal secrets \
     stopTimeout ulimits",
    "cpu credentialSpecs disableNetworking dnsSearchDomains dnsServers dockerLabels \
     dockerSecurityOptions essential extraHosts firelensConfiguration healthCheck hostname \
     interactive linuxParameters links logConfiguration memory memoryReservation mountPoints \
     portMappings privileged readonlyRootFilesystem repositoryCredentials \
     resourceRequirements restartPolicy startTimeout systemControls user versionConsistency \
     volumesFrom workingDirectory",
)
.with(&[
    ("environment", &VARIABLE),
    ("secrets", &SECRET),
    ("dependsOn", &DEPENDENCY),
    ("ulimits", &LIMIT),
])
.capitalised();

static VARIABLE: Keys = Keys::new("a variable", "name value", "").capitalised();

static SECRET: Keys = Keys::new("a secret", "name", "valueFrom").capitalised();

static DEPENDENCY: Keys = Keys::new("dependsOn", "containerName", "condition").capitalised();
