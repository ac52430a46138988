//! `pl-host completions`: a script for a shell, made from the table of arguments.

use std::io::Write;

use clap::CommandFactory;
use clap_complete::{Shell, generate};

use crate::arguments::Arguments;
use crate::exit::CommandResult;

pub fn run(shell: Shell) -> CommandResult {
    // Into memory first: `generate` panics if its output can't be written to.
    let mut script = Vec::new();
    generate(shell, &mut Arguments::command(), "pl-host", &mut script);
    Ok(std::io::stdout().write_all(&script)?)
}
