//! `pl-host designs`: the designs of a search, the best first.

use std::io::Write;

use pl_run::design::read_designs;

use crate::arguments::design::DesignsArgs;
use crate::commands::design::line;
use crate::exit::{CommandError, CommandResult};
use crate::visible;

pub fn run(options: &DesignsArgs) -> CommandResult {
    let mut records = read_designs(&options.folder)?;
    if let Some(hash) = &options.show {
        records.retain(|record| record.hash.starts_with(hash.as_str()));
        if records.is_empty() {
            let message = format!("--show {hash}: {} has no such design", options.folder.display());
            return Err(CommandError::input(message));
        }
    }
    let mut out = visible::stdout();
    for record in &records {
        if options.json {
            writeln!(out, "{}", serde_json::to_string(record).map_err(CommandError::failed)?)?;
            continue;
        }
        writeln!(out, "{}", line(record))?;
        if options.show.is_some() {
            let parents =
                if record.parents.is_empty() { "none".to_owned() } else { record.parents.join(", ") };
            writeln!(out, "parents: {parents}\n\n{}", record.design)?;
        }
    }
    Ok(())
}
