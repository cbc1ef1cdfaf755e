//! A reader for the structure of HCL: blocks, attributes and values that are written out.
//!
//! What is computed (a variable, a function, a template in a text) is kept as an expression, and
//! never guessed at. Blocks of one type are a list of maps, and the label of each is under
//! [`LABEL`].

use super::place::Wrong;
use super::tree::{DEEPEST, Id, Nodes, Tree, too_deep};

/// The key of a block's first label. No attribute can be called so.
pub(crate) const LABEL: &str = " label";

struct Reader<'a> {
    text: &'a str,
    breaks: Vec<usize>,
    at: usize,
    nodes: Nodes,
}

pub(crate) fn parse(text: &str) -> Result<Tree, Wrong> {
    let breaks = text.match_indices('\n').map(|(at, _)| at).collect();
    let mut reader = Reader { text, breaks, at: 0, nodes: Nodes::default() };
    let root = reader.body(1, None, 0)?;
    Ok(reader.nodes.into_tree(vec![root]))
}

impl<'a> Reader<'a> {
    fn wrong(&self, at: usize, problem: &str) -> Wrong {
        Wrong::at(self.line(at), format!("this is not HCL: {problem}"))
    }

    fn line(&self, at: usize) -> usize {
        self.breaks.partition_point(|line_break| *line_break < at) + 1
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// Skips white space and remarks, and line breaks if they mean nothing here.
    fn skip(&mut self, breaks: bool) -> Result<(), Wrong> {
        loop {
            let rest = self.rest();
            let is_blank = |c: char| c.is_whitespace() && (breaks || c != '\n');
            let trimmed = rest.trim_start_matches(is_blank);
            self.at += rest.len() - trimmed.len();
            if trimmed.starts_with('#') || trimmed.starts_with("//") {
                self.at += trimmed.find('\n').unwrap_or(trimmed.len());
            } else if trimmed.starts_with("/*") {
                let end = trimmed
                    .find("*/")
                    .ok_or_else(|| self.wrong(self.at, "a remark without an end"))?;
                self.at += end + 2;
            } else {
                return Ok(());
            }
        }
    }

    fn word(&mut self) -> Option<&'a str> {
        let rest = self.rest();
        let is_of_word = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
        let end = rest.find(|c| !is_of_word(c)).unwrap_or(rest.len());
        self.at += end;
        Some(&rest[..end]).filter(|word| !word.is_empty())
    }

    /// Attributes and blocks, up to the closing brace or the end of the text.
    fn body(&mut self, line: usize, label: Option<Id>, depth: usize) -> Result<Id, Wrong> {
        if depth > DEEPEST {
            return Err(Wrong::at(line, too_deep()));
        }
        let mut pairs = Vec::new();
        let mut blocks: Vec<(String, usize, Vec<Id>)> = Vec::new();
        if let Some(label) = label {
            pairs.push((self.nodes.scalar(line, LABEL, false)?, label));
        }
        loop {
            self.skip(true)?;
            let begin = self.at;
            if self.rest().is_empty() && depth == 0 {
                break;
            }
            if self.rest().starts_with('}') && depth > 0 {
                self.at += 1;
                break;
            }
            let Some(name) = self.word() else {
                return Err(self.wrong(begin, "expected a name, or the end of a block"));
            };
            let here = self.line(begin);
            self.skip(false)?;
            if self.rest().starts_with('=') {
                self.at += 1;
                self.skip(false)?;
                let from = self.at;
                self.at = self.end_of_expression(from, "\n")?;
                let key = self.nodes.scalar(here, name, false)?;
                let value = self.value(from, self.at, depth + 1)?;
                pairs.push((key, value));
                continue;
            }
            let label = self.labels()?;
            self.at += 1;
            let block = self.body(here, label, depth + 1)?;
            match blocks.iter_mut().find(|(known, ..)| known == name) {
                Some((.., all)) => all.push(block),
                None => blocks.push((name.into(), here, vec![block])),
            }
        }
        for (name, here, all) in blocks {
            let key = self.nodes.scalar(here, &name, false)?;
            pairs.push((key, self.nodes.list(here, all)?));
        }
        self.nodes.map(line, pairs)
    }

    /// The first label of a block, up to its opening brace.
    fn labels(&mut self) -> Result<Option<Id>, Wrong> {
        let mut first = None;
        loop {
            self.skip(false)?;
            let (from, rest) = (self.at, self.rest());
            if rest.starts_with('{') {
                return Ok(first);
            }
            if rest.starts_with('"') {
                self.at = self.end_of_string(from)?;
            } else if self.word().is_none() {
                return Err(self.wrong(from, "expected = or {"));
            }
            let text = self.text[from..self.at].trim_matches('"');
            let label = self.nodes.scalar(self.line(from), text, false)?;
            first = first.or(Some(label));
        }
    }

