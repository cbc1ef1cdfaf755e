//! Files of variables, as each platform reads them.

use std::collections::BTreeMap;

/// Whose rules hold for a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// Compose, and templates of Nomad: quotes, remarks, `${NAME}`.
    Compose,
    /// `docker run --env-file`: values are taken as they are, with their quotes.
    Docker,
    /// `podman run --env-file`: the same, but versions differ in what they do with quotes.
    Podman,
    Systemd,
}

/// A line of such a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// A variable; no value if that is passed on from elsewhere or cannot be seen.
    Set(String, Option<String>),
    /// It is not understood.
    Odd,
}

/// The lines that say something, by their numbers.
pub(crate) fn read(text: &str, dialect: Dialect) -> Vec<(usize, Line)> {
    let mut seen = BTreeMap::new();
    let mut lines = Vec::new();
    let text = text.trim_start_matches('\u{feff}');
    for (at, line) in text.lines().enumerate() {
        let Some(line) = self::line(line, dialect, &seen) else { continue };
        if let Line::Set(name, Some(value)) = &line {
            seen.insert(name.clone(), value.clone());
        }
        let is_odd = line == Line::Odd;
        lines.push((at + 1, line));
        // The rest may belong to a value that was begun here.
        if is_odd {
            break;
        }
    }
    lines
}

fn line(line: &str, dialect: Dialect, seen: &BTreeMap<String, String>) -> Option<Line> {
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
        // systemd ignores the line; the others pass the variable on.
        return (dialect != Dialect::Systemd).then(|| Line::Set(name.into(), None));
    };
    let value = match dialect {
        Dialect::Docker => Some(value.to_owned()),
        Dialect::Podman => Some(value.to_owned()).filter(|value| !value.contains(['"', '\''])),
        Dialect::Compose => match quoted(value.trim(), " #") {
            Quoted::Literal(value) => Some(value.to_owned()),
            Quoted::Expanded(value) => expanded(value, seen),
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

/// Takes quotes off; without them, the value ends where a remark begins.
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

/// Replaces `${NAME}` and `$NAME` by what the file has set before.
fn expanded(value: &str, seen: &BTreeMap<String, String>) -> Option<String> {
    let mut out = String::new();
    let mut rest = value;
    while let Some((before, after)) = rest.split_once('$') {
        let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let (name, more) = match after.strip_prefix('{') {
            Some(inner) => inner.split_once('}')?,
            None => after.split_at(after.find(|c| !is_of_name(c)).unwrap_or(after.len())),
        };
        out += before;
        out += seen.get(name)?;
        rest = more;
    }
    Some(out + rest).filter(|value| !value.contains('\\'))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values by name, `?` for one that cannot be seen, `odd` where the file is not understood.
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
