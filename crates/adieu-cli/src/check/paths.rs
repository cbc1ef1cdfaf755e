//! Paths where the process runs, which this machine cannot resolve.

/// A path without empty parts, `.` and `..`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Normal {
    pub(crate) path: String,
    /// Whether `..` was removed. It leads elsewhere if the part before it is a link.
    pub(crate) has_parent: bool,
}

/// Joins a path to the folder that it is relative to.
pub(crate) fn joined(folder: &str, path: &str) -> String {
    if path.starts_with('/') || folder.is_empty() {
        return path.into();
    }
    format!("{folder}/{path}")
}

/// Removes the parts of a path that lead nowhere.
pub(crate) fn normal(path: &str) -> Normal {
    let mut parts = Vec::new();
    let mut has_parent = false;
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                has_parent = true;
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    let root = if path.starts_with('/') { "/" } else { "" };
    Normal { path: format!("{root}{}", parts.join("/")), has_parent }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s822_paths_are_compared_without_parts_that_lead_nowhere() {
        let normal = |path: &str| {
            let Normal { path, has_parent } = super::normal(path);
            (path, has_parent)
        };
        for path in ["/etc/o/s.toml", "/etc//o/./s.toml", "//etc/o/s.toml/"] {
            assert_eq!(normal(path), ("/etc/o/s.toml".to_owned(), false), "{path}");
        }
        assert_eq!(normal("/etc/x/../o/s.toml"), ("/etc/o/s.toml".to_owned(), true));
        assert_eq!(normal("/../s.toml"), ("/s.toml".to_owned(), true));
        assert_eq!(normal("./s.toml"), ("s.toml".to_owned(), false));
        assert_eq!(joined("/etc/o", "s.toml"), "/etc/o/s.toml");
        assert_eq!(joined("/etc/o", "/s.toml"), "/s.toml");
        assert_eq!(joined("", "s.toml"), "s.toml");
    }
}
