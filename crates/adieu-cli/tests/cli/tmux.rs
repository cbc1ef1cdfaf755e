//! A real terminal, made by tmux: its screen shows the text that a person would see.

use std::process::Command;

/// A terminal with a shell in it. Dropping it ends both.
pub(crate) struct Tmux {
    server: String,
}

impl Tmux {
    /// Opens one of 100 columns and 40 lines, with these variables set.
    pub(crate) fn open(name: &str, vars: &[(&str, &str)]) -> Self {
        Self::with_columns(name, 100, vars)
    }

    /// Opens one of 40 lines, with these variables set.
    pub(crate) fn with_columns(name: &str, columns: usize, vars: &[(&str, &str)]) -> Self {
        let tmux = Self { server: format!("adieu-test-{name}-{}", std::process::id()) };
        let vars = vars.iter().map(|(name, value)| format!("{name}={value} "));
        let shell = format!("{}PS1='$ ' sh", vars.collect::<String>());
        tmux.tmux(&["new-session", "-d", "-x", &columns.to_string(), "-y", "40", &shell]);
        tmux.until("$");
        tmux
    }

    /// Runs the command under test, and prints its exit code afterwards.
    pub(crate) fn adieu(&self, args: &str) {
        let line = format!("{} {args}; echo code=$?", env!("CARGO_BIN_EXE_adieu"));
        self.tmux(&["send-keys", "clear; ", &line, "Enter"]);
    }

    /// Presses keys, as tmux calls them.
    pub(crate) fn press(&self, keys: &str) {
        self.tmux(&["send-keys", keys]);
    }

    /// Returns the text on the screen.
    pub(crate) fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p", "-J"]).trim_end().to_owned()
    }

    /// Returns the text on the screen, with colours.
    pub(crate) fn coloured_screen(&self) -> String {
        self.tmux(&["capture-pane", "-p", "-e"])
    }

    pub(crate) fn has_cursor(&self) -> bool {
        self.tmux(&["display-message", "-p", "#{cursor_flag}"]).trim() == "1"
    }

    /// Waits until the screen contains this text, and returns the screen.
    #[track_caller]
    pub(crate) fn until(&self, text: &str) -> String {
        super::until(text, || self.screen().contains(text));
        self.screen()
    }

    fn tmux(&self, args: &[&str]) -> String {
        let mut command = Command::new("tmux");
        // No settings of the user.
        command.args(["-L", &self.server, "-f", "/dev/null"]).args(args).env_remove("TMUX");
        let output = command.output().expect("tmux should be installed");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}
