#!/bin/sh
docker rm orders -f
docker run -d --name orders --stop-timeout 60 -e TERMINATION_GRACE_PERIOD_SECONDS=60 registry.example/orders:1.4
