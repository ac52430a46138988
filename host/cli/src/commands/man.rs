//! `pl-host man`: the manual page, made from the table of arguments.

use std::io::Write;

use clap::CommandFactory;
use clap_mangen::Man;

use crate::arguments::Arguments;
use crate::exit::CommandResult;

pub fn run() -> CommandResult {
    let mut page = Vec::new();
    let mut command = Arguments::command();
    // Names of subcommands are those that users type: `pl-host plugin new`.
    command.build();
    Man::new(command.clone()).render(&mut page)?;
    for subcommand in command.get_subcommands().filter(|subcommand| subcommand.get_name() != "help") {
        write!(page, "{}", section(subcommand))?;
        for nested in subcommand.get_subcommands().filter(|nested| nested.get_name() != "help") {
            write!(page, "{}", section(nested))?;
        }
    }
    Ok(std::io::stdout().write_all(&page)?)
}

/// Returns the options of a command as a section of the page.
fn section(command: &clap::Command) -> String {
    let mut options = Vec::new();
    // Writing to memory can't fail.
    let _ = Man::new(command.clone()).render_options_section(&mut options);
    let options = String::from_utf8_lossy(&options).into_owned();
    let name = command.get_bin_name().unwrap_or(command.get_name());
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let heading = format!(".SH {}\n{about}\n", name.to_uppercase());
    heading + options.trim_start_matches(".SH OPTIONS\n")
}
