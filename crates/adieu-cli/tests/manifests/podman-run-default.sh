podman run -d --name orders registry.example/orders:1.4
