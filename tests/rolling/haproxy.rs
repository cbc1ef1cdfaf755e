//! A real HAProxy in front of the replicas. It never retries a request, so it hides no failure.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

pub(crate) struct Haproxy {
    child: Child,
    pub(crate) addr: SocketAddr,
    stats: SocketAddr,
    _config: tempfile::TempPath,
}

impl Haproxy {
    pub(crate) fn start(replicas: &[SocketAddr]) -> Self {
        let (addr, stats) = (free(), free());
        let mut config = format!(
            "global
  maxconn 4096
defaults
  mode http
  retries 0
  timeout connect 5s
  timeout client 30s
  timeout server 30s
  timeout check 2s
frontend shop
  bind {addr}
  default_backend replicas
frontend stats
  bind {stats}
  stats enable
  stats uri /stats
backend replicas
  balance roundrobin
  option httpchk GET /readyz
  http-check expect status 200
  default-server check inter 100ms fall 1 rise 1
"
        );
        for (at, replica) in replicas.iter().enumerate() {
            config.push_str(&format!("  server replica-{at} {replica}\n"));
        }
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(config.as_bytes()).unwrap();
        let config = file.into_temp_path();
        // In the foreground, so that it ends with the test.
        let child = Command::new("haproxy").arg("-db").arg("-f").arg(&config).spawn();
        let child = child.expect("haproxy, from the package of that name");
        Self { child, addr, stats, _config: config }
    }

    /// Waits until HAProxy reports that this many replicas are up.
    #[expect(clippy::disallowed_methods, reason = "real processes run in real time")]
    pub(crate) fn wait_until_up(&self, count: usize) {
        let give_up = Instant::now() + Duration::from_secs(30);
        loop {
            let stats = get(self.stats, "/stats;csv").unwrap_or_default();
            let up = stats.lines().filter(|line| {
                line.starts_with("replicas,replica-") && line.split(',').nth(17) == Some("UP")
            });
            if up.count() == count {
                return;
            }
            assert!(Instant::now() < give_up, "not all are up:\n{stats}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Haproxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a free address. If another process takes it first, HAProxy reports that.
fn free() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn get(addr: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(addr)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    write!(stream, "GET {path} HTTP/1.0\r\nhost: x\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
