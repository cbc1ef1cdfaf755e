//! Real servers for tests: Redis, Postgres, PgBouncer and etcd, each on a free port and with its own
//! folder.
//!
//! Servers that are installed as services are neither used nor disturbed. If a server is not
//! installed, the test fails with the name of its package.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Debian installs it in a folder that is only in the path of root.
const PGBOUNCER: &str = "/usr/sbin/pgbouncer";

/// How long a server may take to start.
const PATIENCE: Duration = Duration::from_secs(30);

/// A running server. It ends when this is dropped, or when the thread that started it ends.
#[derive(Debug)]
pub struct Server {
    kind: Kind,
    options: Options,
    folder: tempfile::TempDir,
    port: u16,
    peer_port: u16,
    child: Option<Child>,
}

/// Additional options of a server.
#[derive(Clone, Debug, Default)]
#[must_use = "options do nothing until a server is started with them"]
pub struct Options {
    program: Option<PathBuf>,
    args: Vec<String>,
    has_clock: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Redis,
    RedisCluster,
    /// One of several nodes, which gets its slots later.
    RedisNode,
    Postgres,
    PgBouncer,
    Etcd,
}

// === impl Options ===

impl Options {
    /// Creates empty options.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds arguments to the command line.
    pub fn args<A: Into<String>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Starts this program instead of the one that is installed: an etcd of another version.
    pub fn program(mut self, program: impl Into<PathBuf>) -> Self {
        self.program = Some(program.into());
        self
    }

    /// Gives the server a clock that can be set; see [`Server::set_clock`].
    pub fn clock(mut self) -> Self {
        self.has_clock = true;
        self
    }
}

// === impl Server ===

impl Server {
    /// Starts a Redis server that writes each change to its disk before it responds.
    ///
    /// # Panics
    ///
    /// If it is not installed or does not start.
    #[must_use]
    pub fn redis() -> Self {
        Self::redis_with(Options::new())
    }

    /// Starts a Redis server with options; see [`Server::redis`].
    ///
    /// # Panics
    ///
    /// See [`Server::redis`].
    #[must_use]
    pub fn redis_with(options: Options) -> Self {
        Self::new(Kind::Redis, options)
    }

    /// Starts a Redis Cluster of one node, which has all slots.
    ///
    /// # Panics
    ///
    /// See [`Server::redis`].
    #[must_use]
    pub fn redis_cluster() -> Self {
        Self::new(Kind::RedisCluster, Options::new())
    }

