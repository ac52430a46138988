//! `pl-host audit`: adversaries without a model play the tasks, and each finding is a line.

use std::io::Write;

use comfy_table::Table;
use pl_run::audit::{Audit, AuditOptions, FindingSeverity, LONGER, OracleResult};
use serde_json::json;

use crate::app::App;
use crate::arguments::workflow::AuditArgs;
use crate::exit::{CommandError, CommandResult};
use crate::table::plain_table;
use crate::visible;

pub fn run(app: &App, options: &AuditArgs) -> CommandResult {
    let checked = app.open_to_play(&options.source)?;
    let wanted =
        AuditOptions { tasks: options.tasks.max(1), seed: options.seed, answers: options.answers.clone() };
    let scenarios = match options.scenario.as_deref() {
        Some(name) => vec![checked.scenario(Some(name))?],
        None => (0..checked.workflow.scenarios.len()).collect(),
    };
    let audits = scenarios
        .into_iter()
        .map(|scenario| Audit::new(&app.host, &checked, scenario, &wanted))
        .collect::<Result<Vec<_>, _>>()?;
    let mut out = visible::stdout();
    match (options.json, audits.as_slice()) {
        (true, [audit]) => writeln!(out, "{:#}", json!(audit))?,
        (true, audits) => writeln!(out, "{:#}", json!(audits))?,
        (false, audits) => audits.iter().try_for_each(|audit| write(audit, &mut out))?,
    }
    if audits.iter().any(|audit| audit.defects() > 0) {
        return Err(CommandError::failed("training would learn from these defects: fix them first"));
    }
    Ok(())
}

fn write(audit: &Audit, out: &mut impl Write) -> std::io::Result<()> {
    if let Some(scenario) = &audit.scenario {
        writeln!(out, "scenario {scenario}\n")?;
    }
    writeln!(out, "{}\n", table(audit).trim_fmt())?;
    for oracle in audit.oracle.iter().filter(|oracle| oracle.actions > 0) {
        let OracleResult { episodes, success, reward, .. } = oracle;
        let (name, percent) = (oracle.named(), 100.0 * success);
        writeln!(out, "oracle on {episodes} tasks of {name}: success {percent:.0} %, reward {reward:.2}")?;
    }
    for finding in &audit.findings {
        let severity = match finding.severity {
            FindingSeverity::Defect => "DEFECT",
            FindingSeverity::Look => "look",
            FindingSeverity::Ok => "ok",
        };
        writeln!(out, "{severity:<7} {}", finding.text)?;
    }
    if audit.scenario.is_some() {
        writeln!(out)?;
    }
    Ok(())
}

/// Returns a line for each adversary that solved or earned something, and for the first three in any case.
fn table(audit: &Audit) -> Table {
    let [longer, longest] = LONGER.map(|factor| format!("{factor} x turns"));
    let titles = ["adversary", "success", "reward", "unsolved", &longer, &longest, "faults"];
    let mut table = plain_table(titles);
    for (index, own) in audit.adversaries.iter().enumerate() {
        let paid = own.unsolved.is_some_and(|rewards| rewards.iter().any(|reward| *reward > 0.0));
        if index >= 3 && own.success == 0.0 && !paid && own.faults == 0 {
            continue;
        }
        let [short, long, longest] = match own.unsolved {
            Some(rewards) => rewards.map(|reward| format!("{reward:.2}")),
            None => ["-", "-", "-"].map(str::to_owned),
        };
        table.add_row([
            own.strategy.to_string(),
            format!("{:.0} %", 100.0 * own.success),
            format!("{:.2}", own.reward),
            short,
            long,
            longest,
            own.faults.to_string(),
        ]);
    }
    table
}
