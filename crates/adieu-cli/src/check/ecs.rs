//! Task definitions of Amazon ECS, by themselves and in templates of CloudFormation.

use std::time::Duration;

use super::environment::Environment;
use super::input::{Manifest, Source};
use super::place::{Finding, Fix, InputError, Level};
use super::proxies;
use super::script::Word;
use super::signs::Sign;
use super::supervisor::{Grace, Supervisor};
use super::tree::{self, Node};
use super::workload::{Format, Workload};
use super::{images, keys, launch, run_line};

const RESOURCE: &str = "AWS::ECS::TaskDefinition";

pub(crate) fn is_one(document: &Node<'_>) -> bool {
    containers(document).is_some()
        || document.get("taskDefinition").is_some()
        || document.get("Resources").is_some()
}

pub(crate) fn read(
    document: &Node<'_>,
    source: &Source<'_>,
    into: &mut Manifest,
) -> Result<(), InputError> {
    if let Some(resources) = document.get("Resources") {
        for (name, resource) in resources.entries() {
            match resource.get("Properties") {
                Some(task) if resource.text_of("Type") == Some(RESOURCE) => {
                    read_task(name, &task, source, into)?;
                }
                _ => into.skip(resource.place(), format!("resource {name}")),
            }
        }
        return Ok(());
    }
    let task = document.get("taskDefinition").unwrap_or_else(|| document.clone());
    let name = get(&task, "family").and_then(|family| family.text()).unwrap_or(source.name);
    read_task(name, &task, source, into)
}

/// CloudFormation writes the same keys with a capital letter.
fn get<'a>(at: &Node<'a>, key: &str) -> Option<Node<'a>> {
    let capital = key[..1].to_uppercase() + &key[1..];
    at.get(key).or_else(|| at.get(&capital))
}

fn text<'a>(at: &Node<'a>, key: &str) -> Option<&'a str> {
    get(at, key)?.text()
}

fn containers<'a>(task: &Node<'a>) -> Option<Node<'a>> {
    get(task, "containerDefinitions")
}

/// Refuses keys in the case of the other format, which ECS and CloudFormation refuse, too.
fn check_case(task: &Node<'_>, container: &Node<'_>) -> Result<(), InputError> {
    let is_template = task.get("ContainerDefinitions").is_some();
    let is_other = |key: &&str| {
        let first = key.chars().next().filter(|first| first.is_ascii_alphabetic());
        first.is_some_and(|first| first.is_ascii_uppercase() != is_template)
    };
    let wrong = container.entries().into_iter().find(|(key, _)| is_other(key));
    let Some((key, at)) = wrong else { return Ok(()) };
    Err(at.error(match is_template {
        true => format!("CloudFormation writes keys with a capital letter, and refuses {key}"),
        false => format!("a task definition writes keys with a small letter, and refuses {key}"),
    }))
}

fn read_task(
    name: &str,
    task: &Node<'_>,
    source: &Source<'_>,
    into: &mut Manifest,
) -> Result<(), InputError> {
    let all = containers(task).map(|containers| containers.items()).unwrap_or_default();
    let is_wanted = |container: &&Node<'_>| {
        source.only.is_some_and(|only| text(container, "name") == Some(only))
    };
    let is_named = |container: &&Node<'_>| text(container, "name") == Some(name);
    let is_own = |container: &&Node<'_>| {
        let field = |key: &str| text(container, key).unwrap_or_default();
        !proxies::is_helper(field("name"), field("image")) && !images::is_other(field("image"))
    };
    let own = all.iter().filter(is_own).count();
    let chosen = all.iter().find(is_wanted).or_else(|| all.iter().find(is_named));
    let Some(container) = chosen.or_else(|| all.iter().find(is_own)).or(all.first()) else {
        return Err(task.error("there are no containers: add the one to judge"));
    };
    let mut workload = read_container(name, task, container)?;
    let waits_for = get(container, "dependsOn").map(|on| on.items()).unwrap_or_default();
    let others = all.iter().filter(|other| text(other, "name") != text(container, "name"));
    let (mut judged, mut silent) = (Vec::new(), Vec::new());
    for other in others {
        let other_name = text(other, "name").unwrap_or("without a name");
        let is_waited_for =
            waits_for.iter().any(|on| text(on, "containerName") == Some(other_name));
        let image = text(other, "image").unwrap_or_default();
        if !is_waited_for && proxies::is_one(other_name, image) {
            let advice = format!("write dependsOn: {other_name}, so that it is stopped later");
            workload.findings.push(proxies::ends_first(other_name, other.place(), &advice));
        }
        // A process of the same library has a shutdown of its own.
        if environment(other).is_of_adieu() && source.only.is_none() {
            judged.push(read_container(name, task, other)?);
        } else if chosen.is_none() && (own == 0 || is_own(&other)) {
            workload.candidates.push(read_container(name, task, other)?);
        } else {
            silent.push(other_name);
        }
    }
    if !silent.is_empty() {
        let problem = format!("not judged: {}", silent.join(", "));
        let advice = "name the one that this configuration is for with --only";
        workload.findings.push(Finding::new(Level::Note, container.place(), problem, advice));
    }
    into.add(workload)?;
    judged.into_iter().try_for_each(|workload| into.add(workload))
}

