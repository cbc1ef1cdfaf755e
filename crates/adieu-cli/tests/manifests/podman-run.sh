podman run -d --replace --name orders --stop-timeout=45 registry.example/orders:1.4
