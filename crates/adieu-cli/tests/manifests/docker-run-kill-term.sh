#!/bin/sh
docker kill -s TERM orders
docker wait orders
docker rm orders
docker run -d --name orders --stop-timeout 60 -e TERMINATION_GRACE_PERIOD_SECONDS=60 registry.example/orders
