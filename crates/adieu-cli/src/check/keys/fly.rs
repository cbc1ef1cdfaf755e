//! The keys of `fly.toml`, from the source of `flyctl`.
//!
//! Missing on purpose: `machine_config`, `container` and `build.compose` describe containers in other
//! files, and `experimental.exec` replaces the first process.

use super::Keys;

pub(crate) static APP: Keys = Keys::new(
    "fly.toml",
    "app env experimental files http_service kill_signal kill_timeout processes services",
    "build checks console_command deploy host_dedication_id machine_checks metrics mount mounts \
     primary_region restart statics swap_size_mb vm",
)
.with(&[("experimental", &EXPERIMENTAL), ("build", &BUILD), ("files", &FILE)]);

static EXPERIMENTAL: Keys = Keys::new(
    "experimental",
    "cmd entrypoint",
    "allowed_public_ports attached auto_rollback enable_consul enable_etcd lazy_load_images \
     private_network uses_gpu",
);

static BUILD: Keys = Keys::new(
    "build",
    "",
    "args build-target build_target builder buildpacks builtin compression compression_level \
     dockerfile ignorefile image settings",
);

static FILE: Keys =
    Keys::new("a file", "guest_path local_path raw_value", "processes secret_name mode");