/// Reads how one container of a task is stopped.
fn read_container(
    name: &str,
    task: &Node<'_>,
    container: &Node<'_>,
) -> Result<Workload, InputError> {
    check_case(task, container)?;
    let on = get(task, "requiresCompatibilities").map(|on| on.texts()).unwrap_or_default();
    let supervisor = match on.as_slice() {
        [Some("FARGATE")] => Supervisor::Fargate,
        _ => Supervisor::Ecs,
    };
    let mut workload = Workload::new(supervisor, "task", name, container.place());
    workload.container = text(container, "name").unwrap_or_default().into();
    if task.get("ContainerDefinitions").is_some() {
        workload.format = Format::CloudFormation;
    }
    let system = get(task, "runtimePlatform").and_then(|at| get(&at, "operatingSystemFamily"));
    if let Some(system) = system.filter(|at| at.text().is_none_or(|text| text != "LINUX")) {
        workload.findings.push(match system.text().is_some_and(run_line::is_windows) {
            true => run_line::on_windows(system.place()),
            false => {
                let problem = "how a process is stopped on this system cannot be seen here";
                Finding::new(Level::Unknown, system.place(), problem, "run it on LINUX")
            }
        });
    }
    workload.findings.extend(windows_machine(task));
    if let Some(timeout) = get(container, "stopTimeout") {
        if timeout.is_octal() {
            return Err(timeout.error(tree::octal(timeout.text().unwrap_or_default())));
        }
        match timeout.text().and_then(|text| text.parse().ok()) {
            // CloudFormation takes numbers in quotes, and the API does not.
            Some(seconds)
                if timeout.number().is_ok() || task.get("ContainerDefinitions").is_some() =>
            {
                workload.grace = Grace::said(Some(Duration::from_secs(seconds)), timeout.place());
            }
            Some(_) => return Err(timeout.error("must be a number without quotes, such as 30")),
            None => {
                let problem = "its value is filled in by a template, and cannot be seen here";
                workload.hide_grace(timeout.place(), problem, "write the number");
            }
        }
    }
    if text(container, "pseudoTerminal").is_some_and(|tty| tty != "false") {
        workload.signs.terminal = Sign::Unseen;
    }
    let limits = get(container, "ulimits").map(|all| all.items()).unwrap_or_default();
    if let Some(limit) = limits.iter().find(|limit| text(limit, "name") == Some("cpu")) {
        let fix = Fix::Line("no cpu in ulimits".into());
        workload.findings.push(launch::limits_processor_time(limit.place()).fixed_by(fix));
    }
    let mut variables = environment(container);
    let command: Vec<_> =
        ["entryPoint", "command"].iter().filter_map(|key| get(container, key)).collect();
    if let Some(first) = command.first() {
        let words: Vec<_> = command.iter().flat_map(Node::texts).map(Word::of).collect();
        let front = launch::front(&words, &mut variables, &first.place());
        workload.findings.extend(front.finding(first.place()));
    }
    variables.apply(&mut workload);
    workload.findings.extend(keys::unknown(task, &keys::ecs::TASK));
    Ok(workload)
}

/// Returns the finding about a constraint that puts the task on a machine with Windows.
fn windows_machine(task: &Node<'_>) -> Option<Finding> {
    let constraints = get(task, "placementConstraints").map(|all| all.items()).unwrap_or_default();
    let mut expressions = constraints.iter().filter_map(|one| get(one, "expression"));
    let is_windows = |at: &Node<'_>| {
        let text = at.text().unwrap_or_default().to_lowercase();
        let asks = text.contains("ecs.os-type") || text.contains("ecs.os-family");
        // `!=` and `not_in` name the systems that are ruled out.
        let excludes = text.contains("!=") || text.contains("not_in");
        asks && text.contains(if excludes { "linux" } else { "windows" })
    };
    expressions.find(is_windows).map(|at| run_line::on_windows(at.place()))
}

fn environment(container: &Node<'_>) -> Environment {
    let mut environment = Environment::default();
    for pair in get(container, "environment").map(|pairs| pairs.items()).unwrap_or_default() {
        match (text(&pair, "name"), text(&pair, "value")) {
            (Some(name), Some(value)) => environment.set(name, value, pair.place()),
            (Some(name), None) => environment.set_unseen(name, pair.place()),
            (None, _) => {}
        }
    }
    for secret in get(container, "secrets").map(|secrets| secrets.items()).unwrap_or_default() {
        if let Some(name) = text(&secret, "name") {
            environment.set_unseen(name, secret.place());
        }
    }
    if let Some(files) = get(container, "environmentFiles") {
        environment.add_unseen(files.place());
    }
    environment
}
