//! The components of the example plugins: rebuilt after changes, loaded as a run loads them.

#![allow(clippy::panic, reason = "a test crate: a panic is how a test fails")]

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pl_plugin::{Agent, Cause, Corpora, Environment, Error, Plugin, PluginSpec, Reward, Services, Task};
use pl_sandbox::DeniedSandbox;
use pl_toolchain::{Language, Profile, Project};
use pl_wasm::{Engine, EngineConfig};
use serde_json::{Map, Value, json};

use super::stream;
use crate::support::repository;

/// Returns the environment's settings in all episodes.
fn settings() -> Map<String, Value> {
    json!({"terms": 3, "tries": 6}).as_object().unwrap().clone()
}

/// The plugin in one language.
pub struct Loaded {
    pub language: Language,
    pub sums: Environment,
    pub reasoner: Agent,
    pub score: Reward,
    plugin: Plugin,
}

/// Loads the plugin in every language with tools on this machine, Rust first. Returns an empty list without Rust's tools.
pub async fn all() -> Vec<Loaded> {
    let mut loaded = Vec::new();
    for language in Language::ALL {
        match load(language).await {
            Some(guest) => loaded.push(guest),
            None if language == Language::Rust => break,
            None => {}
        }
    }
    loaded
}

/// Returns all components, or `None` if a tool is missing.
pub fn components() -> Option<Vec<(Language, PathBuf)>> {
    Language::ALL.into_iter().map(|language| Some((language, component(language)?))).collect()
}

/// Loads the plugin in `language`. The reasoner in Rust is the one of the maths domain.
pub async fn load(language: Language) -> Option<Loaded> {
    let plugin = load_plugin(&component(language)?, language.name()).await;
    let maths = repository().join("target/release/plugins/math.wasm");
    let reasoners =
        if language == Language::Rust { load_plugin(&maths, "maths").await } else { plugin.clone() };
    Some(Loaded {
        language,
        sums: Environment::new(&plugin, "sums", settings(), services()).unwrap(),
        reasoner: Agent::new(&reasoners, "reasoner", Map::new()).unwrap(),
        score: Reward::new(&plugin, "score", Map::new()).unwrap(),
        plugin,
    })
}

/// Returns the services of an episode that runs no programs and retrieves nothing.
pub fn services() -> Services {
    Services { sandbox: Arc::new(DeniedSandbox("no sandbox here".to_owned())), corpora: Corpora::default() }
}

/// Loads a component. `name` is that of the plugin in errors.
pub async fn load_plugin(component: &Path, name: &str) -> Plugin {
    let config = EngineConfig { instances: 16, calls: 16, reuse_functions: true, ..EngineConfig::plugins() };
    let engine = Engine::new(config.cache_dir(pl_testing::compile_cache())).unwrap();
    Plugin::load(&engine, PluginSpec::new(name), &fs::read(component).unwrap()).await.unwrap()
}

/// Returns the component of `language`, or `None` if its tools are missing.
fn component(language: Language) -> Option<PathBuf> {
    let name = language.name();
    build(language, &repository().join("plugins/sdk/examples").join(name), name)
}

/// Returns the component of an example in a folder, rebuilt if its sources, its SDK or what builds it changed, or `None` if
/// tools are missing. No two examples have the same `name`.
pub fn build(language: Language, example: &Path, name: &str) -> Option<PathBuf> {
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR")).join("languages").join(name);
    fs::create_dir_all(&scratch).unwrap();
    // Tests run in separate processes; the first one builds for all.
    let lock = fs::File::create(scratch.join("lock")).unwrap();
    lock.lock().unwrap();
    let root = repository();
    let sdk = root.join("plugins/sdk").join(language.name());
    let sources: [&Path; 4] = [example, &sdk, &root.join("wit"), &root.join("host/toolchain/src")];
    let key = sources.map(|folder| hash_of(folder).to_string()).join(" ");
    let (stamp, component) = (scratch.join("stamp"), scratch.join("component.wasm"));
    if component.is_file() && fs::read_to_string(&stamp).is_ok_and(|old| old == key) {
        return Some(component);
    }
    let folder = match language {
        // Cargo finds the workspace from the folder of the crate.
        Language::Rust => example.to_owned(),
        _ => fresh_copy(example, &scratch.join("project")),
    };
    let project = Project::open(&folder).unwrap();
    match pl_toolchain::build(&project, Profile::Release, &|line| eprintln!("{line}")) {
        Ok(built) => {
            fs::copy(built.component, &component).unwrap();
            fs::write(stamp, key).unwrap();
            Some(component)
        }
        Err(error @ pl_toolchain::Error::NoTool { .. }) => {
            pl_testing::skip_or_fail(
                pl_testing::Requirement::Toolchains,
                &format!("no tools for {language}: {error}"),
            );
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Returns the folder of yyjson, or `None` without C's tools.
pub fn yyjson() -> Option<PathBuf> {
    let folder = component(Language::C)?.with_file_name("project/target/plugin/yyjson");
    assert!(folder.is_dir(), "{} is missing", folder.display());
    Some(folder)
}

/// Names of build outputs.
const OUTPUTS: [&str; 6] = ["target", "sdk", "node_modules", "__pycache__", "sums.wasm", "queens.wasm"];

fn hash_of(folder: &Path) -> u64 {
    let mut hasher = DefaultHasher::new();
    for file in files(folder) {
        (file.strip_prefix(folder).unwrap(), fs::read(&file).unwrap()).hash(&mut hasher);
    }
    hasher.finish()
}

/// Copies the sources of a project.
pub fn fresh_copy(from: &Path, to: &Path) -> PathBuf {
    if to.exists() {
        fs::remove_dir_all(to).unwrap();
    }
    for file in files(from) {
        let copy = to.join(file.strip_prefix(from).unwrap());
        fs::create_dir_all(copy.parent().unwrap()).unwrap();
        fs::copy(file, copy).unwrap();
    }
    to.to_owned()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if OUTPUTS.iter().any(|made| path.ends_with(made)) {
            continue;
        }
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push(path);
        }
    }
    found.sort();
    found
}

impl Loaded {
    /// Subject of a refusal, and its message.
    pub fn refusal(&self, error: Error) -> [String; 2] {
        let Error::Call(call) = error else { panic!("{}: {error}", self.language) };
        match call.cause {
            Cause::Refused { kind, message } => [format!("{kind:?}"), message],
            cause => panic!("{}: no refusal: {cause}", self.language),
        }
    }

    /// Refusal of an episode with these settings.
    pub async fn kind_of_refusal(&self, settings: &Value) -> String {
        let settings = settings.as_object().unwrap().clone();
        let sums = Environment::new(&self.plugin, "sums", settings, services()).unwrap();
        let [kind, message] = self.refusal(start(&sums, r#"{"number": 1, "largest": 5}"#).await);
        assert!(message.contains("sums"), "{}: {message}", self.language);
        kind
    }

    /// Refusal of an episode of this task.
    pub async fn kind_of_task_refusal(&self, data: &str) -> String {
        let [kind, message] = self.refusal(start(&self.sums, data).await);
        assert!(message.contains("task one"), "{}: {message}", self.language);
        kind
    }
}

/// The error that starting an episode gives.
async fn start(sums: &Environment, data: &str) -> Error {
    let task = Task { id: "one".to_owned(), data: data.to_owned() };
    match sums.start(&task, 0, stream(0)).await {
        Ok(_) => panic!("an episode of {data} started"),
        Err(error) => error,
    }
}
