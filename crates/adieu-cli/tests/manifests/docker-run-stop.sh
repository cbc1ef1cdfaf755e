#!/bin/bash
docker stop -t 45 orders || true
docker run -d --rm --name orders -e TERMINATION_GRACE_PERIOD_SECONDS=45 registry.example/orders:1.4
