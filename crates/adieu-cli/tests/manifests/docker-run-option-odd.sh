#!/bin/sh
set -eu
docker run -d --surprise --stop-timeout 60 registry.example/orders:1.4
