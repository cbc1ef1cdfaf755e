//! Makes one table of all figures, with a description of the machine.
//!
//! Reads the results of the benches in `target/bench`, in the order of the command line, and writes
//! `all.md` and `all.json` there.

use std::error::Error;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

fn main() -> Result<(), Box<dyn Error>> {
    let folder = Path::new("target/bench");
    let mut benches: Vec<Value> = Vec::new();
    for name in std::env::args().skip(1) {
        // Benches that were not run are not in the table.
        if let Ok(bench) = std::fs::read(folder.join(format!("{name}.json"))) {
            benches.push(serde_json::from_slice(&bench)?);
        }
    }
    let machine = machine();
    let table = table(&machine, &benches);
    std::fs::write(folder.join("all.md"), &table)?;
    let all = json!({ "machine": machine, "benches": benches });
    std::fs::write(folder.join("all.json"), format!("{all:#}\n"))?;
    print!("\n{table}\nThis table is {0}/all.md, and {0}/all.json.\n", folder.display());
    Ok(())
}

fn table(machine: &Value, benches: &[Value]) -> String {
    let mut out = String::from("# Costs of adieu, compared with peers and lower bounds\n\n");
    for (what, is) in machine.as_object().into_iter().flatten() {
        let _ = writeln!(out, "- {what}: {}", is.as_str().unwrap_or("unknown"));
    }
    out.push_str(
        "\nA figure is a ratio, the median of interleaved rounds, unless it has a unit.\n\n",
    );
    out.push_str("| bench | claim | measured | at most | holds |\n|---|---|---|---|---|\n");
    for bench in benches {
        let name = bench["bench"].as_str().unwrap_or("?");
        for claim in bench["claims"].as_array().into_iter().flatten() {
            let what = claim["claim"].as_str().unwrap_or("?");
            let measured = claim["measured"].as_f64().unwrap_or(f64::NAN);
            // Without a limit, there is nothing to hold.
            let (most, holds) = match (claim["at_most"].as_f64(), claim["holds"].as_bool()) {
                (Some(most), Some(true)) => (format!("{most:.2}"), "yes"),
                (Some(most), _) => (format!("{most:.2}"), "NO"),
                (None, _) => ("-".to_owned(), "for the record"),
            };
            let _ = writeln!(out, "| {name} | {what} | {measured:.2} | {most} | {holds} |");
        }
    }
    out
}

/// Describes the machine.
fn machine() -> Value {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, name: &str, separator: char| {
        let value = text.lines().find_map(|line| {
            let (key, value) = line.split_once(separator)?;
            (key.trim() == name).then(|| value.trim().trim_matches('"').to_owned())
        });
        value.unwrap_or_else(|| "unknown".into())
    };
    let output_of = |program: &str, arg: &str| {
        let output = Command::new(program).arg(arg).output();
        output.map_or_else(
            |_| "unknown".into(),
            |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
        )
    };
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let load = read("/proc/loadavg");
    json!({
        "processor": field(&read("/proc/cpuinfo"), "model name", ':'),
        "cores": cores.to_string(),
        "memory": field(&read("/proc/meminfo"), "MemTotal", ':'),
        "system": format!(
            "{}, {}",
            field(&read("/etc/os-release"), "PRETTY_NAME", '='),
            output_of("uname", "-sr"),
        ),
        "compiler": output_of("rustc", "--version"),
        "load at the end": load.split(' ').next().unwrap_or_default(),
    })
}
