//! `pl-host new`: creates a project of a workflow from the template.

use std::io::Write;

use crate::arguments::NewArgs;
use crate::exit::CommandResult;

pub fn run(options: &NewArgs) -> CommandResult {
    let folder = pl_toolchain::create_team(&options.name, &options.into)?;
    let (name, folder) = (&options.name, folder.strip_prefix(".").unwrap_or(&folder).display());
    let mut out = std::io::stdout().lock();
    writeln!(out, "{folder}: a team of two agents")?;
    writeln!(out, "  cd {folder}")?;
    writeln!(out, "  pl-host check {name}.mas     # checks the workflow")?;
    writeln!(out, "  pl-host play {name}.mas      # one episode, as a conversation")?;
    writeln!(out, "  pl-host run {name}.mas       # trains")?;
    Ok(())
}
