//! `adieu report`: how a shutdown went, or how two of them differ.

mod axis;
mod compare;
mod gantt;
mod html;
mod read;
mod svg;
mod table;
mod text;

use std::path::PathBuf;

use clap::ValueEnum;

pub(crate) use read::from_value;

use crate::ending::{Failure, Printout};
use crate::fit::terminal_width;
use compare::Comparison;
use gantt::Gantt;

/// Show how a shutdown went, as a chart of times; with two files, how they differ.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  adieu report report.json
  adieu report report.json --format svg > report.svg
  adieu report before.json after.json --format html > comparison.html
  curl -s localhost:8558/shutdown | adieu report -

A service writes its report to the file that `report-file` names. When the shutdown is over, its
admin port answers GET /shutdown with the report, too. The exit code of this command shows only
whether the report could be displayed. How the shutdown ended is in `exit_code` and `outcome` of
the report.")]
pub(crate) struct Args {
    /// A report as JSON, or - for the standard input; a second one to compare it with.
    #[arg(value_name = "FILE", required = true, num_args = 1..=2)]
    files: Vec<PathBuf>,
    /// The format of the output.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum Format {
    /// A chart for the terminal.
    #[default]
    Text,
    /// A picture, readable in light and dark.
    Svg,
    /// A page with the picture and a table, in one file.
    Html,
}

pub(crate) fn run(args: &Args) -> Result<Printout, Failure> {
    let Args { files, format } = args;
    if let [first, second] = &files[..]
        && first == second
        && read::is_stdin(first)
    {
        return Err(Failure::input("only one of the two reports can come from the standard input"));
    }
    let reports = files.iter().map(|file| read::read(file)).collect::<Result<Vec<_>, _>>()?;
    let shown = match &reports[..] {
        [before, after] => {
            let comparison = Comparison::new(before, after);
            match format {
                Format::Text => text::compare(&comparison, terminal_width()),
                Format::Svg => svg::compare(&comparison),
                Format::Html => html::compare(&comparison),
            }
        }
        // One: the command line rejects zero.
        reports => reports.iter().map(|report| show(report, *format)).collect(),
    };
    Ok(Printout::success(shown))
}

fn show(report: &adieu::Report, format: Format) -> String {
    let gantt = Gantt::new(report);
    match format {
        Format::Text => text::draw(&gantt, terminal_width()),
        Format::Svg => svg::draw(&gantt),
        Format::Html => html::draw(&gantt),
    }
}

/// Returns the chart for the terminal, for commands that follow a shutdown to its end.
pub(crate) fn chart(report: &adieu::Report) -> String {
    text::draw(&Gantt::new(report), terminal_width())
}
