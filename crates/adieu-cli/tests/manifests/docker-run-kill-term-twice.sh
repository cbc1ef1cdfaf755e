#!/bin/sh
docker kill -s TERM orders
sleep 2
docker kill -s TERM orders
sleep 2
docker stop -t 60 orders
docker rm orders
docker run -d --name orders --stop-timeout 60 -e TERMINATION_GRACE_PERIOD_SECONDS=60 registry.example/orders
