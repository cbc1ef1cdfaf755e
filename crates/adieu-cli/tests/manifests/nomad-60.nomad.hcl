job "orders" {
  datacenters = ["dc1"]

  group "api" {
    count = 3

    task "web" {
      driver = "docker"

      config {
        image = "registry.example/orders:1.4"
      }

      kill_timeout = "60s"
      env {
        TERMINATION_GRACE_PERIOD_SECONDS = "60"
        ADIEU__DRAIN_TIMEOUT = "20s"
      }

      resources {
        cpu    = 200 # MHz
        memory = 256
      }
    }
  }
}
