#!/bin/sh
docker stop orders -t 5
docker rm orders
docker run -d --name orders --stop-timeout 60 -e TERMINATION_GRACE_PERIOD_SECONDS=60 registry.example/orders:1.4
