job "orders" {
  datacenters = ["dc1"]

  group "api" {
    count = 3

    task "redis" {
      driver = "docker"
      config {
        image = "redis:7-alpine"
      }
    }

    task "web" {
      driver = "docker"

      config {
        image = "registry.example/orders:1.4"
      }

      kill_timeout = "30s"
      env {
        TERMINATION_GRACE_PERIOD_SECONDS = "30"
      }

      resources {
        cpu    = 200 # MHz
        memory = 256
      }
    }
  }
}
