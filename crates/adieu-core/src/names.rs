//! Lists known names in error messages, and finds the one that was probably meant.

use std::fmt;

/// The valid names, for an error message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PhaseNames(Vec<String>);

// === impl PhaseNames ===

impl PhaseNames {
    pub(crate) fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        Self(names.into_iter().map(str::to_owned).collect())
    }

    /// Returns the names, in the order in which they were declared.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

impl fmt::Display for PhaseNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "known phases: {}", self.0.join(", "))
    }
}

pub(crate) fn joined(names: &[impl fmt::Display], by: &str) -> String {
    names.iter().map(ToString::to_string).collect::<Vec<_>>().join(by)
}

/// Returns the known name that is most similar to `wanted`, if one is similar enough.
pub(crate) fn nearest<'a>(
    wanted: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let plain = |name: &str| name.to_lowercase().replace(['-', '_', '.'], "");
    let wanted = plain(wanted);
    known
        .into_iter()
        .map(|name| (distance(&wanted, &plain(name)), name))
        .filter(|(distance, name)| *distance <= 1 + name.len() / 3)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// Returns the number of letters that must change to turn `a` into `b`.
fn distance(a: &str, b: &str) -> usize {
    // Longer names are cut, because the time grows with the product of the lengths.
    const TOO_LONG: usize = 100;
    let b: Vec<char> = b.chars().take(TOO_LONG).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().take(TOO_LONG).enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let changed = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn the_nearest_name_is_suggested_and_a_far_one_is_not() {
        let known = ["depends-on", "timeout", "recover", "enabled"];
        assert_eq!(nearest("dependsOn", known), Some("depends-on"));
        assert_eq!(nearest("time-out", known), Some("timeout"));
        assert_eq!(nearest("recovr", known), Some("recover"));
        assert_eq!(nearest("colour", known), None);
    }
}
