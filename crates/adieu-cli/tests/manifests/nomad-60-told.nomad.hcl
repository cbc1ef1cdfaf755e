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
    
    task "web" {
      driver = "docker"
      kill_timeout = "60s"
      config {
        image = "orders:1"
      }
      env {
        TERMINATION_GRACE_PERIOD_SECONDS = "60"
      }
      
      resources {
        cpu = 100
        memory = 128
      }
    }
  }
}
