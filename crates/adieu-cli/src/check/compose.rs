//! Compose files: how each service is stopped.

mod dockerfile;
mod merging;
mod updaters;

use std::path::Path;

use super::env_file::Dialect;
use super::environment::Environment;
use super::input::{MOST_WORKLOADS, Manifest, Source};
use super::place::{Finding, Fix, InputError, Level};
use super::script::{self, Word};
use super::signs::Sign;
use super::stop_signal::StopSignal;
use super::supervisor::{Grace, Supervisor};
use super::tree::{Merge, Node, Tree};
use super::workload::Workload;
use super::{effects, images, keys, launch, run_line, spans, yaml};

const RENDER: &str = "judge the whole: docker compose config | adieu check --manifest -";

/// Names under which compose looks for a file.
const NAMES: [&str; 4] =
    ["compose.yaml", "compose.yml", "docker-compose.yml", "docker-compose.yaml"];

/// Names under which compose looks for a file to merge into another. The name of that other file does
/// not matter. The first one that exists counts.
const OVERRIDES: [&str; 4] = [
    "compose.override.yml",
    "compose.override.yaml",
    "docker-compose.override.yml",
    "docker-compose.override.yaml",
];

/// The documents that describe the services together, the one that counts most first.
struct Files<'a> {
    documents: Vec<Node<'a>>,
}

/// How deep files may include files.
const DEEPEST: usize = 4;

/// Returns whether a document is one of these. It may only include others.
pub(crate) fn is_one(document: &Node<'_>) -> bool {
    let services = document.get("services");
    let includes = || document.get("include").is_some_and(|include| !include.items().is_empty());
    services.is_some_and(|services| services.is_map()) || includes()
}

/// Adds all services. Services that run a known image of another vendor are listed as skipped.
pub(crate) fn read(
    document: &Node<'_>,
    source: &Source<'_>,
    into: &mut Manifest,
) -> Result<(), InputError> {
    let own = source.path.and_then(|path| path.file_name()).and_then(|name| name.to_str());
    let overriding = match (merging::named(source), own) {
        (None, _) => overriding(source)?,
        // Then nothing else is merged.
        (Some((Some(files), _)), Some(own)) if files.trim_start_matches("./") == own => None,
        (Some((_, place)), _) => {
            let problem = "COMPOSE_FILE names the files that compose merges: they are not read";
            return into.add(Workload::unknown("project", "", place, problem, RENDER));
        }
    };
    let over = overriding.as_ref().and_then(|tree| tree.documents().next());
    let documents = over.into_iter().chain([document.clone()]).collect();
    read_files(Files { documents }, source, into, DEEPEST)
}

/// Adds the services of documents that are merged, and of the files that they include.
fn read_files(
    files: Files<'_>,
    source: &Source<'_>,
    into: &mut Manifest,
    depth: usize,
) -> Result<(), InputError> {
    if let Some(document) = files.documents.iter().find(|document| !merging::is_followed(document))
    {
        let problem = "a tag of compose in this file is not followed";
        return into.add(Workload::unknown("file", "", document.place(), problem, RENDER));
    }
    let services = files.documents.iter().filter_map(|document| document.get("services"));
    if let Some(many) = services.into_iter().find(|all| all.entries().len() > MOST_WORKLOADS) {
        return Err(
            many.error(format!("more than {MOST_WORKLOADS} services: give them one by one"))
        );
    }
    let all = files.services();
    let is_other = |name: &str, layers: &[Node<'_>]| {
        let has = |key: &str| layers.iter().any(|layer| layer.get(key).is_some());
        let is_ours = has("build") || has("stop_grace_period");
        !is_ours
            && source.only != Some(name)
            && layers.iter().filter_map(|layer| layer.text_of("image")).any(images::is_other)
    };
    let only_others = all.iter().all(|(name, layers)| is_other(name, layers));
    for (name, layers) in &all {
        let Some(service) = layers.last() else { continue };
        if !only_others && is_other(name, layers) {
            let image = service.text_of("image").unwrap_or_default();
            let what = format!("service {name} (image {image}; --only {name} judges it)");
            into.skip(service.place(), what);
            continue;
        }
        let mut workload = read_service(name, layers, &files, source)?;
        workload.other_stops.extend(updaters::of(&all, layers));
        workload.findings.extend(updaters::commands(&all, name, layers));
        into.add(workload)?;
    }
    for document in &files.documents {
        let Some(include) = document.get("include") else { continue };
        let items = include.items();
        // A value that is not a list is not understood.
        let items = if items.is_empty() { vec![include] } else { items };
        for item in items {
            read_included(&item, source, into, depth)?;
        }
    }
    Ok(())
}

