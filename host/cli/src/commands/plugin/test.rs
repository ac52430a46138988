//! `pl-host plugin test`: tests whether a component conforms to the contract.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use pl_plugin::conformance::{CheckResult, Report, Samples, check_plugin};
use pl_plugin::{Corpora, Plugin, Services, Task};
use pl_run::sandbox::LazyWorkers;
use pl_sandbox::{Job, Sandbox, Verdict};
use pl_types::{ItemKind, Passage, Retrieve, RetrieveError};
use pl_wasm::Limits;
use serde_json::{Map, Value, json};

use super::loader::{Loader, read};
use crate::app::App;
use crate::arguments::plugin::PluginTestArgs;
use crate::exit::{CommandError, CommandResult};
use crate::visible;

/// Line for plugins that run code: their tests and rewards are beyond these checks.
const JUDGE_HINT: &str = "it runs code in the sandbox: these checks don't find tests that the code can deceive; \
                          see \"A judge that can't be forged\" in docs/plugins.md";

pub fn run(app: &App, options: &PluginTestArgs) -> CommandResult {
    let loader = Loader::new(app)?;
    let plugin = loader.load(&options.file, &read(&options.file)?)?;
    let others = options
        .with
        .iter()
        .map(|file| loader.load(file, &read(file)?))
        .collect::<Result<Vec<Plugin>, CommandError>>()?;
    let samples = samples(options)?;
    let corpus = ("corpus".to_owned(), Arc::new(RepeatedQuery) as Arc<dyn Retrieve>);
    let sandbox = Arc::new(WatchedSandbox::new(LazyWorkers::embedded(&app.host)));
    let services =
        Services { sandbox: Arc::clone(&sandbox) as Arc<dyn Sandbox>, corpora: Corpora::from_iter([corpus]) };
    let report = app
        .host
        .block_on(check_plugin(&plugin, &others, &services, &samples))
        .map_err(|e| CommandError::input(format!("--settings: {e}")))?;
    let mut out = visible::stdout();
    if options.json {
        writeln!(out, "{:#}", to_json(&report))?;
    } else {
        show(&report, &mut out)?;
        if sandbox.is_used() && plugin.items().iter().any(|item| item.kind != ItemKind::Agent) {
            writeln!(out, "{JUDGE_HINT}")?;
        }
    }
    if report.passed() { Ok(()) } else { Err(CommandError::failed("the plugin violates the contract")) }
}

/// Sandbox that remembers if it was used.
struct WatchedSandbox {
    sandbox: Arc<dyn Sandbox>,
    used: AtomicBool,
}

impl WatchedSandbox {
    fn new(sandbox: Arc<dyn Sandbox>) -> WatchedSandbox {
        WatchedSandbox { sandbox, used: AtomicBool::new(false) }
    }

    fn is_used(&self) -> bool {
        self.used.load(Ordering::Relaxed)
    }
}

#[async_trait]
impl Sandbox for WatchedSandbox {
    async fn execute(&self, jobs: Vec<Job>) -> Vec<Verdict> {
        self.used.store(true, Ordering::Relaxed);
        self.sandbox.execute(jobs).await
    }
}

/// Corpus of tests: each passage is the query.
struct RepeatedQuery;

#[async_trait]
impl Retrieve for RepeatedQuery {
    async fn retrieve(&self, query: &str, count: usize) -> Result<Vec<Passage>, RetrieveError> {
        let passage = |rank: usize| Passage {
            id: rank.to_string(),
            text: query.to_owned(),
            score: 1.0 / (1 + rank) as f64,
        };
        Ok((0..count).map(passage).collect())
    }

    fn is_reproducible(&self) -> bool {
        true
    }
}

fn samples(options: &PluginTestArgs) -> Result<Samples, CommandError> {
    let lines = |file: &Path| -> Result<Vec<String>, CommandError> {
        let text = String::from_utf8(read(file)?)
            .map_err(|e| CommandError::input(format!("{}: {e}", file.display())))?;
        for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            serde_json::from_str::<Value>(line)
                .map_err(|e| CommandError::input(format!("{}:{}: {e}", file.display(), index + 1)))?;
        }
        let lines: Vec<String> =
            text.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect();
        if lines.is_empty() {
            return Err(CommandError::input(format!(
                "{} is empty: write one JSON document per line",
                file.display()
            )));
        }
        Ok(lines)
    };
    let read_lines = |file: &Option<std::path::PathBuf>| {
        file.as_deref().map(lines).transpose().map(Option::unwrap_or_default)
    };
    let tasks = (1..)
        .zip(read_lines(&options.tasks)?)
        .map(|(number, data)| Task { id: format!("line {number}"), data });
    Ok(Samples {
        settings: settings(options.settings.as_deref())?,
        tasks: tasks.collect(),
        views: read_lines(&options.views)?,
        actions: read_lines(&options.actions)?,
        level: options.level,
    })
}