    /// Where a string ends that begins here, with the templates in it.
    fn end_of_string(&self, from: usize) -> Result<usize, Wrong> {
        let bytes = self.text.as_bytes();
        let (mut open, mut at) = (Vec::new(), from);
        while let Some(&byte) = bytes.get(at) {
            let next = bytes.get(at + 1);
            at += 1;
            match (open.last(), byte) {
                (Some(b'"'), b'\\') => at += 1,
                (Some(b'"'), b'"') => drop(open.pop()),
                // Written twice, it is a character.
                (Some(b'"'), b'$' | b'%') if next == Some(&byte) => at += 1,
                (Some(b'"'), b'$' | b'%') if next == Some(&b'{') => {
                    open.push(b'{');
                    at += 1;
                }
                (Some(b'"'), b'\n') => break,
                (Some(b'{') | None, b'"' | b'{') => open.push(byte),
                (Some(b'{'), b'}') => drop(open.pop()),
                _ => {}
            }
            if open.is_empty() {
                return Ok(at);
            }
        }
        Err(self.wrong(from, "a text without an end"))
    }

    /// Where an expression ends: at one of these characters, outside of brackets.
    fn end_of_expression(&self, from: usize, ends: &str) -> Result<usize, Wrong> {
        let (mut at, mut open) = (from, 0_usize);
        loop {
            let rest = &self.text[at..];
            let Some(c) = rest.chars().next() else { break };
            match c {
                c if open == 0 && ends.contains(c) => break,
                '}' | ']' | ')' if open == 0 => break,
                '#' if ends.contains('\n') && open == 0 => break,
                '/' if rest.starts_with("//") && ends.contains('\n') && open == 0 => break,
                '"' => at = self.end_of_string(at)?,
                '<' if rest.starts_with("<<") => at = self.end_of_heredoc(at)?,
                '#' => at += rest.find('\n').unwrap_or(rest.len()),
                '/' if rest.starts_with("//") => at += rest.find('\n').unwrap_or(rest.len()),
                '/' if rest.starts_with("/*") => {
                    at += rest.find("*/").map_or(rest.len(), |end| end + 2);
                }
                '{' | '[' | '(' => (open, at) = (open + 1, at + 1),
                '}' | ']' | ')' => (open, at) = (open - 1, at + 1),
                c => at += c.len_utf8(),
            }
        }
        if open == 0 { Ok(at) } else { Err(self.wrong(from, "a bracket without an end")) }
    }

    /// `<<EOF` or `<<-EOF`, up to the line that says so again.
    fn end_of_heredoc(&self, from: usize) -> Result<usize, Wrong> {
        let rest = &self.text[from..];
        let (first, body) =
            rest.split_once('\n').ok_or_else(|| self.wrong(from, "a text without an end"))?;
        let marker = first.trim_start_matches('<').trim_start_matches('-').trim();
        let mut at = from + first.len() + 1;
        for line in body.split_inclusive('\n') {
            at += line.len();
            if !marker.is_empty() && line.trim() == marker {
                // The line break ends the attribute.
                return Ok(at - usize::from(line.ends_with('\n')));
            }
        }
        Err(self.wrong(from, "a text without an end"))
    }

    fn value(&mut self, from: usize, to: usize, depth: usize) -> Result<Id, Wrong> {
        let line = self.line(from);
        if depth > DEEPEST {
            return Err(Wrong::at(line, too_deep()));
        }
        let text = self.text[from..to].trim_end();
        let to = from + text.len();
        let is_template = |text: &str| text.contains("${") || text.contains("%{");
        let inner = |text: &str| text.starts_with("for ") || text.starts_with("for\n");
        match text.as_bytes() {
            [b'"', ..] if self.end_of_string(from)? == to && !is_template(text) => {
                let text = text[1..text.len() - 1]
                    .replace("\\n", "\n")
                    .replace("\\\"", "\"")
                    .replace("\\\\", "\\");
                self.nodes.scalar(line, &text, false)
            }
            [b'<', b'<', ..] if self.end_of_heredoc(from).is_ok() && !is_template(text) => {
                let lines: Vec<_> = text.lines().collect();
                let body =
                    lines.get(1..lines.len().saturating_sub(1)).unwrap_or_default().join("\n");
                self.nodes.scalar(line, &body, false)
            }
            [b'[', .., b']'] if self.closes(from, to) && !inner(text[1..].trim_start()) => {
                let mut items = Vec::new();
                for (from, to) in self.parts(from + 1, to - 1, ",")? {
                    items.push(self.value(from, to, depth + 1)?);
                }
                self.nodes.list(line, items)
            }
            [b'{', .., b'}'] if self.closes(from, to) && !inner(text[1..].trim_start()) => {
                let mut pairs = Vec::new();
                for (from, to) in self.parts(from + 1, to - 1, ",\n")? {
                    pairs.push(self.pair(from, to, depth)?);
                }
                self.nodes.map(line, pairs)
            }
            _ if text.parse::<f64>().is_ok() || ["true", "false", "null"].contains(&text) => {
                self.nodes.scalar(line, text, true)
            }
            _ => self.nodes.expression(line),
        }
    }

