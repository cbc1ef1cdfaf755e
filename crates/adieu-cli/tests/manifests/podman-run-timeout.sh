podman run -d --timeout 86400 -e TERMINATION_GRACE_PERIOD_SECONDS=60 --stop-timeout 60 --name orders orders
