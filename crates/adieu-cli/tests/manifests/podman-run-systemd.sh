podman run -d --systemd=always -e TERMINATION_GRACE_PERIOD_SECONDS=60 --stop-timeout 60 --name orders orders
