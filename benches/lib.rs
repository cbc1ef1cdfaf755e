//! Runs cases in turn, each time in a new process, and compares them round by round.
//!
//! A shutdown runs once, so the first, cold run is measured. Cases take turns, so that other load on
//! the machine affects all of them. Figures are ratios, which can be compared between machines.

#[cfg(feature = "cluster")]
pub mod bare;
pub mod counting;

use std::collections::BTreeMap;
use std::process::Command;

/// A figure, compared with another, and its limit.
#[derive(Debug)]
pub struct Claim {
    /// The claim in words.
    pub what: &'static str,
    /// The case that is measured.
    pub ours: &'static str,
    /// The case that it is compared with. Without it, the figure itself counts.
    pub against: Option<&'static str>,
    /// Figures are divided by this first, for example by the number of tasks.
    pub per: (f64, f64),
    /// The limit of the ratio; infinite if there is none.
    pub at_most: f64,
}

impl Claim {
    /// Claims that a case takes at most this many times as long as another.
    #[must_use]
    pub fn ratio(
        what: &'static str,
        ours: &'static str,
        against: &'static str,
        at_most: f64,
    ) -> Self {
        Self { what, ours, against: Some(against), per: (1.0, 1.0), at_most }
    }
}

/// A name, and a function that measures one figure.
pub type Case<'a> = (&'a str, fn() -> f64);

/// Runs the case that the command line names, or else all cases, in turn, and prints a table.
///
/// # Panics
///
/// If a case fails or prints no number.
pub fn main(name: &str, rounds: usize, cases: &[Case<'_>], claims: &[Claim]) {
    if let Some(wanted) = std::env::args().nth(1) {
        let (_, case) =
            cases.iter().find(|(name, _)| *name == wanted).expect("a case of this bench");
        println!("{}", case());
        return;
    }
    let me = std::env::current_exe().expect("this program");
    let mut figures: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for _ in 0..rounds {
        for (case, _) in cases {
            let output = Command::new(&me).arg(case).output().expect("a new process");
            let text = String::from_utf8_lossy(&output.stdout);
            let figure: f64 = text.trim().parse().unwrap_or_else(|_| panic!("{case}: {output:?}"));
            figures.entry(case).or_default().push(figure);
        }
    }
    report(name, rounds, &figures, claims);
}

fn report(name: &str, rounds: usize, figures: &BTreeMap<&str, Vec<f64>>, claims: &[Claim]) {
    let sorted = |figures: &[f64]| {
        let mut sorted = figures.to_vec();
        sorted.sort_by(f64::total_cmp);
        sorted
    };
    let median_of = |figures: &[f64]| sorted(figures)[figures.len() / 2];
    let median = |case: &str| median_of(&figures[case]);
    println!("\n## {name} (medians of {rounds} interleaved rounds, each in a new process)\n");
    println!("| case | least | median | most |\n|---|---|---|---|");
    for (case, all) in figures {
        let all = sorted(all);
        println!("| {case} | {:.1} | {:.1} | {:.1} |", all[0], median(case), all[all.len() - 1]);
    }
    println!("\n| claim | measured | at most | holds |\n|---|---|---|---|");
    let mut rows = Vec::new();
    for claim in claims {
        // Round by round, because the load of the machine changes slowly.
        let ours = figures[claim.ours].iter().map(|figure| figure / claim.per.0);
        let ratios: Vec<f64> = match claim.against {
            Some(against) => {
                let base = figures[against].iter().map(|figure| figure / claim.per.1);
                ours.zip(base).map(|(ours, base)| ours / base).collect()
            }
            None => ours.collect(),
        };
        let ratio = median_of(&ratios);
        let holds = ratio <= claim.at_most;
        let (most, verdict) = match (claim.at_most.is_finite(), holds) {
            (false, _) => ("-".to_owned(), "for the record"),
            (true, true) => (claim.at_most.to_string(), "yes"),
            (true, false) => (claim.at_most.to_string(), "NO"),
        };
        println!("| {} | {ratio:.2} | {most} | {verdict} |", claim.what);
        rows.push(serde_json::json!({
            "claim": claim.what, "measured": ratio, "at_most": claim.at_most, "holds": holds,
        }));
    }
    let folder = std::path::Path::new("target/bench");
    let medians: BTreeMap<&str, f64> = figures.keys().map(|case| (*case, median(case))).collect();
    let json =
        serde_json::json!({ "bench": name, "rounds": rounds, "medians": medians, "claims": rows });
    let written = std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(folder.join(format!("{name}.json")), format!("{json:#}\n")));
    if let Err(error) = written {
        println!("\nfailed to write {}: {error}", folder.display());
    }
}
