docker run -d --stop-timeout 45 --env-file docker-orders.env registry.example/orders:1.4
