#!/bin/bash
docker run -d --name orders --stop-timeout 60 -e TERMINATION_GRACE_PERIOD_SECONDS=60 $IMAGE:$TAG
