#!/bin/sh
set -eu
docker run -d --use-api-socket --stop-timeout 60 -e TERMINATION_GRACE_PERIOD_SECONDS=60 registry.example/orders:1.4
