//! Strings in YAML.

/// Returns the text as a YAML string, in quotes if it could be read as something else.
pub(super) fn scalar(text: &str) -> String {
    let is_plain = text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "./:@_-".contains(c))
        && !text.ends_with(':')
        && !["true", "false", "null", "yes", "no", "on", "off", "y", "n"]
            .contains(&text.to_ascii_lowercase().as_str());
    if is_plain { text.to_owned() } else { quoted(text) }
}

/// Returns text of several lines as a block under a key that is indented by `indent`.
pub(super) fn block(text: &str, indent: usize) -> String {
    let is_plain = |c: char| c == '\n' || c == '\t' || !c.is_control();
    let begins_indented = text.trim_start_matches('\n').starts_with([' ', '\t']);
    if !text.chars().all(is_plain) || begins_indented || text.trim().is_empty() {
        return format!("{}\n", quoted(text));
    }
    let indent = " ".repeat(indent + 2);
    let mut out = String::from("|\n");
    for line in text.trim_end().lines() {
        let line = if line.is_empty() { String::new() } else { format!("{indent}{line}") };
        out += &format!("{line}\n");
    }
    out
}

/// Returns the text as a JSON string, which YAML accepts.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