    /// Whether the bracket that begins here is the one that ends there.
    fn closes(&self, from: usize, to: usize) -> bool {
        self.end_of_expression(from + 1, "").is_ok_and(|end| end + 1 == to)
    }

    /// The parts between separators, without white space and remarks around them.
    fn parts(
        &mut self,
        from: usize,
        to: usize,
        separators: &str,
    ) -> Result<Vec<(usize, usize)>, Wrong> {
        let (mut parts, back) = (Vec::new(), self.at);
        self.at = from;
        while self.at < to {
            self.skip(true)?;
            let begin = self.at.min(to);
            let end = self.end_of_expression(begin, separators)?.min(to);
            if !self.text[begin..end].trim().is_empty() {
                parts.push((begin, end));
            }
            self.at = (end + 1).max(begin + 1);
            while !self.text.is_char_boundary(self.at.min(self.text.len())) {
                self.at += 1;
            }
        }
        self.at = back;
        Ok(parts)
    }

    /// `key = value` or `key: value` of an object.
    fn pair(&mut self, from: usize, to: usize, depth: usize) -> Result<(Id, Id), Wrong> {
        let back = self.at;
        self.at = from;
        let name = if self.rest().starts_with('"') {
            self.at = self.end_of_string(from)?;
            self.text[from..self.at].trim_matches('"')
        } else {
            self.word().ok_or_else(|| self.wrong(from, "expected the name of a key"))?
        };
        self.skip(false)?;
        if !self.rest().starts_with(['=', ':']) || self.at >= to {
            return Err(self.wrong(from, "expected = after the name of a key"));
        }
        self.at += 1;
        self.skip(false)?;
        let begin = self.at.min(to);
        let key = self.nodes.scalar(self.line(from), name, false)?;
        let value = self.value(begin, to, depth + 1)?;
        self.at = back;
        Ok((key, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_attributes_and_values_are_read() {
        let text = r#"
variable "grace" { default = "30s" } # not used
job "orders" {
  datacenters = ["dc1", "dc2"] // two
  group "api" {
    task "web" {
      kill_timeout = "45s"
      count = 3
      env { A = "1", B = "x" }
      meta = { "k" = "v", other : 2 }
    }
    task "worker" {
      kill_timeout = var.grace
      name = "a-${upper("b")}"
      script = <<-EOF
        sleep 5
        } not the end {
      EOF
      list = [
        "a", # first
        f(1, 2),
      ]
      more = cond ? "a" : "b"
    }
  }
}
"#
        .replace("env { A = \"1\", B = \"x\" }", "env {\n A = \"1\"\n B = \"x\"\n }");
        let tree = parse(&text).unwrap();
        let document = tree.documents().next().unwrap();
        let job = &document.get("job").unwrap().items()[0];
        assert_eq!(job.text_of(LABEL), Some("orders"));
        assert_eq!(job.get("datacenters").unwrap().texts(), [Some("dc1"), Some("dc2")]);
        let tasks = job.get("group").unwrap().items()[0].get("task").unwrap().items();
        assert_eq!(tasks.len(), 2);
        assert_eq!(tasks[0].text_of("kill_timeout"), Some("45s"));
        assert_eq!(tasks[0].get("kill_timeout").unwrap().place().line, 7);
        assert_eq!(tasks[0].get("count").unwrap().number().unwrap(), 3);
        assert_eq!(tasks[0].get("env").unwrap().items()[0].text_of("B"), Some("x"));
        assert_eq!(tasks[0].find(&["meta", "other"]).unwrap().number().unwrap(), 2);
        for key in ["kill_timeout", "name", "more"] {
            assert!(tasks[1].get(key).unwrap().is_expression(), "{key}");
        }
        assert!(tasks[1].text_of("script").unwrap().contains("} not the end {"));
        assert_eq!(tasks[1].get("list").unwrap().texts(), [Some("a"), None]);
    }

    #[test]
    fn what_is_not_hcl_or_too_deep_is_refused() {
        for text in [
            "job \"a\" {",
            "job \"a\" }",
            "a = \"open",
            "a = [1, 2",
            "a = <<EOF\nnever",
            "/* open",
            "= 1",
            "job \"a\" { kill_timeout = \"1s\" } }",
            "a = 1\na = 2",
            "a = {b}",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
        let wrong = parse(&"a {\n".repeat(100_000)).err().unwrap();
        assert!(wrong.problem.contains("64 deep"), "{}", wrong.problem);
        let lists = format!("a = {}{}", "[".repeat(1_000), "]".repeat(1_000));
        assert!(parse(&lists).err().unwrap().problem.contains("64 deep"));
        for text in ["é = \"ü\"", "a = \"\u{1F600}\" # é", "a = [\"é\",\n\"ü\"]", "a = é"] {
            let _ = parse(text);
        }
    }
}
