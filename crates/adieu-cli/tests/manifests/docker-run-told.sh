#!/bin/sh
docker run -d --name orders \
  --stop-timeout 60 \
  -e TERMINATION_GRACE_PERIOD_SECONDS=60 \
  -p 8080:8080 registry.example/orders:1.4
