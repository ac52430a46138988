//! `pl-host completions`: a script for a shell, made from the table of arguments.

use std::io::Write;

use clap::CommandFactory;
use clap_complete::{Shell, generate};

use crate::arguments::Arguments;
use crate::exit::CommandResult;

pub fn run(shell: Shell) -> CommandResult {
    Ok(std::io::stdout().write_all(script(shell).as_bytes())?)
}

fn script(shell: Shell) -> String {
    // Into memory first: `generate` panics if its output can't be written to.
    let mut script = Vec::new();
    generate(shell, &mut Arguments::command(), "pl-host", &mut script);
    // clap_complete 4.6 writes a program's name with a hyphen in two ways for Bash, so that no command's options were found.
    String::from_utf8_lossy(&script).replace("pl__subcmd__host", "pl__host")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bash_finds_the_options_of_every_command() {
        let script = script(Shell::Bash);
        let commands: Vec<&str> =
            script.lines().filter_map(|line| line.trim().strip_prefix("cmd=\"")?.strip_suffix('"')).collect();
        assert!(commands.len() > 20, "{script}");
        for command in commands.iter().filter(|command| !command.is_empty()) {
            assert!(script.contains(&format!("\n        {command})\n")), "{command}");
        }
    }
}
