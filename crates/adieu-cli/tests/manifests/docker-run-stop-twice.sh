#!/bin/sh
set -eu
docker stop -t 60 orders
docker stop -t 5 orders
docker run -d --stop-timeout 60 -e TERMINATION_GRACE_PERIOD_SECONDS=60 --name orders registry.example/orders:1.4
