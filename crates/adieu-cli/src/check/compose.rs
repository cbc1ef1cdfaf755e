//! Compose files: how each service is stopped.

mod dockerfile;
mod images;

use super::env_file::Dialect;
use super::environment::Environment;
use super::input::{Manifest, Source};
use super::place::{Finding, Level, Wrong};
use super::script::{self, Word};
use super::stop_signal::StopSignal;
use super::tree::{At, Tree};
use super::workload::{Grace, Supervisor, Workload};
use super::{effects, launch, spans, yaml};

const RENDER: &str = "judge the whole: docker compose config | adieu check --manifest -";

/// Names under which compose looks for a file; and with which a second one is merged into it.
const NAMES: [&str; 4] =
    ["compose.yaml", "compose.yml", "docker-compose.yml", "docker-compose.yaml"];

/// The documents that describe the services together, the one that counts most first.
struct Files<'a> {
    documents: Vec<At<'a>>,
}

/// Whether a document is one of these.
pub(crate) fn is_one(document: &At<'_>) -> bool {
    document.get("services").is_some_and(|services| services.is_map())
}

/// Takes all services but those that run a known image of another vendor, which are named.
pub(crate) fn read(
    document: &At<'_>,
    source: &Source<'_>,
    into: &mut Manifest,
) -> Result<(), Wrong> {
    let overriding = overriding(source)?;
    let over = overriding.as_ref().and_then(|(tree, _)| tree.documents().next());
    if let Some((_, text)) = overriding.as_ref().filter(|(_, text)| has_tags(text)) {
        let file = text.lines().position(has_tags).unwrap_or_default() + 1;
        let problem = "a tag of compose in the file that is merged is not followed";
        let place = over.as_ref().map_or(document.place(), At::place);
        let place = super::place::Place { line: file, ..place };
        into.add(Workload::unknown("override", "", place, problem, RENDER))?;
    }
    let files = Files { documents: over.into_iter().chain([document.clone()]).collect() };
    let all = files.services();
    let is_other = |name: &str, layers: &[At<'_>]| {
        let has = |key: &str| layers.iter().any(|layer| layer.get(key).is_some());
        let is_ours = has("build") || has("stop_grace_period");
        !is_ours && source.only != Some(name) && layers.iter().any(images::is_other)
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
        into.add(read_service(name, layers, &files, source)?)?;
    }
    for document in &files.documents {
        if let Some(include) = document.get("include") {
            let problem = "the services in these files are not read";
            into.add(Workload::unknown("include", "", include.place(), problem, RENDER))?;
        }
    }
    Ok(())
}

/// The file that compose merges into this one without being asked, and its text.
fn overriding(source: &Source<'_>) -> Result<Option<(Tree, String)>, Wrong> {
    let name = source.path.and_then(|path| path.file_name()).and_then(|name| name.to_str());
    let Some(name) = name.filter(|name| NAMES.contains(name)) else { return Ok(None) };
    let stem = name.split('.').next().unwrap_or(name);
    let found = ["yaml", "yml"]
        .iter()
        .find_map(|ending| source.beside(&format!("{stem}.override.{ending}")));
    let Some((file, text)) = found else { return Ok(None) };
    let tree = yaml::parse(&text).map_err(|mut wrong| {
        wrong.place.file = Some(file.clone());
        wrong
    })?;
    Ok(Some((tree.of_file(file), text)))
}

fn has_tags(text: &str) -> bool {
    text.contains("!reset") || text.contains("!override")
}

fn read_service<'a>(
    name: &str,
    layers: &[At<'a>],
    files: &Files<'a>,
    source: &Source<'_>,
) -> Result<Workload, Wrong> {
    if let Some(odd) = layers.iter().find(|layer| !layer.is_map()) {
        return Err(odd.wrong("must be a map of keys, such as image and stop_grace_period"));
    }
    let place = layers.last().map_or_else(super::place::Place::start, At::place);
    let mut workload = Workload::new(Supervisor::Compose, "service", name, place);
    let mut layers = layers.to_vec();
    // What a service extends in the same file says what it does not say itself.
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
    let get = |key: &str| layers.iter().find_map(|layer| layer.get(key));
    if let Some(key) = get("stop_grace_period") {
        let text = key.text().ok_or_else(|| key.wrong("must be a duration such as 30s"))?;
        if text.contains('$') {
            let problem = format!("which value {text} has cannot be seen here");
            workload.hide_grace(key.place(), problem, RENDER);
        } else {
            let span = spans::compose(text).map_err(|problem| key.wrong(problem))?;
            workload.grace = Grace::said(Some(span), key.place());
        }
    }
    let image = get("build").and_then(|build| build.get("dockerfile_inline"));
    let image = image.and_then(|inline| Some((dockerfile::read(inline.text()?), inline.place())));
    let mut environment = Environment::default();
    if let Some((image, place)) = &image {
        image.variables(&mut environment, place);
    }
    let signal = get("stop_signal").and_then(|at| Some((at.text()?.to_owned(), at.place())));
    let of_image =
        || image.as_ref().and_then(|(image, at)| Some((image.signal.clone()?, at.clone())));
    if let Some((text, place)) = signal.or_else(of_image) {
        workload.signals.push(StopSignal { text, place, fix: "stop_signal: SIGTERM".into() });
    }
    add_variables(&layers, source, &mut environment);
    add_files(&layers, files, source, &mut environment);
    let (entrypoint, command) = (get("entrypoint"), get("command"));
    let mut all: Vec<Word> = entrypoint.iter().chain(command.iter()).flat_map(words).collect();
    let mut place = entrypoint.as_ref().or(command.as_ref()).map(At::place);
    // An entrypoint in the service replaces both of the image; a command replaces the image's.
    if let Some((image, at)) = image.filter(|_| entrypoint.is_none()) {
        let rest = if command.is_some() { all } else { image.command };
        all = image.entrypoint.into_iter().chain(rest).collect();
        place = place.or(Some(at));
    }
    if let Some(place) = place {
        let front = launch::front(&all, &mut environment, &place);
        workload.findings.extend(front.finding(place));
    }
    for hook in get("pre_stop").map(|hooks| hooks.items()).unwrap_or_default() {
        let command = hook.get("command").as_ref().map(words).unwrap_or_default();
        effects::before_signal(&command, &hook.place(), "no pre_stop", &mut workload);
    }
    environment.apply(&mut workload);
    Ok(workload)
}

