job "orders" {
  group "api" {
    task "web" {
      driver       = "qemu"
      kill_timeout = "30s"
      config {
        image = "registry.example/orders:1.4"
      }
      env {
        TERMINATION_GRACE_PERIOD_SECONDS = "30"
      }
    }
  }
}
