job "orders" {
  datacenters = ["dc1"]

  group "api" {
    count = 3

    task "web" {
      driver = "docker"

      config {
        image = "registry.example/orders:1.4"
      }

      kill_timeout = "30s"
      template {
        data = <<EOF
      TERMINATION_GRACE_PERIOD_SECONDS={{ key "orders/grace" }}
      EOF
        destination = "secrets/env"
        env = true
      }

      resources {
        cpu    = 200 # MHz
        memory = 256
      }
    }
  }
}