    /// Starts a Redis Cluster of so many nodes without replicas, which have the same number of slots.
    /// If a node is killed, the others go on with their slots.
    ///
    /// # Panics
    ///
    /// See [`Server::redis`].
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "real servers run in real time")]
    pub fn redis_cluster_of(nodes: u16) -> Vec<Self> {
        const SLOTS: u16 = 16_384;
        let options = ["--cluster-require-full-coverage", "no", "--cluster-node-timeout", "1000"];
        let options = Options::new().args(options);
        let servers: Vec<_> =
            (0..nodes).map(|_| Self::new(Kind::RedisNode, options.clone())).collect();
        for (at, server) in (0..nodes).zip(&servers) {
            let slot = |at: u16| u32::from(SLOTS) * u32::from(at) / u32::from(nodes);
            let (first, last) = (slot(at), slot(at + 1) - 1);
            server.request(&format!("CLUSTER SET-CONFIG-EPOCH {}\r\n", at + 1));
            server.request(&format!("CLUSTER ADDSLOTSRANGE {first} {last}\r\n"));
            let Self { port, peer_port, .. } = &servers[0];
            server.request(&format!("CLUSTER MEET 127.0.0.1 {port} {peer_port}\r\n"));
        }
        let (known, give_up) = (format!("cluster_known_nodes:{nodes}"), Instant::now() + PATIENCE);
        let is_formed = |server: &Self| {
            let info = server.request("CLUSTER INFO\r\n").unwrap_or_default();
            info.contains("cluster_state:ok")
                && info.contains("cluster_slots_ok:16384")
                && info.contains(&known)
        };
        while !servers.iter().all(is_formed) {
            assert!(Instant::now() < give_up, "the Redis Cluster does not form");
            std::thread::sleep(Duration::from_millis(20));
        }
        servers
    }

    /// Starts a Postgres server whose superuser `postgres` needs no password.
    ///
    /// # Panics
    ///
    /// See [`Server::redis`].
    #[must_use]
    pub fn postgres() -> Self {
        Self::postgres_with(Options::new())
    }

    /// Starts a Postgres server with options; see [`Server::postgres`].
    ///
    /// # Panics
    ///
    /// See [`Server::redis`].
    #[must_use]
    pub fn postgres_with(options: Options) -> Self {
        Self::new(Kind::Postgres, options)
    }

    /// Starts a PgBouncer in front of the database `postgres` of a Postgres server, with this
    /// `pool_mode`.
    ///
    /// # Panics
    ///
    /// See [`Server::redis`].
    #[must_use]
    pub fn pgbouncer(postgres: &Self, pool_mode: &str) -> Self {
        let database = format!(
            "postgres = host=127.0.0.1 port={} dbname=postgres user=postgres",
            postgres.port
        );
        let mode = format!("pool_mode = {pool_mode}");
        Self::new(Kind::PgBouncer, Options::new().args([database, mode]))
    }

    /// Starts an etcd cluster of one member.
    ///
    /// # Panics
    ///
    /// See [`Server::redis`].
    #[must_use]
    pub fn etcd() -> Self {
        Self::etcd_with(Options::new())
    }

    /// Starts a server as [`Server::etcd`] does, with options.
    ///
    /// # Panics
    ///
    /// As [`Server::redis`].
    #[must_use]
    pub fn etcd_with(options: Options) -> Self {
        Self::new(Kind::Etcd, options)
    }

    fn new(kind: Kind, options: Options) -> Self {
        // Another process may take the free port before the server does.
        for _ in 0..5 {
            let folder = tempfile::tempdir().expect("a temporary folder");
            let (port, peer_port, options) = (free_port(), free_port(), options.clone());
            let mut server = Self { kind, options, folder, port, peer_port, child: None };
            server.prepare();
            if server.try_start() {
                return server;
            }
        }
        panic!("{kind:?} does not start");
    }

    /// Returns the port of the server, on the loopback interface.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the address of the server.
    #[must_use]
    pub fn address(&self) -> std::net::SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    /// Sets the server's clock this many seconds ahead of the real time; behind it if negative.
    ///
    /// # Panics
    ///
    /// If the server was started without [`Options::clock`].
    pub fn set_clock(&self, ahead: i64) {
        assert!(self.options.has_clock, "{:?} was started without a clock of its own", self.kind);
        let mut options = std::fs::OpenOptions::new();
        let file = options.write(true).create(true).truncate(false).open(self.clock());
        // Written in place, because the server has mapped the file.
        let written = file.and_then(|mut file| file.write_all(&ahead.to_ne_bytes()));
        written.expect("a file for the clock");
    }

    fn clock(&self) -> PathBuf {
        self.folder.path().join("clock")
    }

    /// Compiles the library that shifts the clock of a server.
    fn prepare_clock(&self) -> PathBuf {
        let (source, library) =
            (self.folder.path().join("clock.c"), self.folder.path().join("clock.so"));
        if !library.exists() {
            self.set_clock(0);
            std::fs::write(&source, include_str!("servers/clock.c")).expect("a source file");
            run(Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source));
        }
        library
    }

    /// Kills the server, as a crash would.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        if self.kind == Kind::Postgres {
            // The other processes of the server notice this, and release their shared memory.
            let pid_file = self.data().join("postmaster.pid");
            let _ = std::fs::remove_file(pid_file);
        }
    }

    /// Starts the server again, on the same port and with the same data.
    ///
    /// # Panics
    ///
    /// If it does not start.
    #[expect(clippy::disallowed_methods, reason = "real servers run in real time")]
    pub fn start(&mut self) {
        let give_up = Instant::now() + PATIENCE;
        while self.child.is_none() && !self.try_start() {
            assert!(Instant::now() < give_up, "{:?} does not start again", self.kind);
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Creates the files that the server needs before its first start.
    fn prepare(&self) {
        let data = self.data();
        std::fs::create_dir(&data).expect("a folder for the server's data");
        if self.options.has_clock {
            self.prepare_clock();
        }
        if self.kind == Kind::PgBouncer {
            let [database, mode] = &self.options.args[..] else { panic!("a database and a mode") };
            let settings = format!(
                "[databases]\n{database}\n[pgbouncer]\n{mode}\nlisten_addr = 127.0.0.1\n\
                 listen_port = {}\nunix_socket_dir =\nauth_type = any\n",
                self.port
            );
            std::fs::write(data.join("pgbouncer.ini"), settings).expect("a configuration file");
            // The server reads it as another user.
            if is_root() {
                run(Command::new("chown").arg("-R").arg("postgres:").arg(self.folder.path()));
            }
        }
        if self.kind == Kind::Postgres {
            if is_root() {
                run(Command::new("chown").arg("-R").arg("postgres:").arg(self.folder.path()));
            }
            let mut initdb = as_postgres(&postgres_program("initdb"));
            run(initdb.args(["--no-sync", "--auth=trust", "--username=postgres"]).arg(&data));
        }
    }

    /// Returns the command that starts the server.
    fn command(&self) -> Command {
        let (port, data) = (self.port.to_string(), self.data());
        match self.kind {
            Kind::Redis | Kind::RedisCluster | Kind::RedisNode => {
                let mut redis = killed_with_thread(Path::new("redis-server"));
                redis.args(["--port", &port, "--bind", "127.0.0.1", "--save", ""]);
                redis.args(["--appendonly", "yes", "--appendfsync", "always", "--dir"]).arg(&data);
                if self.kind != Kind::Redis {
                    redis.args(["--cluster-enabled", "yes", "--cluster-port"]);
                    redis.arg(self.peer_port.to_string());
                }
                redis.args(&self.options.args);
                redis
            }
            Kind::PgBouncer => {
                let mut pgbouncer = as_postgres(Path::new(PGBOUNCER));
                pgbouncer.arg(data.join("pgbouncer.ini"));
                pgbouncer
            }
            Kind::Postgres => {
                let mut postgres = as_postgres(&postgres_program("postgres"));
                postgres.args(["-p", &port, "-h", "127.0.0.1", "-k", ""]);
                postgres.args(["-c", "max_connections=300", "-c", "shared_buffers=16MB"]);
                // Data that was handed to the kernel survives the end of a process.
                postgres.args(["-c", "fsync=off"]);
                postgres.args(&self.options.args);
                postgres.arg("-D").arg(&data);
                postgres
            }
            Kind::Etcd => {
                let program = self.options.program.as_deref().unwrap_or(Path::new("etcd"));
                let mut etcd = killed_with_thread(program);
                let client = format!("http://127.0.0.1:{port}");
                let peer = format!("http://127.0.0.1:{}", self.peer_port);
                etcd.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
                etcd.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
                etcd.args(["--initial-cluster", &format!("default={peer}")]);
                // The minimum time to live of a lease is one and a half election timeouts.
                etcd.args(["--heartbeat-interval", "20", "--election-timeout", "200"]);
                etcd.arg("--data-dir").arg(&data);
                etcd.args(&self.options.args);
                etcd
            }
        }
    }

    /// Starts the server, and waits until it responds. Returns false if it ended instead.
    #[expect(clippy::disallowed_methods, reason = "real servers run in real time")]
    fn try_start(&mut self) -> bool {
        let (program, package) = self.kind.program_and_package();
        let mut command = self.command();
        if self.options.has_clock {
            command.env("LD_PRELOAD", self.prepare_clock()).env("ADIEU_CLOCK", self.clock());
        }
        assert!(
            self.kind == Kind::Postgres
                || self.options.program.is_some()
                || is_in_path(program)
                || Path::new(program).is_file(),
            "{program} is not installed; install the Debian package {package}"
        );
        let log = std::fs::File::create(self.folder.path().join("log")).expect("a log file");
        let mut child = command
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a second handle"))
            .stderr(log)
            .spawn()
            .unwrap_or_else(|error| panic!("failed to start {command:?}: {error}"));
        let give_up = Instant::now() + PATIENCE;
        while Instant::now() < give_up {
            if child.try_wait().expect("the status of a child").is_some() {
                return false;
            }
            if self.is_responding() {
                self.child = Some(child);
                return true;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = child.kill();
        let _ = child.wait();
        let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        panic!("{program} does not respond; it wrote:\n{log}");
    }

    fn is_responding(&self) -> bool {
        match self.kind {
            Kind::RedisCluster => {
                // A repeated request has no effect.
                self.request("CLUSTER ADDSLOTSRANGE 0 16383\r\n");
                let state = self.request("CLUSTER INFO\r\n");
                state.is_some_and(|text| text.contains("cluster_state:ok"))
            }
            Kind::Redis | Kind::RedisNode => {
                self.request("PING\r\n").is_some_and(|text| text.starts_with("+PONG"))
            }
            Kind::Etcd => self
                .request("GET /health HTTP/1.0\r\n\r\n")
                .is_some_and(|text| text.contains("\"true\"")),
            Kind::Postgres | Kind::PgBouncer => Command::new(postgres_program("pg_isready"))
                .args(["-q", "-h", "127.0.0.1", "-p", &self.port.to_string()])
                .status()
                .is_ok_and(|status| status.success()),
        }
    }

    /// Sends a request, and returns the first packet of the response.
    fn request(&self, request: &str) -> Option<String> {
        let mut connection = TcpStream::connect(self.address()).ok()?;
        connection.set_read_timeout(Some(Duration::from_secs(1))).ok()?;
        connection.write_all(request.as_bytes()).ok()?;
        let mut response = [0; 4096];
        let length = connection.read(&mut response).ok()?;
        Some(String::from_utf8_lossy(&response[..length]).into_owned())
    }
}

// === impl Kind ===

impl Kind {
    /// Returns the program that must be installed, and the Debian package that has it.
    fn program_and_package(self) -> (&'static str, &'static str) {
        match self {
            Self::Redis | Self::RedisCluster | Self::RedisNode => ("redis-server", "redis-server"),
            Self::Postgres => ("postgres", "postgresql"),
            Self::PgBouncer => (PGBOUNCER, "pgbouncer"),
            Self::Etcd => ("etcd", "etcd-server"),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("its address").port()
}

fn is_in_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Returns the path of a Postgres program. Debian has one folder for each version.
fn postgres_program(name: &str) -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let found = versions.map(|version| version.path().join("bin").join(name));
    found.filter(|program| program.is_file()).max().unwrap_or_else(|| {
        assert!(is_in_path(name), "{name} is not installed; install the Debian package postgresql");
        name.into()
    })
}

fn is_root() -> bool {
    std::fs::read_to_string("/proc/self/status").is_ok_and(|status| status.contains("\nUid:\t0\t"))
}

/// Returns a command that the kernel kills when the thread that started it ends.
fn killed_with_thread(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(program);
    command
}

/// Returns a command that runs as the user `postgres`, because Postgres refuses to run as root.
fn as_postgres(program: &Path) -> Command {
    if !is_root() {
        return killed_with_thread(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "postgres", "--regid", "postgres", "--clear-groups"]);
    command.args(["--pdeathsig", "KILL"]).arg(program);
    command
}

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {output:?}");
}
