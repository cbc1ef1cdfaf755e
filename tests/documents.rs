//! The documents agree with the sources.

mod exported;
mod linked;
mod named;
mod numbered;
mod spawning;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use adieu::Signal;
use adieu_testkit::process::Process;

use self::numbered::Numbered;

pub(super) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

pub(super) fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

pub(super) fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("target") && !path.ends_with(".git") {
            sources(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push(path);
        }
    }
}

/// Returns the documents of the repository and of its crates.
fn documents() -> Vec<PathBuf> {
    let folders = ["", "docs"].map(|folder| root().join(folder));
    let crates = std::fs::read_dir(root().join("crates")).unwrap();
    let folders = folders.into_iter().chain(crates.map(|entry| entry.unwrap().path()));
    let files = folders.flat_map(|folder| std::fs::read_dir(folder).unwrap());
    let files = files.map(|entry| entry.unwrap().path());
    let files = files.filter(|path| path.extension().is_some_and(|ending| ending == "md"));
    // The changelog names files and commands as they were.
    files.filter(|path| !path.ends_with("CHANGELOG.md")).collect()
}

/// Returns the files of the repository. Works without git, in an archive of it.
fn repository_files() -> BTreeSet<String> {
    let (mut files, mut folders) = (BTreeSet::new(), vec![root().to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if !path.is_dir() {
                let relative = path.strip_prefix(root()).unwrap();
                files.insert(relative.to_str().unwrap().to_owned());
            } else if !path.ends_with("target") && !path.ends_with(".git") {
                folders.push(path);
            }
        }
    }
    files
}

/// Returns the numbers of the promises, which begin with `- **S07`.
fn promised() -> Vec<u32> {
    let text = read("SEMANTICS.md");
    let promises = text.lines().filter_map(|line| line.strip_prefix("- **S"));
    let number = |promise: &str| -> Option<u32> {
        promise.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
    };
    promises.filter_map(number).collect()
}

#[test]
fn every_promise_has_a_test_of_its_number_and_every_such_test_a_promise() {
    let numbers = promised();
    let promised: BTreeSet<u32> = numbers.iter().copied().collect();
    assert_eq!(numbers.len(), promised.len(), "a number is used twice: {numbers:?}");
    let mut files = Vec::new();
    sources(root(), &mut files);
    let texts: Vec<String> = files.iter().map(read).collect();
    let found = Numbered::find(texts.iter().map(String::as_str));
    let tested = found.numbers();
    assert!(promised.len() > 50);
    println!("the next free number of a promise is S{}", promised.last().unwrap() + 1);
    assert!(found.idle.is_empty(), "numbered functions that no test runs: {:?}", found.idle);
    assert_eq!(
        promised.difference(&tested).collect::<Vec<_>>(),
        [&0u32; 0],
        "promised, not tested"
    );
    assert_eq!(
        tested.difference(&promised).collect::<Vec<_>>(),
        [&0u32; 0],
        "tested, not promised"
    );
}

#[test]
fn every_file_that_the_documents_name_exists() {
    let tracked = repository_files();
    assert!(tracked.contains("README.md"), "{tracked:?}");
    for document in documents() {
        let missing = named::missing_files(&read(&document), &tracked);
        assert!(missing.is_empty(), "{}: {missing:#?}", document.display());
    }
}

#[test]
fn every_link_in_the_documents_leads_somewhere() {
    for document in documents() {
        let broken = linked::broken_links(&document);
        assert!(broken.is_empty(), "{}: {broken:?}", document.display());
    }
}

