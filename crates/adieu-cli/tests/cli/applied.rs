//! That each suggestion of `adieu check` over the corpus makes the manifest fit, once a person has
//! followed it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::check::json_of;
use super::documents::{self, find, text_of};
use super::{Ran, adieu, corpus};

/// A program that the corpus does not use.
const PROCESS: &str = "/usr/local/bin/orders-itself";

/// The files of a manifest, by their paths in the folder, and the options of the check.
struct Change {
    folder: PathBuf,
    file: String,
    text: String,
    config: String,
    options: Vec<String>,
    /// The files that were changed or added.
    written: Vec<PathBuf>,
    /// Settings of a drop-in, by section.
    drop_in: BTreeMap<&'static str, String>,
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else if entry.file_type().unwrap().is_file() {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

fn has_suggestion(workload: &Value) -> bool {
    workload["suggest"].as_object().is_some_and(|suggest| !suggest.is_empty())
}

fn judge(folder: &Path, file: &str, options: &[String]) -> Ran {
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let (config, manifest) = (path("service.toml"), path(file));
    let mut args = vec!["check", "--json", "--config", &config, "--manifest", &manifest];
    args.extend(options.iter().map(String::as_str));
    adieu(&args)
}

#[test]
fn s184_every_suggestion_over_the_corpus_fits_once_it_is_followed() {
    let whole = tempfile::tempdir().unwrap();
    copy(&corpus::folder(), whole.path());
    let (mut followed, mut wrong) = (0, Vec::new());
    for file in corpus::readable() {
        let workloads = json_of(&judge(whole.path(), &file, &[]))["workloads"].clone();
        let workloads = workloads.as_array().unwrap();
        if !workloads.iter().any(has_suggestion) {
            continue;
        }
        let text = std::fs::read_to_string(whole.path().join(&file)).unwrap();
        let config = std::fs::read_to_string(whole.path().join("service.toml")).unwrap();
        let mut change = Change {
            folder: whole.path().into(),
            file: file.clone(),
            text,
            config,
            options: Vec::new(),
            written: Vec::new(),
            drop_in: BTreeMap::new(),
        };
        for workload in workloads.iter().filter(|workload| has_suggestion(workload)) {
            change.follow(workload);
            followed += 1;
        }
        change.write();
        let again = judge(whole.path(), &file, &change.options);
        change.undo();
        let after = json_of(&again)["workloads"].clone();
        let after = after.as_array().unwrap();
        for (at, before) in workloads.iter().enumerate() {
            let fits = after.get(at).is_some_and(|after| after["verdict"] == "fits");
            if has_suggestion(before) && !fits {
                let told = &before["suggest"];
                wrong.push(format!(
                    "{file}: {told}\n{}\n{}",
                    again.stderr,
                    after[at.min(after.len().max(1) - 1)]["findings"]
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {followed}:\n{}", wrong.len(), wrong.join("\n"));
    // Not fewer than there are.
    assert!(followed > 200, "{followed}");
}

// === impl Change ===

impl Change {
    fn write_file(&mut self, name: &str, text: &str) {
        let path = self.folder.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        self.written.push(name.into());
    }

    fn write(&mut self) {
        let (file, text, config) = (self.file.clone(), self.text.clone(), self.config.clone());
        self.write_file(&file, &text);
        self.write_file("service.toml", &config);
        let sections = self.drop_in.iter().map(|(name, lines)| format!("[{name}]\n{lines}"));
        let settings: String = sections.collect();
        if !settings.is_empty() {
            self.write_file(&format!("{file}.d/zz-suggested.conf"), &settings);
        }
    }

    /// Makes the folder as it was.
    fn undo(&self) {
        for name in &self.written {
            let path = self.folder.join(name);
            match std::fs::read(corpus::folder().join(name)) {
                Ok(bytes) => std::fs::write(path, bytes).unwrap(),
                Err(_) => std::fs::remove_file(path).unwrap(),
            }
        }
    }

    /// Applies the suggestion for one workload.
    fn follow(&mut self, workload: &Value) {
        let mut suggest = workload["suggest"].as_object().unwrap().clone();
        if let Some(say) = suggest.remove("say") {
            self.options.push(text_of(&say));
        }
        if let Some(most) = suggest.remove("max_kill_timeout") {
            self.options.extend(["--max-kill-timeout".into(), text_of(&most)]);
        }
        for key in ["lame-duck", "kill-after"] {
            if let Some(time) = suggest.remove(key) {
                let section = "[coordinated-shutdown]\n";
                let kept = self.config.lines().filter(|line| !line.starts_with(key));
                let kept: String = kept.map(|line| format!("{line}\n")).collect();
                self.config = kept.replace(section, &format!("{section}{key} = {time}\n"));
            }
        }
        self.follow_in_other_files(&mut suggest);
        if suggest.is_empty() {
            return;
        }
        let ending = self.file.rsplit('.').next().unwrap().to_owned();
        match ending.as_str() {
            "yaml" | "yml" | "json" => self.in_tree(workload, &mut suggest),
            "service" | "container" => self.in_unit(&mut suggest),
            "sh" => self.in_script(&mut suggest),
            "conf" => self.in_supervisord(workload, &mut suggest),
            "hcl" => self.in_own_task(workload, &mut suggest),
            "toml" => self.in_blocks(&mut suggest),
            other => panic!("{other}"),
        }
        assert!(suggest.is_empty(), "{}: not followed: {suggest:?}", self.file);
    }

    /// Changes the values that are in files other than the manifest.
    fn follow_in_other_files(&mut self, suggest: &mut Map<String, Value>) {
        let Some(files) = suggest.remove("files") else { return };
        for (key, file) in files.as_object().unwrap() {
            let file = Path::new(file.as_str().unwrap());
            let name = file.strip_prefix(&self.folder).unwrap().to_str().unwrap().to_owned();
            let path = self.folder.join(&name);
            let text = std::fs::read_to_string(&path).unwrap();
            let variable = suggest.get_mut("env").and_then(|env| env.as_object_mut()?.remove(key));
            let line =
                suggest.get_mut("lines").and_then(Value::as_array_mut).is_some_and(|lines| {
                    let before = lines.len();
                    lines.retain(|line| line != key);
                    before > lines.len()
                });
            let changed = match (variable, suggest.remove(key)) {
                (Some(value), _) => with_value(&text, key, &text_of(&value)),
                (None, Some(value)) => with_value(&text, key, &text_of(&value)),
                (None, None) if line => text + key + "\n",
                (None, None) => panic!("{key}"),
            };
            self.write_file(&name, &changed);
        }
        suggest.retain(|_, value| {
            !value.as_object().is_some_and(Map::is_empty) && value != &json!([])
        });
    }

    fn in_tree(&mut self, workload: &Value, suggest: &mut Map<String, Value>) {
        let mut all = Value::Array(documents::read(&self.text));
        let named = |key: &str| workload[key].as_str().unwrap_or_default().to_owned();
        let (kind, name, container) = (named("kind"), named("name"), named("container"));
        match kind.as_str() {
            "service" => {
                let has = |map: &Map<String, Value>| {
                    map.get("services").is_some_and(|all| all.get(&name).is_some())
                };
                let Some(file) = find(&mut all, &has) else {
                    self.in_included(&name, suggest);
                    return;
                };
                in_compose(file["services"].as_object_mut().unwrap(), &name, suggest);
            }
            "task" => {
                let of_ecs = |map: &Map<String, Value>| {
                    map.contains_key("stopTimeout") || map.contains_key("image")
                };
                let is_nomad = find(&mut all, &|map| map.contains_key("TaskGroups")).is_some();
                let task = match is_nomad {
                    true => find(&mut all, &|map| map.contains_key("Driver")).unwrap(),
                    false => {
                        let named = |map: &Map<String, Value>| {
                            of_ecs(map) && map.get("name") == Some(&json!(container))
                        };
                        find(&mut all, &named).unwrap()
                    }
                };
                in_task(task, is_nomad, suggest);
            }
            _ => {
                // The items of a list have no kind of their own.
                let of = |map: &Map<String, Value>| {
                    let own = map.get("metadata").and_then(|data| data.get("name"));
                    let is_kind = map.get("kind").is_none_or(|own| own == &json!(kind));
                    let is_named = own.map_or(name.is_empty(), |own| own == &json!(name));
                    map.contains_key("spec") && is_kind && is_named
                };
                let object = find(&mut all, &of).unwrap_or_else(|| panic!("{}", self.file));
                let mut inner = Value::Object(std::mem::take(object));
                let pod = find(&mut inner, &|map| map.contains_key("containers")).unwrap();
                in_pod(pod, &container, suggest);
                *object = inner.as_object().unwrap().clone();
            }
        }
        self.text = documents::write(all.as_array().unwrap());
    }

    /// In a file that the compose file includes.
    fn in_included(&mut self, name: &str, suggest: &mut Map<String, Value>) {
        let folder = self.folder.join("compose-include.d");
        for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let text = std::fs::read_to_string(entry.path()).unwrap();
            let mut all = documents::read(&text);
            let services = all[0]["services"].as_object_mut();
            if let Some(services) = services.filter(|services| services.contains_key(name)) {
                in_compose(services, name, suggest);
                let name = entry.file_name().into_string().unwrap();
                self.write_file(&format!("compose-include.d/{name}"), &documents::write(&all));
            }
        }
    }

    fn in_unit(&mut self, suggest: &mut Map<String, Value>) {
        let is_quadlet = self.file.ends_with(".container");
        let own = if is_quadlet { "Container" } else { "Service" };
        let starts_container = self.text.contains("docker run") || self.text.contains("podman run");
        if !is_quadlet && starts_container {
            self.in_script(suggest);
        }
        let mut add = |section: &'static str, line: &str| {
            let lines = self.drop_in.entry(section).or_default();
            *lines += &format!("{line}\n");
        };
        for key in ["StopTimeout", "TimeoutStopSec"] {
            if let Some(value) = suggest.remove(key) {
                let section = if key == "StopTimeout" { "Container" } else { "Service" };
                add(section, &format!("{key}={}", text_of(&value)));
            }
        }
        if let Some(value) = suggest.remove("--stop-timeout") {
            add("Container", &format!("PodmanArgs=--stop-timeout {value}"));
        }
        if let Some(env) = suggest.remove("env") {
            for (name, value) in env.as_object().unwrap() {
                add(own, &format!("Environment={name}={}", text_of(value)));
            }
        }
        match suggest.remove("exec").is_some() {
            true if is_quadlet => {
                self.text = without(&without(&self.text, "Exec="), "Entrypoint=");
                add(own, &format!("Exec={PROCESS}"));
            }
            true => add("Service", &format!("ExecStart=\nExecStart={PROCESS}")),
            false => {}
        }
        let lines = suggest.remove("lines").unwrap_or(json!([]));
        for line in lines.as_array().unwrap().iter().map(text_of) {
            match line.as_str() {
                "no ExecStop" => add("Service", "ExecStop="),
                "KillMode=control-group" => {
                    self.text = without(&self.text, "KillMode=");
                    add("Service", &line);
                }
                "no ContainersConfModule" => {
                    self.text = without(&self.text, "ContainersConfModule")
                }
                "no --timeout" => self.text = without(&self.text, "PodmanArgs=--timeout"),
                _ if line.ends_with(" in front of the process") => {
                    add("Service", &format!("ExecStart=\nExecStart={PROCESS}"));
                }
                _ if line.starts_with("ExecStop=") => add("Service", &format!("ExecStop=\n{line}")),
                _ if line.starts_with("StopSignal") || line.starts_with("HealthOnFailure") => {
                    add("Container", &line);
                }
                _ if line.starts_with("DefaultDependencies") || line.starts_with("JobTimeout") => {
                    add("Unit", &line);
                }
                _ => add("Service", &line),
            }
        }
        if let Some(time) = suggest.remove("--time") {
            self.text = with_time(&self.text, &text_of(&time));
        }
        if let Some(env) = suggest.remove("env_in_command") {
            let pairs = pairs(&env);
            self.text = self.text.replace(" orders\n", &format!(" {pairs} orders\n"));
            self.text = self
                .text
                .replace("/usr/local/bin/orders\n", &format!("{pairs} /usr/local/bin/orders\n"));
        }
    }

    /// In the lines that start and stop containers.
    fn in_script(&mut self, suggest: &mut Map<String, Value>) {
        let insert = |text: &str, flag: &str| {
            let text = text.replacen("docker run ", &format!("docker run {flag} "), 1);
            text.replacen("podman run ", &format!("podman run {flag} "), 1)
        };
        if let Some(value) = suggest.remove("--stop-timeout") {
            self.text = match self.text.contains("--stop-timeout") {
                true => with_value(&self.text, "--stop-timeout", &text_of(&value)),
                false => insert(&self.text, &format!("--stop-timeout {value}")),
            };
        }
        if let Some(env) = suggest.remove("env") {
            for (name, value) in env.as_object().unwrap() {
                self.text = match self.text.contains(&format!("{name}=")) {
                    true => with_value(&self.text, name, &text_of(value)),
                    false => insert(&self.text, &format!("-e {name}={}", text_of(value))),
                };
            }
        }
        if let Some(time) = suggest.remove("--time") {
            self.text = with_time(&self.text, &text_of(&time));
        }
        if let Some(env) = suggest.remove("env_in_command") {
            self.text = self.text.replace("exec ", &format!("exec env {} ", pairs(&env)));
        }
        if suggest.remove("exec").is_some() {
            let line = self.text.lines().find(|line| line.contains(" run ")).unwrap().to_owned();
            let image = line.find("registry.example").unwrap();
            let end = line[image..].find(' ').map_or(line.len(), |at| image + at);
            let words = line[..end].split(' ').collect::<Vec<_>>();
            let at = words.iter().position(|word| word.starts_with("--entrypoint"));
            let kept = words.iter().enumerate().filter(|(i, _)| {
                at.is_none_or(|at| *i != at && (*i != at + 1 || words[at].contains('=')))
            });
            let words: Vec<_> = kept.map(|(_, word)| *word).collect();
            self.text = self.text.replace(&line, &format!("{} {PROCESS}", words.join(" ")));
        }
        if !self.file.ends_with(".sh") {
            return;
        }
        let lines = suggest.remove("lines").unwrap_or(json!([]));
        for line in lines.as_array().unwrap().iter().map(text_of) {
            let kills = ["docker kill", "rm -f", "rm --force", "docker stop", "rm orders -f"];
            self.text = match line.as_str() {
                "--stop-signal SIGTERM" if self.text.contains("--stop-signal") => {
                    let (before, after) = self.text.split_once("--stop-signal").unwrap();
                    let after = &after[1..];
                    let end = after.find([' ', '\n']).unwrap();
                    format!("{before}--stop-signal SIGTERM{}", &after[end..])
                }
                "--stop-signal SIGTERM" => insert(&self.text, &line),
                "no --timeout" => {
                    let (before, after) = self.text.split_once("--timeout").unwrap();
                    let after = &after[1..];
                    format!("{before}{}", &after[after.find(' ').unwrap()..])
                }
                _ => {
                    let new = line.strip_suffix(" in its place").unwrap();
                    let new = new.replace("and the name of the container", "orders");
                    let lines = self.text.lines().map(|line| match line {
                        _ if kills.iter().any(|kill| line.contains(kill)) => new.clone() + "\n",
                        _ => format!("{line}\n"),
                    });
                    lines.collect()
                }
            };
        }
    }

    fn in_supervisord(&mut self, workload: &Value, suggest: &mut Map<String, Value>) {
        let name = text_of(&workload["name"]);
        let mut lines = Vec::new();
        if let Some(value) = suggest.remove("stopwaitsecs") {
            lines.push(format!("stopwaitsecs={value}"));
        }
        for line in
            suggest.remove("lines").unwrap_or(json!([])).as_array().unwrap().iter().map(text_of)
        {
            lines.push(match line.as_str() {
                _ if line.starts_with("stopsignal") => line,
                _ => format!("command={PROCESS}"),
            });
        }
        if suggest.remove("exec").is_some() {
            lines.push(format!("command={PROCESS}"));
        }
        if let Some(env) = suggest.remove("env") {
            let own = self.text.lines().find(|line| line.starts_with("environment"));
            let own = own.and_then(|line| line.split_once(['=', ':'])).map(|(_, own)| own.trim());
            let env = env.as_object().unwrap();
            let is_kept = |pair: &&str| !env.keys().any(|name| pair.trim().starts_with(name));
            let kept = own.unwrap_or_default().split(',').filter(|pair| !pair.is_empty());
            let kept = kept.filter(is_kept).map(str::to_owned);
            let new = env.iter().map(|(name, value)| format!("{name}=\"{}\"", text_of(value)));
            let all: Vec<_> = kept.chain(new).collect();
            lines.push(format!("environment={}", all.join(",")));
        }
        for line in lines {
            let key = line.split('=').next().unwrap();
            let is_own = |old: &&str| {
                let old = old.split(['=', ':']).next().unwrap();
                !old.trim().eq_ignore_ascii_case(key)
            };
            let kept: String =
                self.text.lines().filter(is_own).map(|line| format!("{line}\n")).collect();
            let header = format!("[program:{name}]\n");
            self.text = kept.replacen(&header, &format!("{header}{line}\n"), 1);
        }
    }

    /// In the block of the task itself.
    fn in_own_task(&mut self, workload: &Value, suggest: &mut Map<String, Value>) {
        let name = text_of(&workload["name"]);
        let start = format!("task \"{}\"", name.rsplit('/').next().unwrap());
        let at = self.text.find(&start).unwrap();
        let tail = self.text.split_off(at);
        let end = tail[1..].find("task \"").map_or(tail.len(), |end| end + 1);
        let before = std::mem::replace(&mut self.text, tail[..end].to_owned());
        self.in_blocks(suggest);
        self.text = before + &self.text + &tail[end..];
    }

    /// HCL and TOML.
    fn in_blocks(&mut self, suggest: &mut Map<String, Value>) {
        let is_toml = self.file.ends_with(".toml");
        let mut lines: Vec<String> = Vec::new();
        if let Some(value) = suggest.remove("kill_timeout") {
            lines.push(format!("kill_timeout = {value}"));
        }
        let own = suggest.remove("lines").unwrap_or(json!([]));
        lines.extend(own.as_array().unwrap().iter().map(text_of));
        for line in lines {
            let key = line.split(' ').next().unwrap();
            let found =
                self.text.lines().find(|old| old.trim_start().split(' ').next() == Some(key));
            self.text = match found.map(str::to_owned) {
                Some(old) => self.text.replacen(&old, &line, 1),
                None if is_toml => format!("{line}\n{}", self.text),
                None => after_line(&self.text, "task ", &line),
            };
        }
        if let Some(env) = suggest.remove("env") {
            for (name, value) in env.as_object().unwrap() {
                let value = text_of(value);
                let line = format!("{name} = \"{value}\"");
                let start = if is_toml { "[env]" } else { "env {" };
                self.text = match () {
                    () if self.text.contains(&format!("{name} = ")) => {
                        with_value(&self.text, name, &value)
                    }
                    () if self.text.contains(start) => after_line(&self.text, start, &line),
                    () if is_toml => format!("{}\n[env]\n{line}\n", self.text),
                    () => after_line(&self.text, "task ", &format!("env {{\n{line}\n}}")),
                };
            }
        }
        if suggest.remove("exec").is_some() {
            let changed = self.text.lines().map(|line| match line.trim_start().split(' ').next() {
                Some(key @ ("web" | "command")) => format!("{key} = \"{PROCESS}\"\n"),
                Some("args" | "entrypoint") => String::new(),
                _ => format!("{line}\n"),
            });
            self.text = changed.collect();
        }
    }
}

fn set_variables(object: &mut Map<String, Value>, key: &str, suggest: &mut Map<String, Value>) {
    let Some(env) = suggest.remove("env") else { return };
    for (name, value) in env.as_object().unwrap() {
        match object.entry(key).or_insert(json!([])) {
            Value::Array(list) if list.first().is_some_and(Value::is_string) => {
                list.push(json!(format!("{name}={}", text_of(value))));
            }
            Value::Array(list) => {
                list.retain(|pair| pair["name"] != json!(name));
                list.push(json!({ "name": name, "value": value }));
            }
            Value::Object(map) => drop(map.insert(name.clone(), value.clone())),
            other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => {
                panic!("{other}")
            }
        }
    }
}

fn in_pod(pod: &mut Map<String, Value>, container: &str, suggest: &mut Map<String, Value>) {
    for key in ["terminationGracePeriodSeconds", "timeoutSeconds"] {
        if let Some(value) = suggest.remove(key) {
            pod.insert(key.into(), value);
        }
    }
    let all = pod["containers"].as_array_mut().unwrap();
    let at = all.iter().position(|one| one["name"] == json!(container)).unwrap_or(0);
    let container = all[at].as_object_mut().unwrap();
    set_variables(container, "env", suggest);
    let mut itself = suggest.remove("exec").is_some();
    let mut hook = suggest.remove("preStop");
    for line in suggest.remove("lines").unwrap_or(json!([])).as_array().unwrap() {
        match line.as_str().unwrap() {
            "preStop without kill" => hook = Some(Value::Null),
            "stopSignal: SIGTERM" => container["lifecycle"]["stopSignal"] = json!("SIGTERM"),
            line if line.ends_with(" in front of the process") => itself = true,
            line => panic!("{line}"),
        }
    }
    match hook {
        Some(Value::Null) => {
            container["lifecycle"].as_object_mut().unwrap().remove("preStop");
        }
        Some(hook) => {
            let lifecycle = container.entry("lifecycle").or_insert(json!({}));
            lifecycle["preStop"] = hook;
        }
        None => {}
    }
    if itself {
        container.remove("args");
        container.insert("command".into(), json!([PROCESS]));
    }
    if let Some(env) = suggest.remove("env_in_command") {
        let command = container["command"].as_array_mut().unwrap();
        match command.iter_mut().find(|word| word.as_str().unwrap().contains("exec ")) {
            Some(script) => {
                let text = text_of(script);
                *script = text.replace("exec ", &format!("exec env {} ", pairs(&env))).into();
            }
            None => {
                let program = command.iter().skip(1).position(|word| {
                    !text_of(word).contains('=') && !text_of(word).starts_with('-')
                });
                let at = program.unwrap() + 1;
                command.splice(at..at, pairs(&env).split(' ').map(Value::from));
            }
        }
    }
}

fn in_compose(services: &mut Map<String, Value>, name: &str, suggest: &mut Map<String, Value>) {
    let watchtower =
        services.iter().find(|(_, other)| text_of(&other["image"]).contains("watchtower"));
    let watchtower = watchtower.map(|(name, _)| name.clone());
    let lines = suggest.remove("lines").unwrap_or(json!([]));
    for line in lines.as_array().unwrap().iter().map(text_of) {
        match line.as_str() {
            "stop_signal: SIGTERM" => services[name]["stop_signal"] = json!("SIGTERM"),
            "no pre_stop" => drop(services[name].as_object_mut().unwrap().remove("pre_stop")),
            _ => {
                let other = services[watchtower.as_ref().unwrap()].as_object_mut().unwrap();
                let words: Vec<_> = line.split(' ').collect();
                match words[0].split_once('=') {
                    Some((name, value)) => {
                        let mut one =
                            json!({ "env": { name: value } }).as_object().unwrap().clone();
                        other.entry("environment").or_insert(json!({}));
                        set_variables(other, "environment", &mut one);
                    }
                    None => drop(other.insert("command".into(), json!([words[0], words[1]]))),
                }
            }
        }
    }
    let service = services[name].as_object_mut().unwrap();
    if let Some(grace) = suggest.remove("stop_grace_period") {
        service.insert("stop_grace_period".into(), grace);
    }
    if suggest.get("env").is_some() {
        service.entry("environment").or_insert(json!({}));
    }
    set_variables(service, "environment", suggest);
    if suggest.remove("exec").is_some() {
        service.remove("command");
        service.insert("entrypoint".into(), json!([PROCESS]));
    }
}

fn in_task(task: &mut Map<String, Value>, is_nomad: bool, suggest: &mut Map<String, Value>) {
    for key in ["stopTimeout", "KillTimeout"] {
        if let Some(value) = suggest.remove(key) {
            task.insert(key.into(), value);
        }
    }
    if is_nomad && suggest.get("env").is_some() {
        task.entry("Env").or_insert(json!({}));
    }
    set_variables(task, if is_nomad { "Env" } else { "environment" }, suggest);
    if let Some(secrets) = task.get_mut("secrets").and_then(Value::as_array_mut) {
        secrets.retain(|secret| secret["name"] != json!("TERMINATION_GRACE_PERIOD_SECONDS"));
    }
    if suggest.remove("exec").is_some() {
        task.remove("command");
        task.insert("entryPoint".into(), json!([PROCESS]));
    }
}

fn pairs(env: &Value) -> String {
    let all = env.as_object().unwrap().iter();
    all.map(|(name, value)| format!("{name}={}", text_of(value))).collect::<Vec<_>>().join(" ")
}

/// Replaces the number, with its unit, after each mention of a name.
fn with_value(text: &str, name: &str, value: &str) -> String {
    let mut parts = text.split(name);
    let mut changed = parts.next().unwrap().to_owned();
    for part in parts {
        let start = part.find(|c: char| c.is_ascii_alphanumeric()).unwrap_or(0);
        let end =
            part[start..].find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(part.len() - start);
        changed += &format!("{name}{}{value}{}", &part[..start], &part[start + end..]);
    }
    changed
}

/// Sets the time of each command that stops a container.
fn with_time(text: &str, seconds: &str) -> String {
    let mut changed = String::new();
    for line in text.replace("\\\n", " ").lines() {
        let stops = line.contains("docker stop") || line.contains("podman stop");
        let flag = ["--time", "--timeout", "-t"].into_iter().find(|flag| {
            line.contains(&format!(" {flag} ")) || line.contains(&format!(" {flag}="))
        });
        changed += &match flag {
            Some(flag) if stops => {
                let flag = format!(" {flag}");
                let (before, after) = line.split_once(&flag).unwrap();
                let (value, rest) = after[1..].split_once(' ').unwrap_or((&after[1..], ""));
                assert!(value.parse::<u32>().is_ok(), "{line}");
                format!("{before}{flag} {seconds} {rest}")
            }
            None if stops => line.replacen(" stop ", &format!(" stop --time {seconds} "), 1),
            _ => line.to_owned(),
        };
        changed.push('\n');
    }
    changed
}

fn without(text: &str, start: &str) -> String {
    let lines = text.lines().filter(|line| !line.starts_with(start));
    lines.map(|line| format!("{line}\n")).collect()
}

fn after_line(text: &str, start: &str, new: &str) -> String {
    let line = text.lines().find(|line| line.trim_start().starts_with(start)).unwrap();
    text.replacen(&format!("{line}\n"), &format!("{line}\n{new}\n"), 1)
}
