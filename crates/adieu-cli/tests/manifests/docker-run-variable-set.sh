#!/bin/sh
GRACE=60
docker run -d --name orders --stop-timeout "$GRACE" -e TERMINATION_GRACE_PERIOD_SECONDS=$GRACE registry.example/orders:1.4
