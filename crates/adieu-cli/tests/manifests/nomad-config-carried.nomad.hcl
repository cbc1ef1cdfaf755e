job "orders" {
  group "api" {
    task "web" {
      driver       = "docker"
      kill_timeout = "30s"
      config {
        image = "registry.example/orders:1.4"
      }
      env {
        ADIEU_CONFIG                     = "/local/orders.toml"
        TERMINATION_GRACE_PERIOD_SECONDS = "30"
      }
      template {
        destination = "local/orders.toml"
        data        = <<EOF
[coordinated-shutdown]
drain-timeout = "90s"
EOF
      }
    }
  }
}
