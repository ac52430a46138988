//! `pl-host model`: fetches the model of the examples.

use std::io::Write;

use crate::exit::CommandResult;
use crate::stderr;

pub fn run() -> CommandResult {
    let model = pl_toolchain::fetch_example_model(&stderr::line)?;
    Ok(writeln!(std::io::stdout(), "{}", model.display())?)
}
