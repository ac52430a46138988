//! `pl-host plugin test`: tests whether a component conforms to the contract.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use pl_plugin::conformance::{CheckResult, Report, Samples, check_plugin};
use pl_plugin::{Corpora, Plugin, Services, Task};
use pl_run::sandbox::LazyWorkers;
use pl_types::{Passage, Retrieve, RetrieveError};
use pl_wasm::Limits;
use serde_json::{Map, Value, json};

use super::loader::{Loader, read};
use crate::app::App;
use crate::arguments::plugin::PluginTestArgs;
use crate::exit::{CommandError, CommandResult};
use crate::visible;

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
    let services =
        Services { sandbox: LazyWorkers::embedded(&app.host), corpora: Corpora::from_iter([corpus]) };
    let report = app.host.block_on(check_plugin(&plugin, &others, &services, &samples));
    let mut out = visible::stdout();
    if options.json {
        writeln!(out, "{:#}", to_json(&report))?;
    } else {
        show(&report, &mut out)?;
    }
    if report.passed() { Ok(()) } else { Err(CommandError::failed("the plugin violates the contract")) }
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
        Ok(text.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect())
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
