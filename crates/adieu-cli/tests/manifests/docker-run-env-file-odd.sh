docker run -d --stop-timeout 45 --env-file compose-orders.env registry.example/orders:1.4
