//! The limit of all substitutions of variables.

/// Variables that contain each other twice grow exponentially. No manifest that people write
/// substitutes more than this for one process.
const MOST: usize = 256 * 1024;

/// The texts that were substituted for one process.
#[derive(Default)]
pub(crate) struct Expansion {
    used: usize,
}

impl Expansion {
    /// Counts a text that is substituted. Returns `false` if it is one too many: then it must not be
    /// substituted, and counts as one that cannot be seen.
    pub(crate) fn admits(&mut self, text: &str) -> bool {
        let used = self.used.saturating_add(text.len());
        let is_admitted = used <= MOST;
        if is_admitted {
            self.used = used;
        }
        is_admitted
    }
}
