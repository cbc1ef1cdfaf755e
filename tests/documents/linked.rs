//! The links of the documents lead to files and headings that exist.

use std::path::Path;

/// Returns the links of a document that lead nowhere. Links to other hosts are not followed.
pub(super) fn broken_links(document: &Path) -> Vec<String> {
    let folder = document.parent().unwrap();
    let leads_nowhere = |link: &&str| {
        if link.starts_with("https://") {
            return false;
        }
        let (path, heading) = link.split_once('#').unwrap_or((link, ""));
        let target = if path.is_empty() { document.to_owned() } else { folder.join(path) };
        if heading.is_empty() {
            return !target.exists();
        }
        let text = std::fs::read_to_string(target).unwrap_or_default();
        !headings(&text).any(|line| anchor(line) == heading)
    };
    let text = std::fs::read_to_string(document).unwrap();
    links(&text).filter(leads_nowhere).map(str::to_owned).collect()
}

/// Returns the headings of the second level that no link of the document leads to.
pub(super) fn unlisted_headings(text: &str) -> Vec<&str> {
    let is_listed = |line: &str| links(text).any(|link| link == format!("#{}", anchor(line)));
    let second = headings(text).filter(|line| line.starts_with("## "));
    second.filter(|line| !is_listed(line)).collect()
}

fn links(text: &str) -> impl Iterator<Item = &str> {
    text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(link, _)| link)
}

fn headings(text: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    text.lines().filter(move |line| {
        is_code ^= line.starts_with("```");
        !is_code && line.starts_with('#')
    })
}

/// Returns the anchor of a heading, as GitHub makes it.
fn anchor(heading: &str) -> String {
    let heading = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn a_link_that_leads_nowhere_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let document = folder.path().join("a.md");
    let other = "# B\n```sh\n# no heading\n```\n## Locks: files, `etcd`\n";
    std::fs::write(folder.path().join("b.md"), other).unwrap();
    let text = "[1](b.md), [2](#a-b), [3](b.md#locks-files-etcd), [4](https://example.com)\n\
                [5](c.md), [6](#b), [7](b.md#no-heading)\n\n## A B\n\n## C\n";
    std::fs::write(&document, text).unwrap();
    assert_eq!(broken_links(&document), ["c.md", "#b", "b.md#no-heading"]);
    assert_eq!(unlisted_headings(text), ["## C"]);
}