/// Adds the services of an included file, which has its own folder. A file that cannot be read makes the
/// answer unknown.
fn read_included(
    item: &Node<'_>,
    source: &Source<'_>,
    into: &mut Manifest,
    depth: usize,
) -> Result<(), InputError> {
    let is_plain = item.get("project_directory").is_none() && item.get("env_file").is_none();
    let path = item.text().or_else(|| item.text_of("path")).filter(|_| is_plain);
    let unread = || {
        let problem = "the services in this file are not read";
        Workload::unknown("include", "", item.place(), problem, RENDER)
    };
    let (Some((file, text)), Some(depth)) =
        (path.and_then(|path| source.beside(path)), depth.checked_sub(1))
    else {
        return into.add(unread());
    };
    let tree = parse(&text, &file)?;
    let inner = Source { text: &text, path: Some(Path::new(&file)), ..*source };
    let documents: Vec<_> = tree.documents().collect();
    match documents.as_slice() {
        [document] if is_one(document) => read_files(Files { documents }, &inner, into, depth),
        _ => into.add(unread()),
    }
}

fn parse(text: &str, file: &str) -> Result<Tree, InputError> {
    let tree = yaml::parse(text).map_err(|mut wrong| {
        wrong.place.file = Some(file.to_owned());
        wrong
    })?;
    Ok(tree.of_file(file.to_owned()))
}

/// Returns the file that compose merges into this one automatically.
fn overriding(source: &Source<'_>) -> Result<Option<Tree>, InputError> {
    let name = source.path.and_then(|path| path.file_name()).and_then(|name| name.to_str());
    if !name.is_some_and(|name| NAMES.contains(&name)) {
        return Ok(None);
    }
    let found = OVERRIDES.iter().find_map(|name| source.beside(name));
    found.map(|(file, text)| parse(&text, &file)).transpose()
}

fn read_service<'a>(
    name: &str,
    layers: &[Node<'a>],
    files: &Files<'a>,
    source: &Source<'_>,
) -> Result<Workload, InputError> {
    if let Some(odd) = layers.iter().find(|layer| !layer.is_map()) {
        return Err(odd.error("must be a map of keys, such as image and stop_grace_period"));
    }
    let place = layers.last().map_or_else(super::place::Place::start, Node::place);
    let mut workload = Workload::new(Supervisor::Compose, "service", name, place);
    let layers = extended(layers, files, &mut workload);
    let get = |key: &str| merging::values(&layers, key).into_iter().next();
    read_grace(get("stop_grace_period"), &mut workload)?;
    let image = dockerfile::of(&merging::values(&layers, "build"), source);
    let mut environment = Environment::default();
    if let Some(image) = &image {
        image.set_variables(&mut environment);
    }
    let signal = get("stop_signal").and_then(|at| {
        let (text, fix) = (at.text()?.to_owned(), "stop_signal: SIGTERM".into());
        Some(StopSignal { text, place: at.place(), fix })
    });
    workload.signals.extend(signal.or_else(|| image.as_ref()?.signal.clone()));
    add_platform(&layers, &mut workload);
    // Whether the image keeps it as standard input cannot be seen.
    if get("tty").is_some_and(|tty| tty.text() != Some("false")) {
        workload.signs.terminal = Sign::Unseen;
    }
    if let Some(folder) = get("working_dir").as_ref().and_then(Node::text) {
        environment.set_working_folder(folder);
    }
    add_variables(&layers, source, &mut environment);
    add_files(&layers, files, source, &mut environment);
    read_command(&layers, image, &mut environment, &mut workload);
    for hook in get("pre_stop").map(|hooks| hooks.items()).unwrap_or_default() {
        let command = hook.get("command").as_ref().map(words).unwrap_or_default();
        effects::before_signal(&command, &hook.place(), "no pre_stop", &mut workload);
    }
    environment.apply(&mut workload);
    for layer in &layers {
        workload.findings.extend(keys::unknown(layer, &keys::compose::SERVICE));
    }
    for document in &files.documents {
        workload.findings.extend(keys::unknown(document, &keys::compose::FILE));
    }
    Ok(workload)
}

