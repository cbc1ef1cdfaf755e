job "orders" {
  group "api" {
    task "web" {
      driver       = "docker"
      kill_timeout = "30s"
      config {
        image = "registry.example/orders:1.4"
      }
      env {
        TERMINATION_GRACE_PERIOD_SECONDS = "30"
      }
      template {
        data        = "ADIEU__DRAIN_TIMEOUT=90s"
        destination = "secrets/env"
        env         = true
      }
    }
  }
}
