//! HCL as a tree: blocks, attributes and values that are written out.
//!
//! A computed value (a variable, a function, a template in a text) is an expression, and is not
//! evaluated. Blocks of one type are a list of maps, and the label of each is under [`LABEL`].

use std::ops::Range;

use hcl_edit::Span;
use hcl_edit::expr::{Expression, ObjectKey};
use hcl_edit::structure::{Block, Body, Structure};
use hcl_edit::template::Element;

use super::place::InputError;
use super::tree::{Id, Nodes, Tree};

/// The key of a block's first label. No attribute can be called so.
pub(crate) const LABEL: &str = " label";

struct Builder {
    breaks: Vec<usize>,
    nodes: Nodes,
}

/// The parser itself bounds how deeply a text is nested.
pub(crate) fn parse(text: &str) -> Result<Tree, InputError> {
    let body: Body = text.parse().map_err(|error: hcl_edit::parser::Error| {
        InputError::at(error.location().line(), format!("this is not HCL: {}", error.message()))
    })?;
    let breaks = text.match_indices('\n').map(|(at, _)| at).collect();
    let mut builder = Builder { breaks, nodes: Nodes::default() };
    let root = builder.body(&body, 1, None)?;
    Ok(builder.nodes.into_tree(vec![root]))
}

// === impl Builder ===

impl Builder {
    fn line(&self, span: Option<Range<usize>>, otherwise: usize) -> usize {
        let line = |at| self.breaks.partition_point(|line_break| *line_break < at) + 1;
        span.map_or(otherwise, |span| line(span.start))
    }

    fn body(&mut self, body: &Body, line: usize, label: Option<&str>) -> Result<Id, InputError> {
        let mut pairs = Vec::new();
        let mut blocks: Vec<(&str, usize, Vec<Id>)> = Vec::new();
        if let Some(label) = label {
            let key = self.nodes.scalar(line, LABEL, false)?;
            pairs.push((key, self.nodes.scalar(line, label, false)?));
        }
        for structure in body {
            match structure {
                Structure::Attribute(attribute) => {
                    let here = self.line(attribute.key.span(), line);
                    let key = self.nodes.scalar(here, attribute.key.as_str(), false)?;
                    pairs.push((key, self.value(&attribute.value, here)?));
                }
                Structure::Block(Block { ident, labels, body, .. }) => {
                    let here = self.line(ident.span(), line);
                    let label = labels.first().map(hcl_edit::structure::BlockLabel::as_str);
                    let block = self.body(body, here, label)?;
                    let name = ident.as_str();
                    match blocks.iter_mut().find(|(known, ..)| *known == name) {
                        Some((.., all)) => all.push(block),
                        None => blocks.push((name, here, vec![block])),
                    }
                }
            }
        }
        for (name, here, all) in blocks {
            let key = self.nodes.scalar(here, name, false)?;
            pairs.push((key, self.nodes.list(here, all)?));
        }
        self.nodes.map(line, pairs)
    }

    fn value(&mut self, value: &Expression, line: usize) -> Result<Id, InputError> {
        let line = self.line(value.span(), line);
        match value {
            Expression::Null(_) => self.nodes.scalar(line, "null", true),
            Expression::Bool(yes) => self.nodes.scalar(line, &yes.value().to_string(), true),
            Expression::Number(number) => {
                self.nodes.scalar(line, &number.value().to_string(), true)
            }
            Expression::String(text) => self.nodes.scalar(line, text.value(), false),
            Expression::HeredocTemplate(heredoc) => {
                let parts = heredoc.template.iter().map(|element| match element {
                    Element::Literal(text) => Some(text.as_str()),
                    Element::Interpolation(_) | Element::Directive(_) => None,
                });
                match parts.collect::<Option<String>>() {
                    Some(text) => self.nodes.scalar(line, &text, false),
                    None => self.nodes.expression(line),
                }
            }
            Expression::Array(items) => {
                let ids = items.iter().map(|item| self.value(item, line));
                let ids = ids.collect::<Result<_, _>>()?;
                self.nodes.list(line, ids)
            }
            Expression::Object(object) => {
                let mut pairs = Vec::new();
                for (key, value) in object {
                    let here = self.line(value.expr().span(), line);
                    let key = match key {
                        ObjectKey::Ident(name) => self.nodes.scalar(here, name.as_str(), false)?,
                        ObjectKey::Expression(key) => self.value(key, here)?,
                    };
                    pairs.push((key, self.value(value.expr(), here)?));
                }
                self.nodes.map(line, pairs)
            }
            Expression::StringTemplate(_)
            | Expression::Parenthesis(_)
            | Expression::Variable(_)
            | Expression::Conditional(_)
            | Expression::FuncCall(_)
            | Expression::Traversal(_)
            | Expression::UnaryOp(_)
            | Expression::BinaryOp(_)
            | Expression::ForExpr(_) => self.nodes.expression(line),
        }
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
    fn invalid_and_deep_hcl_is_refused() {
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
        let blocks = format!("{}{}", "a {\n".repeat(100_000), "}\n".repeat(100_000));
        assert!(parse(&blocks).is_err());
        let lists = format!("a = {}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(parse(&lists).is_err());
        for text in ["é = \"ü\"", "a = \"\u{1F600}\" # é", "a = [\"é\",\n\"ü\"]", "a = é"] {
            let _ = parse(text);
        }
    }
}
