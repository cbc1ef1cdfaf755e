#!/bin/bash
set -euo pipefail
OLD=blue
NEW=green
docker run -d --stop-timeout 60 -e TERMINATION_GRACE_PERIOD_SECONDS=60 --name orders-$NEW registry.example/orders:1.4
sleep 10
docker rm -f orders-$OLD
