job "orders" {
  group "orders" {
    task "orders" {
      driver       = "exec"
      kill_timeout = "30s"

      env {
        TERMINATION_GRACE_PERIOD_SECONDS = "30"
      }

      config {
        command = "/usr/local/bin/orders"
      }

      template {
        data          = "greeting = hello"
        destination   = "local/greeting.conf"
        change_mode   = "signal"
        change_signal = "SIGHUP"
      }
    }
  }
}
