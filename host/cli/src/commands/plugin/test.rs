//! `pl-host plugin test`: the contract's promises, tried on a component.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use pl_plugin::conformance::{Report, Samples, Verdict, examine};
use pl_plugin::{Plugin, Services, Task};
use pl_wasm::Limits;
use serde_json::{Map, Value, json};

use super::{Loader, read};
use crate::arguments::PluginTest;
use crate::exit::{Outcome, Stop};
use crate::workers::LazyWorkers;

pub fn run(options: &PluginTest) -> Outcome {
    let loader = Loader::new()?;
    let plugin = loader.load(&options.file, &read(&options.file)?)?;
    let beside = options
        .beside
        .iter()
        .map(|file| loader.load(file, &read(file)?))
        .collect::<Result<Vec<Plugin>, Stop>>()?;
    let samples = samples(options)?;
    let services = Services { sandbox: LazyWorkers::embedded() };
    let report = loader.runtime.block_on(examine(&plugin, &beside, &services, &samples));
    let mut out = std::io::stdout().lock();
    if options.json {
        writeln!(out, "{:#}", as_json(&report))?;
    } else {
        show(&report, &mut out)?;
    }
    if report.holds() { Ok(()) } else { Err(Stop::failed("the plugin does not keep to the contract")) }
}

fn samples(options: &PluginTest) -> Result<Samples, Stop> {
    let lines = |file: &Path| -> Result<Vec<String>, Stop> {
        let text =
            String::from_utf8(read(file)?).map_err(|e| Stop::input(format!("{}: {e}", file.display())))?;
        for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            serde_json::from_str::<Value>(line)
                .map_err(|e| Stop::input(format!("{}:{}: {e}", file.display(), at + 1)))?;
        }
        Ok(text.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect())
    };
    let all = |file: &Option<std::path::PathBuf>| {
        file.as_deref().map(lines).transpose().map(Option::unwrap_or_default)
    };
    let tasks = (1..).zip(all(&options.tasks)?).map(|(at, data)| Task { id: format!("line {at}"), data });
    Ok(Samples {
        settings: settings(options.settings.as_deref())?,
        tasks: tasks.collect(),
        views: all(&options.views)?,
        actions: all(&options.actions)?,
        level: options.level,
    })
}

/// `{"item": {"key": value}}`.
fn settings(text: Option<&str>) -> Result<BTreeMap<String, Map<String, Value>>, Stop> {
    let Some(text) = text else { return Ok(BTreeMap::new()) };
    serde_json::from_str(text)
        .map_err(|e| Stop::input(format!("--settings: {e}; write {{\"ITEM\": {{\"KEY\": VALUE}}}}")))
}

fn show(report: &Report, out: &mut impl Write) -> Outcome {
    let mut item = "";
    for check in &report.checks {
        if check.item != item {
            item = &check.item;
            writeln!(out, "{item}")?;
        }
        match &check.verdict {
            Verdict::Holds => writeln!(out, "  holds      it {}", check.promise)?,
            Verdict::Fails(how) => {
                writeln!(out, "  FAILS      it {}\n             {}", check.promise, set_in(how))?
            }
            Verdict::NotTried(why) => {
                writeln!(out, "  not tried  it {}\n             {}", check.promise, set_in(why))?;
            }
        }
    }
    let limits = Limits::default();
    if !report.spent.is_empty() {
        writeln!(out, "at most, of one call (limits: {} fuel, {} KiB)", limits.fuel, limits.memory >> 10)?;
    }
    for (function, spent) in &report.spent {
        writeln!(out, "  {function:<10} {:>12} fuel {:>8} KiB", spent.fuel, spent.memory >> 10)?;
    }
    Ok(())
}

fn set_in(text: &str) -> String {
    text.replace('\n', "\n             ")
}

fn as_json(report: &Report) -> Value {
    let checks: Vec<Value> = report
        .checks
        .iter()
        .map(|check| {
            let (verdict, why) = match &check.verdict {
                Verdict::Holds => ("holds", None),
                Verdict::Fails(how) => ("fails", Some(how)),
                Verdict::NotTried(why) => ("not_tried", Some(why)),
            };
            json!({ "item": check.item, "promise": check.promise, "verdict": verdict, "why": why })
        })
        .collect();
    json!({ "holds": report.holds(), "checks": checks, "spent": report.spent })
}
