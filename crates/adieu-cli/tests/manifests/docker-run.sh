#!/bin/sh
set -e
docker pull registry.example/orders:1.4
docker run -d --restart unless-stopped --name orders -p 8080:8080 registry.example/orders:1.4