#[test]
fn the_contents_of_the_promises_list_every_section() {
    let text = read("SEMANTICS.md");
    let missing = linked::unlisted_headings(&text);
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn every_command_in_the_documents_exists() {
    let mut count = 0;
    for document in documents() {
        let text = read(&document);
        for command in named::commands(&text) {
            let problem = command.problem(root());
            assert_eq!(problem, None, "{}: {command:?}", document.display());
            count += 1;
        }
    }
    assert!(count > 20, "only {count} commands were found");
}

#[test]
fn every_source_file_is_part_of_a_crate() {
    let is_source = |file: &&String| file.ends_with(".rs") && !file.ends_with("build.rs");
    let tracked = repository_files();
    let (mut declared, mut parts) = (String::new(), BTreeSet::new());
    for file in tracked.iter().filter(|file| file.ends_with(".rs") || file.ends_with("Cargo.toml"))
    {
        declared.push_str(&read(file));
    }
    for line in declared.lines() {
        let line = line.trim_start().trim_start_matches("pub ").trim_start_matches("pub(crate) ");
        let module = line.strip_prefix("mod ").and_then(|rest| rest.split([';', ' ']).next());
        let path = line.split_once("path = \"").and_then(|(_, rest)| rest.split('"').next());
        let path = path.and_then(|path| path.rsplit('/').next()?.strip_suffix(".rs"));
        parts.extend(module.into_iter().chain(path).map(str::to_owned));
    }
    let found_by_cargo = |file: &str| {
        let folder = Path::new(file).parent().unwrap();
        let is_root = file.ends_with("/main.rs") || file.ends_with("src/lib.rs");
        let is_target = ["tests", "examples", "benches"].iter().any(|it| folder.ends_with(it));
        is_root || is_target
    };
    let orphans: Vec<_> = tracked
        .iter()
        .filter(is_source)
        .filter(|file| !found_by_cargo(file))
        .filter(|file| !parts.contains(Path::new(file).file_stem().unwrap().to_str().unwrap()))
        .collect();
    assert!(orphans.is_empty(), "no crate has these files, so their tests do not run: {orphans:?}");
}

#[test]
fn machines_use_no_clock_no_runtime_and_no_log() {
    let mut files = Vec::new();
    sources(&root().join("crates"), &mut files);
    let is_machine = |path: &&PathBuf| {
        let parts: Vec<_> = path.iter().collect();
        let inside = parts.iter().any(|part| *part == "machine") && !path.ends_with("tests.rs");
        path.ends_with("machine.rs") || inside
    };
    let machines: Vec<_> = files.iter().filter(is_machine).collect();
    assert!(machines.len() > 1);
    for path in machines {
        let text = read(path);
        let lines = text.lines().filter_map(|line| line.split("//").next());
        let code = lines.collect::<Vec<_>>().join("\n");
        for forbidden in
            ["now()", "tokio::", "tracing::", ".await", "async ", "info!(", "warn!(", "rand"]
        {
            assert!(!code.contains(forbidden), "{} has {forbidden}", path.display());
        }
    }
}

#[test]
fn the_readme_names_every_crate() {
    let readme = read("README.md");
    for entry in std::fs::read_dir(root().join("crates")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(readme.contains(&format!("`{name}`")), "{name}");
    }
}

/// Returns how many lines of 110 columns a text has when it is rendered: without the targets of
/// links, the fences of code and the lines below the headings of tables.
fn rendered_lines(text: &str) -> usize {
    let columns = |line: &str| {
        let mut shown = line.split("](");
        let first = shown.next().unwrap_or_default().chars().count();
        let rest =
            shown.map(|part| part.split_once(')').map_or(0, |(_, rest)| rest.chars().count()));
        first + rest.sum::<usize>()
    };
    let is_shown = |line: &&str| !line.starts_with("```") && !line.starts_with("|---");
    text.lines().filter(is_shown).map(|line| columns(line).div_ceil(110).max(1)).sum()
}

#[test]
fn the_readme_fits_on_a_screen_and_has_the_versions_of_the_manifest() {
    let readme = read("README.md");
    let lines = rendered_lines(&readme);
    assert!(lines <= 56, "the README has {lines} lines: move something to docs/tour.md");
    let manifest = read("Cargo.toml");
    let value = |key: &str| {
        let line = manifest.lines().find(|line| line.starts_with(&format!("{key} = ")));
        line.and_then(|line| line.split('"').nth(1)).unwrap_or_else(|| panic!("no {key}"))
    };
    for expected in [
        format!("Version {}", value("version")),
        format!("Rust {} or later", value("rust-version")),
    ] {
        assert!(readme.contains(&expected), "the README does not contain {expected:?}");
    }
}

#[test]
fn check_assumes_the_signals_that_are_installed_by_default() {
    let help = Command::new(command()).args(["check", "--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let names = Signal::DEFAULT.map(|signal| signal.to_string()).join(",");
    assert!(help.contains(&format!("[default: {names}]")), "{names} is not the default in {help}");
}

/// Returns the names of environment variables on a line that reads one.
fn variables(line: &str) -> impl Iterator<Item = &str> {
    let reads = ["var(", "var_os(", "is_set(", "seconds(", "env = ", "_VAR: ", "PREFIX: "];
    let is_name =
        |word: &&str| word.len() > 3 && word.chars().all(|c| c.is_ascii_uppercase() || c == '_');
    let quoted = line.split('"').skip(1).step_by(2);
    quoted.filter(is_name).filter(move |_| reads.iter().any(|read| line.contains(read)))
}

#[test]
fn every_environment_variable_is_documented() {
    let described = read("docs/environment.md");
    let mut files = Vec::new();
    sources(&root().join("crates"), &mut files);
    // The simulated world of adieu-cluster is test code among the sources.
    let is_tested = |path: &PathBuf| path.iter().any(|part| part == "tests" || part == "world");
    let is_testkit = |path: &PathBuf| path.iter().any(|part| part == "adieu-testkit");
    files.retain(|path| !is_tested(path) && !is_testkit(path));
    let texts: Vec<String> = files.iter().map(read).collect();
    let found: BTreeSet<&str> =
        texts.iter().flat_map(|text| text.lines()).flat_map(variables).collect();
    for known in ["ADIEU_CONFIG", "ADIEU__", "ADIEU_ADMIN_TOKEN", "PRESTOP_SECONDS", "HOSTNAME"] {
        assert!(found.contains(known), "{known} is not found: {found:?}");
    }
    let missing: Vec<_> =
        found.iter().filter(|name| !described.contains(&format!("`{name}"))).collect();
    assert!(missing.is_empty(), "not in docs/environment.md: {missing:?}");
}

/// Returns the first code block in this language.
pub(super) fn first_block<'a>(text: &'a str, language: &str) -> &'a str {
    let (_, rest) = text.split_once(&format!("```{language}")).unwrap();
    let (_, rest) = rest.split_once('\n').unwrap();
    rest.split_once("```").unwrap().0
}

#[test]
fn s316_the_first_programs_of_readme_and_guide_are_equal_and_hide_nothing() {
    let guide: String = read("crates/adieu/src/lib.rs")
        .lines()
        .filter_map(|line| line.strip_prefix("//!"))
        .map(|line| line.strip_prefix(' ').unwrap_or(line).to_owned() + "\n")
        .collect();
    let readme = read("README.md");
    let (first, rest) = guide.split_once("```\n").unwrap();
    let first = first.trim_start().lines().skip_while(|line| !line.starts_with("use "));
    let first: String = first.map(|line| line.to_owned() + "\n").collect();
    assert_eq!(first, first_block(&readme, "rust"));
    let second = first_block(rest, "no_run");
    for program in [&*first, second] {
        assert!(program.contains("fn main()"), "{program}");
        assert!(!program.lines().any(|line| line.starts_with('#') && !line.starts_with("#[")));
    }
}

/// Returns the lines of a document's code that rustdoc hides, and that a page with the document shows.
fn hidden_lines(text: &str) -> impl Iterator<Item = &str> {
    let mut is_rust = false;
    text.lines().filter(move |line| {
        if let Some(language) = line.strip_prefix("```") {
            is_rust = language.starts_with("rust");
        }
        is_rust && line.trim_start().starts_with("# ")
    })
}

#[test]
fn the_code_of_the_documents_compiles_as_it_is_shown() {
    assert_eq!(
        hidden_lines("# A\n```rust\n# use x;\n```\n# B\n").collect::<Vec<_>>(),
        ["# use x;"]
    );
    for document in documents() {
        let text = read(&document);
        let hidden: Vec<_> = hidden_lines(&text).collect();
        assert!(hidden.is_empty(), "{}: {hidden:?}", document.display());
    }
}

/// Replaces a text that occurs once.
fn replaced(text: &str, from: &str, to: &str) -> String {
    assert_eq!(text.matches(from).count(), 1, "{from}");
    text.replace(from, to)
}

/// Builds a program in a separate project, with the dependencies that are shown, and adieu from this
/// repository in place of its address. Downloads nothing. Dependencies that the tests have built with the
/// same features are not built again, so the project has their target folder and profile.
fn build(program: &str, dependencies: &str) -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let project = tempfile::tempdir().unwrap();
    let path = format!("path = {:?}", root().join("crates/adieu"));
    let dependencies = replaced(dependencies, "path = \"../adieu/crates/adieu\"", &path);
    let manifest = format!(
        "[package]\nname = \"readme\"\nedition = \"2024\"\n\n{dependencies}\n[workspace]\n\
         [profile.dev]\ndebug = \"line-tables-only\"\n"
    );
    std::fs::create_dir_all(project.path().join("src")).unwrap();
    std::fs::write(project.path().join("Cargo.toml"), manifest).unwrap();
    std::fs::write(project.path().join("src/main.rs"), program).unwrap();
    std::fs::copy(root().join("Cargo.lock"), project.path().join("Cargo.lock")).unwrap();
    let built = Command::new(env!("CARGO"))
        .args(["build", "--offline", "--quiet", "--target-dir"])
        .arg(target)
        .current_dir(project.path())
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    target.join("debug/readme")
}

