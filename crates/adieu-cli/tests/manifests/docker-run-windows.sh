docker run -d --name orders --platform windows/amd64 --stop-timeout 60 -e TERMINATION_GRACE_PERIOD_SECONDS=60 registry.example/orders
