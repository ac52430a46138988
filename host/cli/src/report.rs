//! Rendering of evaluation reports.

use std::io::Write;

use pl_run::evaluation::EvaluationReport;

/// Writes a report for people.
///
/// # Errors
/// Those of `out`.
pub fn write(report: &EvaluationReport, out: &mut impl Write) -> std::io::Result<()> {
    let percent = |share: f64| format!("{:.1} %", 100.0 * share);
    let or_dash = |number: Option<String>| number.unwrap_or_else(|| "-".to_owned());
    writeln!(out, "{}: {} episodes of {} tasks", report.name, report.episodes + report.lost, report.tasks)?;
    writeln!(out, "  team      {}", percent(report.success))?;
    for agent in &report.agents {
        let success = or_dash(agent.success.map(percent));
        let reward = or_dash(agent.reward.map(|reward| format!("{reward:.3}")));
        writeln!(out, "  {:<9} {success}, reward {reward}", agent.name)?;
    }
    for (k, share) in &report.pass_at {
        writeln!(out, "  pass@{k:<4} {}", percent(*share))?;
    }
    let turns = or_dash(report.turns.map(|turns| format!("{turns:.2}")));
    let tokens = or_dash(report.tokens.map(|tokens| format!("{tokens:.1}")));
    writeln!(out, "  turns     {turns} per episode, tokens {tokens}")?;
    writeln!(out, "  truncated {}", or_dash(report.truncated.map(percent)))?;
    if report.failures > 0 {
        writeln!(out, "  faults    {}", report.failures)?;
    }
    if report.lost > 0 {
        writeln!(
            out,
            "  lost      {} episodes failed in every attempt; they count as not solved",
            report.lost
        )?;
    }
    Ok(())
}