/// Returns the path of the command `adieu`. Builds it if the tests of its crate have not.
pub(super) fn command() -> PathBuf {
    let program = Path::new(env!("CARGO_BIN_EXE_victim")).with_file_name("adieu");
    if !program.exists() {
        let built = Command::new(env!("CARGO"))
            .args(["build", "--offline", "--quiet", "-p", "adieu-cli"])
            .current_dir(root())
            .status();
        assert!(built.unwrap().success());
    }
    program
}

/// Returns the lines from the beginning of the shutdown on, each with its event and its phase, and whether
/// it took at least the four seconds that a lame duck takes.
fn events(log: &str) -> Vec<(String, Option<String>, bool)> {
    let lines = log.lines().filter_map(|line| line.split_once(' '));
    let lines =
        lines.map(|(_, line)| line).skip_while(|line| !line.starts_with("shutdown initiated"));
    let value = |line: &str, key: &str| {
        line.split(' ').find_map(|field| field.strip_prefix(key)).map(str::to_owned)
    };
    let is_long = |took: String| {
        let seconds = took.strip_suffix('s').and_then(|number| number.parse::<f64>().ok());
        seconds.is_some_and(|seconds| seconds >= 4.0)
    };
    let events = lines.map(|line| {
        let event = line.split("  ").next().unwrap_or_default().to_owned();
        (event, value(line, "phase="), value(line, "took=").is_some_and(is_long))
    });
    events.collect()
}