/// A dollar sign is written twice where compose is not to replace anything. What it replaces is
/// left as a variable, which no shell knows here.
fn words(key: &At<'_>) -> Vec<Word> {
    let literal = |text: &str| Word::known(text.replace("$$", "$"));
    match key.text() {
        Some(text) => script::split(text).iter().map(|word| literal(word)).collect(),
        None => key.texts().into_iter().map(|text| text.map_or(Word::of(None), literal)).collect(),
    }
}

/// The environment, as a map or as a list of `NAME=value`; before it, that of the files.
fn add_variables(layers: &[At<'_>], source: &Source<'_>, environment: &mut Environment) {
    for layer in layers.iter().rev() {
        let Some(files) = layer.get("env_file") else { continue };
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
                // One that need not be there sets nothing if it is not.
                None if file.text_of("required") == Some("false") && source.path.is_some() => {}
                None => environment.add_unseen(file.place()),
            }
        }
    }
    for layer in layers.iter().rev() {
        let Some(variables) = layer.get("environment") else { continue };
        for item in variables.items() {
            match item.text().map(|pair| (pair, pair.split_once('='))) {
                Some((_, Some((name, value)))) => {
                    environment.set_marked(name, value, '$', item.place());
                }
                Some((name, None)) => environment.set_unseen(name, item.place()),
                None => environment.add_unseen(item.place()),
            }
        }
        for (name, at) in variables.entries() {
            match at.text().filter(|text| !text.is_empty()) {
                Some(value) => environment.set_marked(name, value, '$', at.place()),
                None => environment.set_unseen(name, at.place()),
            }
        }
    }
}

/// The files that the service has: configs, secrets, and files that are mounted from beside.
fn add_files(
    layers: &[At<'_>],
    files: &Files<'_>,
    source: &Source<'_>,
    environment: &mut Environment,
) {
    for (key, folder) in [("configs", ""), ("secrets", "/run/secrets")] {
        let all = layers.iter().rev().filter_map(|layer| layer.get(key));
        for one in all.flat_map(|list| list.items()) {
            let Some(name) = one.text().or_else(|| one.text_of("source")) else { continue };
            let target = one.text_of("target").unwrap_or(name);
            let path =
                if target.starts_with('/') { target.into() } else { format!("{folder}/{target}") };
            let found = files.documents.iter().find_map(|file| file.find(&[key, name]));
            let content = found.as_ref().and_then(|found| found.text_of("content"));
            // Compose replaces what follows a dollar sign.
            let content = content.filter(|text| !text.replace("$$", "").contains('$'));
            let beside = || {
                let file = found.as_ref()?.text_of("file")?;
                source.beside(file).map(|(_, text)| text)
            };
            let text = content.map(|text| text.replace("$$", "$")).or_else(beside);
            environment.mount(path, text, one.place());
        }
    }
    let volumes = layers.iter().rev().filter_map(|layer| layer.get("volumes"));
    for volume in volumes.flat_map(|list| list.items()) {
        let short = volume.text().and_then(|text| {
            let mut parts = text.split(':');
            Some((parts.next()?, parts.next()?))
        });
        let long = || Some((volume.text_of("source")?, volume.text_of("target")?));
        if let Some((from, to)) = short.or_else(long) {
            let text = source.beside(from).map(|(_, text)| text);
            environment.mount(to, text, volume.place());
        }
    }
}

// === impl Files ===

impl<'a> Files<'a> {
    /// The services by name, each with what the documents say about it.
    fn services(&self) -> Vec<(&'a str, Vec<At<'a>>)> {
        let mut all: Vec<(&str, Vec<At<'_>>)> = Vec::new();
        for document in self.documents.iter().rev() {
            for (name, _) in document.get("services").map(|all| all.entries()).unwrap_or_default() {
                if all.iter().all(|(known, _)| *known != name) {
                    all.push((name, self.service(name)));
                }
            }
        }
        all
    }

    fn service(&self, name: &str) -> Vec<At<'a>> {
        self.documents
            .iter()
            .filter_map(|document| {
                let services = document.get("services")?;
                services.entries().into_iter().find(|(found, _)| *found == name).map(|(_, at)| at)
            })
            .collect()
    }
}
