//! Runs random services by the thousand.
//!
//! ```text
//! cargo run --release -p adieu-tests --bin compose-fuzz -- --seeds 1..2000
//! cargo run --release -p adieu-tests --bin compose-fuzz -- --seeds 17 --shape dropped-handle
//! ```
//!
//! `--shape NAME` forces a shape into every plan, `--jobs N` runs N at a time, `--until-failure` begins
//! no run after the first that failed, `--verbose` also prints what passed. Ends with 1 if a run failed,
//! and prints the command that repeats it.

#![expect(clippy::print_stdout, reason = "a command prints")]

use std::path::Path;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use adieu_tests::plan::Shape;
use adieu_tests::run::Case;

struct Options {
    cases: Vec<Case>,
    jobs: usize,
    is_verbose: bool,
    until_failure: bool,
}

fn main() -> ExitCode {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    // The service under test is this program, too: so it cannot be out of date.
    let folder = (args.first().map(String::as_str) == Some("serve") && args.len() > 1)
        .then(|| args.drain(..2).nth(1).unwrap_or_default());
    let options = match Options::parse(&args) {
        Ok(options) => options,
        Err(problem) => {
            println!("{problem}");
            return ExitCode::from(2);
        }
    };
    match folder {
        Some(folder) => adieu_tests::service::main(&options.cases[0].plan(), Path::new(&folder)),
        None => fuzz(&options),
    }
}

fn fuzz(options: &Options) -> ExitCode {
    let program = std::env::current_exe().expect("the path of this program");
    let (next, failed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let printing = Mutex::new(());
    std::thread::scope(|scope| {
        for _ in 0..options.jobs {
            scope.spawn(|| {
                while let Some(case) = options.cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if options.until_failure && failed.load(Ordering::Relaxed) > 0 {
                        return;
                    }
                    let ran = case.run(&program);
                    let _turn = printing.lock();
                    match ran {
                        Ok(verdict) if options.is_verbose => {
                            println!("=== seed {} passed\n{verdict}", case.seed);
                        }
                        Ok(_) => {}
                        Err(failure) => {
                            failed.fetch_add(1, Ordering::Relaxed);
                            println!("=== seed {} failed\n{failure}\n", case.seed);
                        }
                    }
                }
            });
        }
    });
    let failed = failed.into_inner();
    if options.until_failure && failed > 0 {
        return ExitCode::FAILURE;
    }
    let all = options.cases.len();
    println!("{} of {all} runs passed, {failed} failed", all - failed);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

impl Options {
    fn parse(args: &[String]) -> Result<Self, String> {
        let mut args = args.iter();
        let (mut seeds, mut shape, mut jobs) = (1..2, None, 4);
        let (mut is_verbose, mut until_failure) = (false, false);
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
            match arg.as_str() {
                "--seeds" => seeds = range(value()?)?,
                "--jobs" => {
                    let text = value()?;
                    jobs = text.parse().map_err(|_| format!("not a number of jobs: {text:?}"))?;
                }
                "--verbose" => is_verbose = true,
                "--until-failure" => until_failure = true,
                "--shape" => {
                    let name = value()?;
                    let known = Shape::ALL.map(Shape::name).join(", ");
                    let found = Shape::named(name);
                    shape = Some(found.ok_or(format!("no shape {name:?}; there are: {known}"))?);
                }
                other => return Err(format!("unknown argument {other:?}")),
            }
        }
        let cases: Vec<Case> = seeds.map(|seed| Case { seed, shape }).collect();
        if cases.is_empty() || jobs == 0 {
            return Err("nothing to run".to_owned());
        }
        Ok(Self { cases, jobs, is_verbose, until_failure })
    }
}

/// `17` or `1..2000`.
fn range(text: &str) -> Result<std::ops::Range<u64>, String> {
    let number =
        |text: &str| text.parse::<u64>().map_err(|_| format!("not a seed or a range: {text:?}"));
    match text.split_once("..") {
        Some((first, end)) => Ok(number(first)?..number(end)?),
        None => number(text).map(|seed| seed..seed + 1),
    }
}
