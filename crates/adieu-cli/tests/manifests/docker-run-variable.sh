docker run -d --name orders --stop-timeout "$GRACE" registry.example/orders:1.4
