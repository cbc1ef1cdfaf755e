#!/bin/sh
set -eu
docker rm -f orders-test || true
docker run -d --stop-timeout 60 -e TERMINATION_GRACE_PERIOD_SECONDS=60 --name orders registry.example/orders:1.4
