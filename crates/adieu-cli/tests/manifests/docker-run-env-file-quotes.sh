#!/bin/sh
set -eu
docker run -d --stop-timeout 60 -e TERMINATION_GRACE_PERIOD_SECONDS=60 --env-file slow-drain.env registry.example/orders:1.4
