//! `pl-host grade`: grades answers as a run would, one per line of standard input.

use std::io::{BufRead, Write};

use pl_run::grade::{GradedAnswer, grade};
use serde_json::json;

use crate::app::App;
use crate::arguments::training::GradeArgs;
use crate::exit::{CommandError, CommandResult};

pub fn run(app: &App, options: &GradeArgs) -> CommandResult {
    let checked = app.open_to_play(&options.source)?;
    let answers = read()?;
    let total = answers.len();
    let mut out = std::io::stdout().lock();
    let mut right = 0usize;
    grade(&app.host, &checked, options.agent.as_deref(), answers, |correct| {
        right += usize::from(correct);
        if options.json {
            writeln!(out, "{}", json!({ "correct": correct }))?;
        }
        Ok::<(), CommandError>(())
    })?;
    if !options.json {
        let share = if total == 0 { 0.0 } else { 100.0 * right as f64 / total as f64 };
        writeln!(out, "{right} of {total} are right ({share:.1} %)")?;
    }
    Ok(())
}

/// Reads the answers. Blank lines are skipped.
fn read() -> Result<Vec<GradedAnswer>, CommandError> {
    let mut answers = Vec::new();
    for (number, line) in (1..).zip(std::io::stdin().lock().lines()) {
        let invalid =
            |e: &dyn std::fmt::Display| CommandError::input(format!("standard input:{number}: {e}"));
        let line = line.map_err(|e| invalid(&e))?;
        // Some programs write a byte order mark before UTF-8.
        let line = if number == 1 { line.trim_start_matches('\u{feff}') } else { &line };
        if !line.trim().is_empty() {
            answers.push(GradedAnswer::parse(line).map_err(|e| invalid(&e))?);
        }
    }
    Ok(answers)
}