#[test]
fn s316_the_program_of_the_readme_builds_serves_and_stops() {
    let readme = read("README.md");
    let (program, dependencies) = (first_block(&readme, "rust"), first_block(&readme, "toml"));
    build(program, dependencies);

    // The same program with other ports, because the shown ones may be in use.
    let free = || {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().to_string()
    };
    let (service, admin) = (free(), free());
    let program = replaced(program, "0.0.0.0:8080", &service);
    let bound = format!("Admin::new(&shutdown).bind({admin:?})?.start()");
    let program = replaced(&program, "Admin::new(&shutdown).start()", &bound);
    let program = build(&program, dependencies);

    let folder = tempfile::tempdir().unwrap();
    let mut program = Command::new(program);
    // The grace period of the transcript in docs/tour.md.
    program.current_dir(folder.path()).env("TERMINATION_GRACE_PERIOD_SECONDS", "30");
    let mut served = Process::start(&mut program);
    let run = |program: &Path, args: &[&str]| {
        let output = Command::new(program).args(args).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let url = format!("http://{service}/");
    let curl = ["-sS", "--retry", "50", "--retry-delay", "0", "--retry-connrefused", &url];
    assert_eq!(run(Path::new("curl"), &curl), (Some(0), "hello".to_owned()));
    let (code, status) = run(&command(), &["status", &admin]);
    assert_eq!(code, Some(0), "{status}");
    assert!(status.contains("ready"), "{status}");
    served.signal(Signal::TERM);
    let ended = served.wait();
    assert_eq!(ended.status.code(), Some(0), "{ended:#?}");
    let close = ended.report.as_ref().unwrap().phase("close-resources").unwrap();
    assert_eq!(close.task("close log").unwrap().outcome.to_string(), "finished");
    assert!(folder.path().join("orders.log").exists());
    assert_eq!(
        events(first_block(&read("docs/tour.md"), "text")),
        events(&ended.stderr),
        "docs/tour.md shows other lines than the program logs: {}",
        ended.stderr
    );
}
