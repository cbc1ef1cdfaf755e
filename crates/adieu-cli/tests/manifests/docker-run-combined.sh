#!/bin/sh
set -eu
docker run -dp 8080:8080 --name orders registry.example/orders:1.4
