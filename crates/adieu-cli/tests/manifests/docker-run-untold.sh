docker run -d --name orders --stop-timeout=60 registry.example/orders:1.4
