job "orders" {
  datacenters = ["dc1"]

  group "api" {
    count = 3

    task "web" {
      driver = "raw_exec"

      config {
        command = "/usr/local/bin/orders"
      }

      kill_timeout = "40s"

      resources {
        cpu    = 200 # MHz
        memory = 256
      }
    }
  }
}
