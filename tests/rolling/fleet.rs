//! Replicas of the shop: started, stopped, replaced.

use std::net::SocketAddr;
use std::process::Command;

use adieu::Signal;
use adieu_testkit::process::Process;

/// Routers are fast here.
const LAME_DUCK: &str = "3s";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Adieu,
    Plain,
}

/// Replicas, each at the same address for the life of the fleet.
pub(crate) struct Fleet {
    kind: Kind,
    replicas: Vec<Option<Process>>,
    addrs: Vec<SocketAddr>,
}

impl Fleet {
    pub(crate) fn start(kind: Kind, count: usize) -> Self {
        let mut fleet = Self { kind, replicas: Vec::new(), addrs: Vec::new() };
        for _ in 0..count {
            let (process, addr) = start(kind, "127.0.0.1:0", LAME_DUCK);
            fleet.replicas.push(Some(process));
            fleet.addrs.push(addr);
        }
        fleet
    }

    pub(crate) fn addrs(&self) -> Vec<SocketAddr> {
        self.addrs.clone()
    }

    pub(crate) fn restart(&mut self, replica: usize) {
        self.end(replica);
        let (process, addr) = start(self.kind, &self.addrs[replica].to_string(), LAME_DUCK);
        assert_eq!(addr, self.addrs[replica]);
        self.replicas[replica] = Some(process);
    }

    pub(crate) fn stop(mut self) {
        for replica in 0..self.replicas.len() {
            self.end(replica);
        }
    }

    fn end(&mut self, replica: usize) {
        let mut process = self.replicas[replica].take().unwrap();
        process.signal(Signal::TERM);
        let ended = process.wait();
        assert_eq!(ended.status.code(), Some(0), "{ended:#?}");
        if self.kind == Kind::Adieu {
            assert!(ended.report.as_ref().is_some_and(adieu::Report::is_clean), "{ended:#?}");
        }
    }
}

pub(crate) fn start(kind: Kind, addr: &str, lame_duck: &str) -> (Process, SocketAddr) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shop"));
    command.arg(if kind == Kind::Adieu { "adieu" } else { "plain" }).arg(addr);
    // Independent of the platform and the speed of this machine.
    command.env("ADIEU__KILL_AFTER", "60s").env("ADIEU__LAME_DUCK", lame_duck);
    command.env("ADIEU__PHASES__SERVICE_REQUESTS_DONE__TIMEOUT", "20s");
    let mut process = Process::start(&mut command);
    let line = process.wait_for("listening on ");
    let addr = line.trim_start_matches("listening on ").parse().unwrap();
    (process, addr)
}
