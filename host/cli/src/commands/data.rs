//! `pl-host data`: the data sets that workflows can name.

use std::fmt::Display;
use std::io::{self, Write};
use std::path::Path;

use pl_run::LocateError;
use pl_run::data::{LocatedSplit, folders, splits, tasks_at};
use serde_json::{Map, Value, json};

use crate::arguments::data::{DataCheckArgs, DataCommand, DataListArgs, DataShowArgs};
use crate::exit::{CommandError, CommandResult};
use crate::table::plain_table;
use crate::visible;

/// Longest part of a task that `show` prints, in characters.
const SHOWN_TASK: usize = 400;

pub fn run(command: &DataCommand) -> CommandResult {
    match command {
        DataCommand::List(options) => list(options),
        DataCommand::Show(options) => show(options),
        DataCommand::Check(options) => check(options),
    }
}

fn invalid(error: LocateError) -> CommandError {
    CommandError::input(error.to_string())
}

fn list(options: &DataListArgs) -> CommandResult {
    let splits = splits(None).map_err(invalid)?;
    let mut out = visible::stdout();
    if options.json {
        let shown: Vec<Value> = splits.iter().map(as_json).collect();
        writeln!(out, "{:#}", Value::Array(shown))?;
        return Ok(());
    }
    let mut table = plain_table(["tasks", "environment", "on this machine", "content"]);
    for own in &splits {
        let place = match (&own.files, &own.split.hub) {
            (Some(_), _) => "yes",
            (None, Some(_)) => "fetched when it is used",
            (None, None) => "no",
        };
        table.add_row([
            own.name(),
            own.data.environment.to_owned(),
            place.to_owned(),
            own.data.title.to_owned(),
        ]);
    }
    writeln!(out, "{}\n", table.trim_fmt())?;
    let folders: Vec<String> =
        folders().map_err(invalid)?.iter().map(|one| one.display().to_string()).collect();
    writeln!(
        out,
        "looked for in {}; `pl-host data show NAME` says under which names",
        folders.join(" and ")
    )?;
    Ok(())
}

fn as_json(own: &LocatedSplit) -> Value {
    json!({
        "name": own.name(),
        "environment": own.data.environment,
        "title": own.data.title,
        "licence": own.data.licence,
        "published": own.data.published,
        "files": own.files,
        "hub": own.split.hub.as_ref().map(|hub| hub.repo),
    })
}

fn show(options: &DataShowArgs) -> CommandResult {
    let mut out = visible::stdout();
    if let Some(found) = tasks_at(&options.name).map_err(invalid)? {
        for own in &found {
            let files: Vec<&Path> = own.files.iter().map(|file| file.path()).collect();
            writeln!(out, "{}", own.name)?;
            writeln!(out, "  files  {}", paths(&files))?;
            show_tasks(&mut out, own.tasks())?;
        }
        return Ok(());
    }
    let splits = splits(Some(&options.name)).map_err(invalid)?;
    if let Some(LocatedSplit { data, .. }) = splits.first() {
        writeln!(out, "{}: {}", data.name, data.title)?;
        writeln!(out, "  environment  {}", data.environment)?;
        writeln!(out, "  published    {} ({})", data.published, data.licence)?;
    }
    for own in &splits {
        writeln!(out, "\n{}", own.name())?;
        let begins: Vec<String> = own.split.files.iter().map(|prefix| format!("{prefix}*")).collect();
        match (&own.files, &own.split.hub) {
            (Some(files), _) => {
                let files: Vec<&Path> = files.iter().map(|file| file.as_path()).collect();
                writeln!(out, "  files  {}", paths(&files))?;
            }
            (None, Some(hub)) => {
                writeln!(out, "  fetched from {}, or put here as {}", hub.repo, begins.join(" or "))?;
            }
            (None, None) => writeln!(out, "  missing: put it here as {}", begins.join(" or "))?,
        }
        if let Some(tasks) = own.tasks() {
            show_tasks(&mut out, tasks)?;
        }
    }
    let folders: Vec<String> =
        folders().map_err(invalid)?.iter().map(|one| one.display().to_string()).collect();
    writeln!(out, "\nlooked for in {}; forms: .jsonl, .jsonl.gz, .json, .parquet", folders.join(" and "))?;
    Ok(())
}

/// Writes the number of tasks and the first one, or the reason for which they can't be read.
fn show_tasks(out: &mut impl Write, tasks: Result<Vec<Map<String, Value>>, impl Display>) -> io::Result<()> {
    let tasks = match tasks {
        Ok(tasks) => tasks,
        Err(problem) => return writeln!(out, "  problem  {problem}"),
    };
    writeln!(out, "  tasks  {}", tasks.len())?;
    let first = tasks.into_iter().next().map(|task| Value::Object(task).to_string()).unwrap_or_default();
    let shown: String = first.chars().take(SHOWN_TASK).collect();
    let more = if shown.len() < first.len() { "…" } else { "" };
    writeln!(out, "  first  {shown}{more}")
}

/// Numbers of splits by what became of reading them.
#[derive(Default)]
struct Checked {
    read: usize,
    problems: usize,
}

impl Checked {
    fn add(
        &mut self,
        out: &mut impl Write,
        name: &str,
        tasks: Result<Vec<Map<String, Value>>, impl Display>,
    ) -> io::Result<()> {
        let problem = match tasks {
            Ok(tasks) if tasks.is_empty() => "it has no tasks".to_owned(),
            Ok(tasks) => {
                self.read += 1;
                return writeln!(out, "ok       {name}: {} tasks", tasks.len());
            }
            Err(problem) => problem.to_string(),
        };
        self.problems += 1;
        writeln!(out, "PROBLEM  {name}: {problem}")
    }
}

fn check(options: &DataCheckArgs) -> CommandResult {
    let name = options.name.as_deref();
    let mut out = visible::stdout();
    let mut checked = Checked::default();
    if let Some(found) = name.map(tasks_at).transpose().map_err(invalid)?.flatten() {
        for own in &found {
            checked.add(&mut out, &own.name, own.tasks())?;
        }
    } else {
        for own in splits(name).map_err(invalid)? {
            match own.tasks() {
                Some(tasks) => checked.add(&mut out, &own.name(), tasks)?,
                None if name.is_some() => writeln!(out, "missing  {}", own.name())?,
                None => {}
            }
        }
    }
    if checked.problems > 0 {
        return Err(CommandError::failed(format!("{} splits can't be read", checked.problems)));
    }
    if checked.read == 0 {
        return Err(CommandError::failed("none of these data sets is on this machine"));
    }
    Ok(())
}

fn paths(files: &[&Path]) -> String {
    match files {
        [one] => one.display().to_string(),
        [first, .., last] => format!("{} to {}, {} files", first.display(), last.display(), files.len()),
        [] => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_that_a_run_refuses_are_a_problem() {
        let (mut checked, mut out) = (Checked::default(), Vec::new());
        checked.add(&mut out, "one", Ok::<_, LocateError>(vec![Map::new()])).unwrap();
        checked.add(&mut out, "none", Ok::<_, LocateError>(Vec::new())).unwrap();
        assert_eq!((checked.read, checked.problems), (1, 1));
        let expected = "ok       one: 1 tasks
PROBLEM  none: it has no tasks
";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
