//! A part of the terminal that is drawn again and again, in place.

use std::io::{self, IsTerminal, Write};

/// A part of the terminal, on stderr, that is drawn again and again.
///
/// The cursor is hidden meanwhile, and shown again when this is dropped.
pub(crate) struct Screen {
    /// How many lines stand there from the last time.
    lines: usize,
    has_colours: bool,
}

const HIDE_CURSOR: &str = "\x1b[?25l";
const SHOW_CURSOR: &str = "\x1b[?25h";
const CLEAR_BELOW: &str = "\x1b[J";
const CLEAR_LINE: &str = "\x1b[K";
/// Where nobody says how wide it is.
const WIDTH: usize = 100;

// === impl Screen ===

impl Screen {
    /// The terminal behind stderr, if there is one that can be drawn on.
    pub(crate) fn open() -> Option<Self> {
        let stderr = io::stderr();
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        if !stderr.is_terminal() || is_dumb {
            return None;
        }
        let choice = anstream::AutoStream::choice(&stderr);
        Some(Self { lines: 0, has_colours: choice != anstream::ColorChoice::Never })
    }

    /// How many columns there are.
    pub(crate) fn width() -> usize {
        let size = terminal_size::terminal_size_of(io::stderr());
        size.map_or(WIDTH, |(width, _)| usize::from(width.0))
    }

    /// Draws these lines where the last ones stood. None may be wider than the terminal; those
    /// that it is not high enough for are left out.
    ///
    /// What cannot be drawn is let go: nothing depends on it.
    pub(crate) fn draw(&mut self, lines: &[String]) {
        let room = terminal_size::terminal_size_of(io::stderr()).map(|(_, height)| height.0);
        let room = room.map_or(usize::MAX, |height| usize::from(height).saturating_sub(1));
        let lines = &lines[..lines.len().min(room)];
        let mut out = String::from(HIDE_CURSOR);
        if self.lines > 0 {
            out.push_str(&format!("\x1b[{}A", self.lines));
        }
        for line in lines {
            match self.has_colours {
                true => out.push_str(line),
                false => out.push_str(&anstream::adapter::strip_str(line).to_string()),
            }
            out.push_str(CLEAR_LINE);
            out.push('\n');
        }
        out.push_str(CLEAR_BELOW);
        self.lines = lines.len();
        write(&out);
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        write(SHOW_CURSOR);
    }
}

fn write(text: &str) {
    let mut stderr = io::stderr().lock();
    let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
}
