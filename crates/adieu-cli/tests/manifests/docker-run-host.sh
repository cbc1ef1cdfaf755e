#!/bin/sh
DOCKER_HOST=tcp://build.example:2375 docker run --name orders --stop-timeout 60 -e TERMINATION_GRACE_PERIOD_SECONDS=60 registry.example/orders:1.4
