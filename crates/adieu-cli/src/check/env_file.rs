//! Files of variables, as each platform reads them.

use std::collections::BTreeMap;

use super::expansion::Expansion;

/// The platform by whose rules a file is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// Compose, and templates of Nomad: with quotes, comments and `${NAME}`.
    Compose,
    /// `docker run --env-file`: values are used as they are, including their quotes.
    Docker,
    /// `podman run --env-file`: like docker, but the treatment of quotes depends on the version.
    Podman,
    Systemd,
}

/// A line of such a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// A variable. It has no value here if the value is inherited from elsewhere or cannot be seen.
    Set(String, Option<String>),
    /// A line that is not understood.
    Odd,
}

/// Returns the lines that are neither empty nor comments, with their numbers. The last one is the
/// first line that is not understood, if there is one.
pub(crate) fn read(text: &str, dialect: Dialect) -> Vec<(usize, Line)> {
    let (mut seen, mut expansion) = (BTreeMap::new(), Expansion::default());
    let mut lines = Vec::new();
    let text = text.trim_start_matches('\u{feff}');
    for (at, line) in text.lines().enumerate() {
        let Some(line) = self::line(line, dialect, &seen, &mut expansion) else { continue };
        if let Line::Set(name, Some(value)) = &line {
            seen.insert(name.clone(), value.clone());
        }
        let is_odd = line == Line::Odd;
        lines.push((at + 1, line));
        // The lines after it may belong to a value that begins here.
        if is_odd {
            break;
        }
    }
    lines
}

fn line(
    line: &str,
    dialect: Dialect,
    seen: &BTreeMap<String, String>,
    expansion: &mut Expansion,
) -> Option<Line> {
    let line = match dialect {
        Dialect::Docker | Dialect::Podman => line.trim_start(),
        Dialect::Compose | Dialect::Systemd => line.trim(),
    };
    let is_remark = line.starts_with('#') || dialect == Dialect::Systemd && line.starts_with(';');
    if line.is_empty() || is_remark {
        return None;
    }
    let line = match dialect {
        Dialect::Compose => line.strip_prefix("export ").unwrap_or(line).trim_start(),
        Dialect::Docker | Dialect::Podman | Dialect::Systemd => line,
    };
    let separators: &[char] = if dialect == Dialect::Compose { &['=', ':'] } else { &['='] };
    let (name, value) = match line.split_once(separators) {
        Some((name, value)) => (name, Some(value)),
        None => (line, None),
    };
    let name = name.trim_end();
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || "_.-[]*".contains(c);
    if name.is_empty() || !name.chars().all(is_of_name) {
        return Some(Line::Odd);
    }
    let Some(value) = value else {
        // systemd ignores the line; the other platforms inherit the variable.
        return (dialect != Dialect::Systemd).then(|| Line::Set(name.into(), None));
    };
    let value = match dialect {
        Dialect::Docker => Some(value.to_owned()),
        Dialect::Podman => Some(value.to_owned()).filter(|value| !value.contains(['"', '\''])),
        Dialect::Compose => match quoted(value.trim(), " #") {
            Quoted::Literal(value) => Some(value.to_owned()),
            Quoted::Expanded(value) => expanded(value, seen, expansion),
            Quoted::Open => return Some(Line::Odd),
        },
        Dialect::Systemd => match quoted(value.trim(), "\0") {
            Quoted::Literal(value) => Some(value.to_owned()),
            Quoted::Expanded(value) => Some(value.to_owned()).filter(|value| !value.contains('\\')),
            Quoted::Open => return Some(Line::Odd),
        },
    };
    Some(Line::Set(name.into(), value))
}

enum Quoted<'a> {
    /// In single quotes.
    Literal(&'a str),
    Expanded(&'a str),
    /// The closing quote is on another line, or something follows it.
    Open,
}

/// Removes the quotes of a value. A value without quotes ends where a comment begins.
fn quoted<'a>(value: &'a str, remark: &str) -> Quoted<'a> {
    let Some(quote) = value.chars().next().filter(|c| ['"', '\''].contains(c)) else {
        if value.ends_with('\\') {
            return Quoted::Open;
        }
        return Quoted::Expanded(value.split_once(remark).map_or(value, |(value, _)| value).trim());
    };
    let Some((inner, after)) = value[1..].split_once(quote) else { return Quoted::Open };
    let after = after.trim_start();
    if inner.ends_with('\\') || !after.is_empty() && !after.starts_with('#') {
        return Quoted::Open;
    }
    if quote == '\'' { Quoted::Literal(inner) } else { Quoted::Expanded(inner) }
}

/// Replaces `${NAME}` and `$NAME` with values from earlier lines of the file.
fn expanded(
    value: &str,
    seen: &BTreeMap<String, String>,
    expansion: &mut Expansion,
) -> Option<String> {
    let mut out = String::new();
    let mut rest = value;
    while let Some((before, after)) = rest.split_once('$') {
        let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let (name, more) = match after.strip_prefix('{') {
            Some(inner) => inner.split_once('}')?,
            None => after.split_at(after.find(|c| !is_of_name(c)).unwrap_or(after.len())),
        };
        out += before;
        out += seen.get(name).filter(|value| expansion.admits(value))?;
        rest = more;
    }
    Some(out + rest).filter(|value| !value.contains('\\'))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shows variables and their values: `?` for a value that cannot be seen, `odd` for a line that
    /// is not understood.
    fn shown(text: &str, dialect: Dialect) -> String {
        let line = |(_, line): &(usize, Line)| match line {
            Line::Set(name, value) => format!("{name}={}", value.as_deref().unwrap_or("?")),
            Line::Odd => "odd".into(),
        };
        read(text, dialect).iter().map(line).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn s503_env_files_are_read_by_the_rules_of_their_platform() {
        for (text, compose, docker, systemd) in [
            ("A=1", "A=1", "A=1", "A=1"),
            ("\u{feff}A=1", "A=1", "A=1", "A=1"),
            ("# no\nexport A=1", "A=1", "odd", "odd"),
            ("A=\"1\"", "A=1", "A=\"1\"", "A=1"),
            ("A='$1'", "A=$1", "A='$1'", "A=$1"),
            ("A=1 # one", "A=1", "A=1 # one", "A=1 # one"),
            ("A: 1", "A=1", "odd", "odd"),
            ("A", "A=?", "A=?", ""),
            ("B=5\nA=${B}s", "B=5 A=5s", "B=5 A=${B}s", "B=5 A=${B}s"),
            ("A=${C}", "A=?", "A=${C}", "A=${C}"),
            ("; no", "odd", "odd", ""),
            ("A=\"1\n2\"\nB=3", "odd", "A=\"1 odd", "odd"),
        ] {
            assert_eq!(shown(text, Dialect::Compose), compose, "compose: {text}");
            assert_eq!(shown(text, Dialect::Docker), docker, "docker: {text}");
            assert_eq!(shown(text, Dialect::Systemd), systemd, "systemd: {text}");
        }
        assert_eq!(shown("A=\"1\"\nB=2", Dialect::Podman), "A=? B=2");
    }
}
