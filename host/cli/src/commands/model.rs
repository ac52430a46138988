//! `pl-host model`: fetches the model of the examples.

use std::io::Write;

use crate::exit::CommandResult;

pub fn run() -> CommandResult {
    let model = pl_toolchain::fetch_example_model(&|line| eprintln!("{line}"))?;
    Ok(writeln!(std::io::stdout(), "{}", model.display())?)
}
