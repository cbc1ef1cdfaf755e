job "orders" {
  datacenters = ["dc1"]
  type = "service"
  
  group "api" {
    count = 2
    network {
      port "http" {
        to = 8080
      }
    }
    kill_timeout = "30s"
    task "web" {
      driver = "docker"
      kill_timeout = "30s"
      config {
        image = "orders:1"
      }
      env {
        TERMINATION_GRACE_PERIOD_SECONDS = "30"
      }
      
      resources {
        cpu = 100
        memory = 128
      }
    }
  }
}
