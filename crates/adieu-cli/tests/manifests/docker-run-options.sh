#!/bin/sh
set -eu
OPTS="--stop-timeout 60 --name orders"
docker run -d $OPTS registry.example/orders:1.4