/// Parses settings of items: `{"ITEM": {"KEY": VALUE}}`.
fn settings(text: Option<&str>) -> Result<BTreeMap<String, Map<String, Value>>, CommandError> {
    let Some(text) = text else { return Ok(BTreeMap::new()) };
    serde_json::from_str(text)
        .map_err(|e| CommandError::input(format!("--settings: {e}; write {{\"ITEM\": {{\"KEY\": VALUE}}}}")))
}

fn show(report: &Report, out: &mut impl Write) -> CommandResult {
    let mut item = "";
    for check in &report.checks {
        if check.item != item {
            item = &check.item;
            writeln!(out, "{item}")?;
        }
        match &check.result {
            CheckResult::Passed => writeln!(out, "  passed    it {}", check.requirement)?,
            CheckResult::Failed(reason) => {
                writeln!(out, "  FAILED    it {}\n            {}", check.requirement, indent(reason))?
            }
            CheckResult::Untested(reason) => {
                writeln!(out, "  untested  it {}\n            {}", check.requirement, indent(reason))?;
            }
        }
    }
    let limits = Limits::default();
    if !report.usage.is_empty() {
        writeln!(out, "largest use of one call (limits: {} fuel, {} KiB)", limits.fuel, limits.memory >> 10)?;
    }
    for (function, usage) in &report.usage {
        writeln!(out, "  {function:<10} {:>12} fuel {:>8} KiB", usage.fuel, usage.memory >> 10)?;
    }
    Ok(())
}

fn indent(text: &str) -> String {
    text.replace('\n', "\n            ")
}

fn to_json(report: &Report) -> Value {
    let checks: Vec<Value> = report
        .checks
        .iter()
        .map(|check| {
            let (result, reason) = match &check.result {
                CheckResult::Passed => ("passed", None),
                CheckResult::Failed(reason) => ("failed", Some(reason)),
                CheckResult::Untested(reason) => ("untested", Some(reason)),
            };
            json!({ "item": check.item, "requirement": check.requirement, "result": result, "reason": reason })
        })
        .collect();
    json!({ "passed": report.passed(), "checks": checks, "usage": report.usage })
}

#[cfg(test)]
mod tests {
    use pl_sandbox::DeniedSandbox;

    use super::*;

    #[tokio::test]
    async fn use_of_the_sandbox_is_noticed() {
        let sandbox = WatchedSandbox::new(Arc::new(DeniedSandbox("there is none".to_owned())));
        assert!(!sandbox.is_used());
        assert_eq!(sandbox.execute(vec![Job::default()]).await.len(), 1);
        assert!(sandbox.is_used());
    }

    fn options(tasks: Option<&Path>, views: Option<&Path>, actions: Option<&Path>) -> PluginTestArgs {
        PluginTestArgs {
            file: "x.wasm".into(),
            with: Vec::new(),
            settings: None,
            tasks: tasks.map(Path::to_owned),
            views: views.map(Path::to_owned),
            actions: actions.map(Path::to_owned),
            level: 1,
            json: false,
        }
    }

    #[test]
    fn an_empty_file_of_samples_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let (empty, filled) = (folder.path().join("empty.jsonl"), folder.path().join("filled.jsonl"));
        std::fs::write(&empty, "\n \n").unwrap();
        std::fs::write(&filled, "\n{\"question\": 1}\n").unwrap();
        assert!(samples(&options(None, None, None)).unwrap().tasks.is_empty());
        assert_eq!(samples(&options(Some(&filled), None, None)).unwrap().tasks.len(), 1);
        for options in [
            options(Some(&empty), None, None),
            options(None, Some(&empty), None),
            options(None, None, Some(&empty)),
        ] {
            let error = samples(&options).unwrap_err();
            let CommandError::Input(message) = &error else { panic!("{error:?}") };
            assert!(message.contains("empty.jsonl is empty"), "{message}");
        }
    }

    #[test]
    fn the_hint_names_a_heading_that_exists() {
        let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/plugins.md");
        let heading = JUDGE_HINT.split('"').nth(1).unwrap();
        let docs = std::fs::read_to_string(docs).unwrap();
        assert!(docs.lines().any(|line| line == format!("## {heading}")), "{heading}");
    }
}
