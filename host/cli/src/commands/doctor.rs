//! `pl-host doctor`: what the machine has, and what is missing for which feature.

use std::io::Write;

use pl_run::doctor::{Check, Status, checks};

use crate::app::App;
use crate::arguments::DoctorArgs;
use crate::exit::{CommandError, CommandResult};
use crate::visible;

pub fn run(app: &App, options: &DoctorArgs) -> CommandResult {
    let checks = checks(&app.host);
    let mut out = visible::stdout();
    if options.json {
        let text = serde_json::to_string_pretty(&checks).map_err(CommandError::failed)?;
        writeln!(out, "{text}")?;
    } else {
        for check in &checks {
            write!(out, "{}", describe(check))?;
        }
    }
    let missing: Vec<&str> =
        checks.iter().filter(|check| check.status == Status::Missing).map(|check| check.name).collect();
    match missing.as_slice() {
        [] => Ok(()),
        missing => Err(CommandError::failed(format!("missing: {}", missing.join(", ")))),
    }
}

/// Describes a check in one line, or two if something helps.
fn describe(check: &Check) -> String {
    let status = match check.status {
        Status::Ready => "ok",
        Status::Limited => "--",
        Status::Missing => "NO",
    };
    // The first line of a problem says what it is.
    let found = check.found.lines().next().unwrap_or_default();
    let mut text = format!("{status}  {:<15} {found}\n", check.name);
    if let Some(remedy) = &check.remedy {
        text.push_str(&format!("{:20}for {}: {remedy}\n", "", check.needed_for));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_comes_with_its_use_and_remedy() {
        let ready = Check {
            name: "cpu",
            status: Status::Ready,
            found: "two threads".into(),
            needed_for: "all",
            remedy: None,
        };
        assert_eq!(describe(&ready), "ok  cpu             two threads\n");
        let missing = Check {
            status: Status::Missing,
            found: "no engine\nlong story".into(),
            remedy: Some("start it".into()),
            ..ready
        };
        let expected = "NO  cpu             no engine\n                    for all: start it\n";
        assert_eq!(describe(&missing), expected);
    }
}
