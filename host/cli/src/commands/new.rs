//! `pl-host new`: creates a project of a workflow from a template.

use std::io::Write;

use pl_dsl::pattern;
use pl_dsl::workflow::Palette;
use pl_types::{Fact, FactKind};

use crate::arguments::NewArgs;
use crate::commands::fmt::format_generated;
use crate::exit::{CommandError, CommandResult};

/// Parts of the view of `maths.problems` that the prompts of a pattern show.
const VIEW: [&str; 2] = ["question", "answers"];

/// Fact of `maths.problems` that a router decides by.
const ANSWERED: &str = "answered";

pub fn run(options: &NewArgs) -> CommandResult {
    let NewArgs { name, into, pattern } = options;
    let (folder, what) = match pattern {
        None => (pl_toolchain::create_team(name, into)?, "a team of two agents".to_owned()),
        Some(word) => {
            let unknown = || CommandError::input(format!("there is no pattern `{word}`"));
            let members = members(word).ok_or_else(unknown)?;
            let folder = pl_toolchain::create_pattern(name, into, word, &members)?;
            (folder, format!("a team by the pattern `{word}`"))
        }
    };
    format_generated(&folder.join(format!("{name}.mas")))?;
    let folder = folder.strip_prefix(".").unwrap_or(&folder).display();
    let mut out = std::io::stdout().lock();
    writeln!(out, "{folder}: {what}")?;
    writeln!(out, "  cd {folder}")?;
    writeln!(out, "  pl-host check {name}.mas     # checks the workflow")?;
    writeln!(out, "  pl-host play {name}.mas      # one episode, as a conversation")?;
    writeln!(out, "  pl-host run {name}.mas       # trains")?;
    Ok(())
}

/// Returns the agents and turns of a pattern for the policies of the template.
fn members(word: &str) -> Option<String> {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let palette = Palette {
        agents: names(&["std.chat"]),
        policies: names(&["solver", "checker"]),
        max_agents: usize::MAX,
        max_visits: u32::MAX,
        max_tokens: u64::MAX,
    };
    let fact = Fact { name: ANSWERED.to_owned(), kind: FactKind::Boolean, doc: String::new() };
    pattern(word, &palette, &VIEW, &[fact])
}