/// Returns the layers of a service, and of those that it extends.
fn extended<'a>(layers: &[Node<'a>], files: &Files<'a>, workload: &mut Workload) -> Vec<Node<'a>> {
    let mut layers = layers.to_vec();
    // The service that it extends in the same file sets the keys that it does not set itself.
    let mut at = 0;
    while let Some(layer) = layers.get(at).cloned() {
        at += 1;
        let Some(extends) = layer.get("extends") else { continue };
        let base = extends.text().or_else(|| extends.text_of("service"));
        let base = base.filter(|_| extends.get("file").is_none() && layers.len() < 16);
        let base: Vec<_> = base.map(|base| files.service(base)).unwrap_or_default();
        if base.is_empty() {
            let problem = "what it extends is not read";
            let finding = Finding::new(Level::Unknown, extends.place(), problem, RENDER);
            workload.findings.push(finding);
        }
        layers.extend(base);
    }
    layers
}

fn read_grace(key: Option<Node<'_>>, workload: &mut Workload) -> Result<(), InputError> {
    let Some(key) = key else { return Ok(()) };
    let text = key.text().ok_or_else(|| key.error("must be a duration such as 30s"))?;
    if text.contains('$') {
        let problem = format!("which value {text} has cannot be seen here");
        workload.hide_grace(key.place(), problem, RENDER);
    } else {
        let span = spans::compose(text).map_err(|problem| key.error(problem))?;
        workload.grace = Grace::said(Some(span), key.place());
    }
    Ok(())
}

