#!/bin/sh
set -eu
docker pull registry.example/orders:1.4
docker stop --time 60 orders || true
docker rm orders || true
docker run -d --stop-timeout 60 -e TERMINATION_GRACE_PERIOD_SECONDS=60 --name orders registry.example/orders:1.4
sleep 5
curl -fsS localhost:8080/readyz
