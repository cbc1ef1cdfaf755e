job "orders" {
  group "api" {
    constraint {
      attribute = "${attr.kernel.name}"
      value     = "windows"
    }
    task "orders" {
      driver = "docker"
      config { image = "registry.example/orders:1.4" }
      kill_timeout = "30s"
      env { TERMINATION_GRACE_PERIOD_SECONDS = "30" }
    }
  }
}