/// Adds the findings about what the container shares, and about its limits.
fn add_platform(layers: &[Node<'_>], workload: &mut Workload) {
    let get = |key: &str| merging::values(layers, key).into_iter().next();
    let platform = ["platform", "isolation"].iter().find_map(|key| get(key));
    if let Some(at) = platform.filter(|at| at.text().is_some_and(run_line::is_windows)) {
        workload.findings.push(run_line::on_windows(at.place()));
    }
    if let Some(at) =
        get("runtime").filter(|at| at.text().is_some_and(run_line::is_runtime_of_windows))
    {
        workload.findings.push(run_line::on_windows(at.place()));
    }
    if let Some(at) = get("pid").filter(|at| at.text().is_some_and(run_line::is_of_other)) {
        workload.findings.push(run_line::ends_with_other(at.place()));
    }
    if let Some(at) = get("ulimits").and_then(|limits| limits.get("cpu")) {
        let fix = Fix::Line("no cpu in ulimits".into());
        workload.findings.push(launch::limits_processor_time(at.place()).fixed_by(fix));
    }
}

/// Reads what the container runs.
fn read_command(
    layers: &[Node<'_>],
    image: Option<dockerfile::Dockerfile>,
    environment: &mut Environment,
    workload: &mut Workload,
) {
    let get = |key: &str| merging::values(layers, key).into_iter().next();
    let (entrypoint, command) = (get("entrypoint"), get("command"));
    let mut all: Vec<Word> = entrypoint.iter().chain(command.iter()).flat_map(words).collect();
    let mut place = entrypoint.as_ref().or(command.as_ref()).map(Node::place);
    // An entrypoint in the service replaces both of the image; a command replaces the image's.
    if let Some(image) = image.filter(|_| entrypoint.is_none()) {
        let rest = if command.is_some() { all } else { image.command };
        all = image.entrypoint.into_iter().chain(rest).collect();
        place = place.or(image.started_at);
    }
    if let Some(place) = place {
        let front = launch::front(&all, environment, &place);
        workload.findings.extend(front.finding(place));
    }
}

/// Returns the words of a command. Two dollar signs stand for one. A variable that compose replaces stays
/// a variable, whose value is not known here.
fn words(key: &Node<'_>) -> Vec<Word> {
    let literal = |text: &str| Word::known(text.replace("$$", "$"));
    match key.text() {
        Some(text) => script::split(text).iter().map(|word| literal(word)).collect(),
        None => key.texts().into_iter().map(|text| text.map_or(Word::of(None), literal)).collect(),
    }
}

/// The environment, as a map or as a list of `NAME=value`; before it, that of the files.
fn add_variables(layers: &[Node<'_>], source: &Source<'_>, environment: &mut Environment) {
    for files in merging::values(layers, "env_file").into_iter().rev() {
        let listed = files.items();
        let all = if listed.is_empty() { vec![files.clone()] } else { listed };
        for file in all {
            let name = file.text().or_else(|| file.text_of("path"));
            let dialect = match file.text_of("format") {
                Some("raw") => Dialect::Docker,
                _ => Dialect::Compose,
            };
            match name.and_then(|name| source.beside(name)) {
                Some((path, text)) => environment.add_file(&text, &path, dialect),
                // An optional file that is missing here may exist where compose runs.
                None => environment.add_unseen(file.place()),
            }
        }
    }
    for variables in merging::values(layers, "environment").into_iter().rev() {
        for item in variables.items() {
            match item.text().map(|pair| (pair, pair.split_once('='))) {
                // Compose fills in the name.
                Some((name, None)) | Some((_, Some((name, _)))) if name.contains('$') => {
                    environment.add_unseen(item.place());
                }
                Some((_, Some((name, value)))) => {
                    environment.set_marked(name, value, '$', item.place());
                }
                Some((name, None)) => environment.set_unseen(name, item.place()),
                None => environment.add_unseen(item.place()),
            }
        }
        for (name, at) in variables.entries() {
            match at.text().filter(|text| !text.is_empty()) {
                _ if at.merge() == Some(Merge::Reset) => environment.remove(name),
                // Compose computes the number, and writes it in another way.
                _ if at.is_octal() => environment.set_unseen(name, at.place()),
                Some(value) => environment.set_marked(name, value, '$', at.place()),
                None => environment.set_unseen(name, at.place()),
            }
        }
    }
}

/// The files that the service has: configs, secrets, and files that are mounted from beside.
fn add_files(
    layers: &[Node<'_>],
    files: &Files<'_>,
    source: &Source<'_>,
    environment: &mut Environment,
) {
    for (key, folder) in [("configs", ""), ("secrets", "/run/secrets")] {
        let all = merging::values(layers, key).into_iter().rev();
        for one in all.flat_map(|list| list.items()) {
            let Some(name) = one.text().or_else(|| one.text_of("source")) else { continue };
            let target = one.text_of("target").unwrap_or(name);
            let path =
                if target.starts_with('/') { target.into() } else { format!("{folder}/{target}") };
            let found = files.documents.iter().find_map(|file| file.find(&[key, name]));
            let content = found.as_ref().and_then(|found| found.text_of("content"));
            // Compose replaces the variable after a dollar sign.
            let content = content.filter(|text| !text.replace("$$", "").contains('$'));
            let beside = || {
                let file = found.as_ref()?.text_of("file")?;
                source.beside(file).map(|(_, text)| text)
            };
            let text = content.map(|text| text.replace("$$", "$")).or_else(beside);
            environment.mount(&path, text, one.place());
        }
    }
    let volumes = merging::values(layers, "volumes").into_iter().rev();
    for volume in volumes.flat_map(|list| list.items()) {
        let short = volume.text().and_then(|text| {
            let mut parts = text.split(':');
            Some((parts.next()?, parts.next()?))
        });
        let long = || Some((volume.text_of("source")?, volume.text_of("target")?));
        let Some((from, to)) = short.or_else(long) else { continue };
        match source.folder_beside(from) {
            Some(folder) => environment.mount_folder(to, folder, volume.place()),
            None => {
                let text = source.beside(from).map(|(_, text)| text);
                environment.mount(to, text, volume.place());
            }
        }
    }
}

// === impl Files ===

impl<'a> Files<'a> {
    /// Returns the services by name, each with its definitions in the documents.
    fn services(&self) -> Vec<(&'a str, Vec<Node<'a>>)> {
        let mut all: Vec<(&str, Vec<Node<'_>>)> = Vec::new();
        for document in self.documents.iter().rev() {
            for (name, _) in document.get("services").map(|all| all.entries()).unwrap_or_default() {
                if all.iter().all(|(known, _)| *known != name) {
                    all.push((name, self.service(name)));
                }
            }
        }
        all
    }

    fn service(&self, name: &str) -> Vec<Node<'a>> {
        let services = self.documents.iter().filter_map(|document| document.get("services"));
        merging::values(&services.collect::<Vec<_>>(), name)
    }
}
