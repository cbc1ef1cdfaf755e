docker run -d --stop-timeout 60 -e TERMINATION_GRACE_PERIOD_SECONDS=60 --entrypoint sh registry.example/orders:1.4 -c "migrate && orders"
