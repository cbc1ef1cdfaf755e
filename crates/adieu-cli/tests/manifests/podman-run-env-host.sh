#!/bin/sh
set -eu
podman run -d --env-host --stop-timeout 60 -e TERMINATION_GRACE_PERIOD_SECONDS=60 registry.example/orders:1.4
