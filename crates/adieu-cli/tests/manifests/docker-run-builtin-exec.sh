#!/bin/sh
docker run --stop-timeout 60 -e TERMINATION_GRACE_PERIOD_SECONDS=60 registry.example/orders:1.4 bash -c 'builtin exec orders; true'
