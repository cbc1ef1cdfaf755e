//! `adieu man`: one manual page of all commands.

use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use crate::ending::{Failure, Printout};

/// Print the manual page.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  adieu man | man -l -
  adieu man > ~/.local/share/man/man1/adieu.1")]
pub(crate) struct Args {}

pub(crate) fn run(mut command: clap::Command, exit_codes: &str) -> Result<Printout, Failure> {
    let failed = |error: std::io::Error| Failure::unable(format!("failed to write: {error}"));
    // `build` gives each subcommand its full name (`adieu check`), which the usage lines show.
    command.build();
    let man = Man::new(command.clone());
    let mut page = Vec::new();
    man.render_title(&mut page).map_err(failed)?;
    man.render_name_section(&mut page).map_err(failed)?;
    man.render_synopsis_section(&mut page).map_err(failed)?;
    man.render_description_section(&mut page).map_err(failed)?;
    man.render_options_section(&mut page).map_err(failed)?;
    sections(&command, "ADIEU", &mut page).map_err(failed)?;
    let mut roff = Roff::new();
    roff.control("SH", ["EXIT CODES"]);
    roff.to_writer(&mut page).map_err(failed)?;
    let table = exit_codes.split_once('\n').map_or("", |(_, table)| table);
    page.extend(verbatim(table).render().as_bytes());
    let page = String::from_utf8(page);
    page.map(Printout::success).map_err(|error| Failure::unable(error.to_string()))
}

/// Writes a section for each command below this one, and for the commands below those.
fn sections(command: &clap::Command, name: &str, page: &mut Vec<u8>) -> std::io::Result<()> {
    let shown = |sub: &&clap::Command| sub.get_name() != "help" && !sub.is_hide_set();
    for sub in command.get_subcommands().filter(shown) {
        let mut roff = Roff::new();
        let name = format!("{name} {}", sub.get_name().to_uppercase());
        roff.control("SH", [name.as_str()]);
        let about = sub.get_long_about().or(sub.get_about());
        roff.text([roman(about.map_or_else(String::new, ToString::to_string))]);
        roff.control("PP", []);
        let usage = sub.clone().render_usage().to_string();
        roff.text([bold(usage.trim_start_matches("Usage: "))]);
        roff.to_writer(page)?;
        let mut options = Vec::new();
        Man::new(sub.clone()).render_options_section(&mut options)?;
        // Sections of their own would hide which command they belong to.
        let options = String::from_utf8_lossy(&options).replace(".SH OPTIONS", ".SS Options");
        page.extend(options.as_bytes());
        if let Some(after) = sub.get_after_help() {
            page.extend(verbatim(&after.to_string()).render().as_bytes());
        }
        sections(sub, &name, page)?;
    }
    Ok(())
}

/// Returns the lines without filling.
fn verbatim(text: &str) -> Roff {
    let mut roff = Roff::new();
    roff.control("PP", []);
    roff.control("nf", []);
    for line in text.lines() {
        roff.text([roman(line)]);
    }
    roff.control("fi", []);
    roff
}
