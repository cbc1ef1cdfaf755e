//! Output of a command in progress: redrawn in place at a terminal, one after another in a
//! pipe.

use std::io::{IsTerminal, Write};

use crate::ending::Failure;
use crate::fit::width;
use crate::output;

/// Output of a command in progress. Dropping it shows the cursor again.
pub(crate) struct Screen {
    stream: Stream,
    is_terminal: bool,
    /// How many lines the next frame replaces.
    lines: usize,
    hidden: bool,
}

/// The stream that is written to.
#[derive(Clone, Copy)]
enum Stream {
    Output,
    /// Used if the standard output is for programs.
    Errors,
}

impl Screen {
    /// Returns a screen on the standard output.
    pub(crate) fn new() -> Self {
        Self::on(Stream::Output)
    }

    /// Returns a screen on stderr.
    pub(crate) fn beside() -> Self {
        Self::on(Stream::Errors)
    }

    fn on(stream: Stream) -> Self {
        let is_terminal = match stream {
            Stream::Output => std::io::stdout().is_terminal(),
            Stream::Errors => std::io::stderr().is_terminal(),
        };
        // A terminal that cannot move its cursor is treated as a pipe.
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self { stream, is_terminal: is_terminal && !is_dumb, lines: 0, hidden: false }
    }

    /// Returns whether frames are redrawn in place.
    pub(crate) fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// Shows the text; at a terminal, it replaces the text before. Returns false if the reader has
    /// closed the output.
    pub(crate) fn show(&mut self, text: &str) -> Result<bool, Failure> {
        if !self.is_terminal {
            return self.write(text);
        }
        let (columns, rows) = self.size();
        // A line that the terminal breaks would count as two lines to replace.
        let lines: Vec<_> = text.lines().map(|line| cut(line, columns)).collect();
        let shown = lines.len().min(rows.saturating_sub(1).max(1));
        let mut frame = self.rewound();
        if !self.hidden {
            frame.push_str("\x1b[?25l");
            self.hidden = true;
        }
        for line in &lines[..shown] {
            frame.push_str(line);
            frame.push_str("\x1b[K\n");
        }
        self.lines = shown;
        self.write(&frame)
    }

    /// Returns how many columns a frame can have.
    pub(crate) fn columns(&self) -> usize {
        self.size().0
    }

    /// Returns columns and rows.
    fn size(&self) -> (usize, usize) {
        let size = match self.stream {
            Stream::Output => terminal_size::terminal_size_of(std::io::stdout()),
            Stream::Errors => terminal_size::terminal_size_of(std::io::stderr()),
        };
        size.map_or((80, 24), |(columns, rows)| (columns.0.into(), rows.0.into()))
    }

    /// Returns the sequence that moves to the beginning of the last frame and erases it.
    fn rewound(&self) -> String {
        match self.lines {
            0 => String::new(),
            lines => format!("\x1b[{lines}A\r\x1b[J"),
        }
    }

    /// Erases the last frame at a terminal.
    pub(crate) fn clear(&mut self) -> Result<bool, Failure> {
        let frame = self.rewound();
        self.lines = 0;
        self.write(&frame)
    }

    fn write(&self, text: &str) -> Result<bool, Failure> {
        // A terminal gets movements of the cursor even if colours are switched off.
        let written = match (self.stream, self.is_terminal) {
            (Stream::Output, true) => write(&mut std::io::stdout().lock(), text),
            (Stream::Errors, true) => write(&mut std::io::stderr().lock(), text),
            (Stream::Output, false) => output::write(text),
            (Stream::Errors, false) => flushed(&mut anstream::stderr().lock(), text),
        };
        output::delivered(written)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if self.hidden {
            let _ = self.write("\x1b[?25h");
        }
    }
}

/// Returns when the user presses Ctrl-C or the command receives SIGTERM.
pub(crate) async fn interrupted() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let Ok(mut terminate) = signal(SignalKind::terminate()) {
            tokio::select! {
                _ = tokio::signal::ctrl_c() => {}
                _ = terminate.recv() => {}
            }
            return;
        }
    }
    let _ = tokio::signal::ctrl_c().await;
}

/// Writes to a terminal, without colours if they are switched off.
fn write(out: &mut impl anstream::stream::RawStream, text: &str) -> std::io::Result<()> {
    match anstream::AutoStream::choice(out) {
        anstream::ColorChoice::Never => flushed(out, &colorless(text)),
        anstream::ColorChoice::Auto
        | anstream::ColorChoice::AlwaysAnsi
        | anstream::ColorChoice::Always => flushed(out, text),
    }
}

fn flushed(out: &mut impl Write, text: &str) -> std::io::Result<()> {
    out.write_all(text.as_bytes()).and_then(|()| out.flush())
}

/// Removes the sequences that set colours, and keeps those that move the cursor.
fn colorless(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("\x1b[") {
        let sequence = &rest[at + 2..];
        let end = sequence.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(0);
        let is_color = sequence[end..].starts_with('m');
        let until = at + 2 + end + usize::from(end < sequence.len());
        out.push_str(&rest[..if is_color { at } else { until }]);
        rest = &rest[until..];
    }
    out + rest
}

/// Cuts the text to this many columns; colours do not count.
fn cut(line: &str, columns: usize) -> String {
    let mut out = String::new();
    let (mut used, mut rest) = (0, line);
    while let Some(c) = rest.chars().next() {
        let piece = match rest.strip_prefix("\x1b[").and_then(|code| code.find('m')) {
            // A sequence is kept whole, also after the last column, because it may reset the colour.
            Some(end) => &rest[..end + 3],
            None => {
                let piece = &rest[..c.len_utf8()];
                used += width(piece);
                if used > columns { "" } else { piece }
            }
        };
        out.push_str(piece);
        rest = &rest[if piece.is_empty() { c.len_utf8() } else { piece.len() }..];
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cut_and_colours_taken_out() {
        assert_eq!(cut("\x1b[31mabcdef\x1b[0m", 3), "\x1b[31mabc\x1b[0m");
        assert_eq!(cut("日本語", 5), "日本");
        assert_eq!(colorless("\x1b[3A\r\x1b[J\x1b[1mx\x1b[0m\x1b[K\n"), "\x1b[3A\r\x1b[Jx\x1b[K\n");
        assert_eq!(colorless("a\x1b["), "a\x1b[");
    }
}
