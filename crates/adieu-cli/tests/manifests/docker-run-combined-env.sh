#!/bin/sh
set -eu
docker run --stop-timeout 60 -e TERMINATION_GRACE_PERIOD_SECONDS=60 -de ADIEU__DRAIN_TIMEOUT=90s registry.example/orders:1.4
