//! Rendering of evaluation reports.

use std::io::Write;

use pl_run::evaluation::EvaluationReport;

/// Writes a report for people.
///
/// # Errors
/// Those of `out`.
pub fn write(report: &EvaluationReport, out: &mut impl Write) -> std::io::Result<()> {
    let percent = |share: f64| format!("{:.1} %", 100.0 * share);
    writeln!(out, "{}: {} episodes of {} tasks", report.name, report.episodes + report.lost, report.tasks)?;
    writeln!(out, "  team      {}", percent(report.success))?;
    for agent in &report.agents {
        writeln!(out, "  {:<9} {}, reward {:.3}", agent.name, percent(agent.success), agent.reward)?;
    }
    for (k, share) in &report.pass_at {
        writeln!(out, "  pass@{k:<4} {}", percent(*share))?;
    }
    writeln!(out, "  turns     {:.2} per episode, tokens {:.1}", report.turns, report.tokens)?;
    writeln!(out, "  truncated {}", percent(report.truncated))?;
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
