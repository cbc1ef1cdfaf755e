#!/bin/sh
set -eu
NAME=orders
sudo docker kill "$NAME" || true
docker run -d --stop-timeout 60 -e TERMINATION_GRACE_PERIOD_SECONDS=60 --name orders registry.example/orders:1.4
