//! `pl-host explain`: explains a code, a block, a setting or a function.

use std::io::Write;

use pl_dsl::explain::{explain, to_plain_text, topics};

use crate::arguments::workflow::ExplainArgs;
use crate::exit::{CommandError, CommandResult};

pub fn run(options: &ExplainArgs) -> CommandResult {
    // A check lists codes with commas: `MAS0007, MAS0012`.
    let requested = options.topics.iter().map(|topic| topic.trim_end_matches(','));
    let mut pages = requested.map(explain).collect::<Result<Vec<_>, _>>().map_err(CommandError::input)?;
    if pages.is_empty() {
        pages.push(topics());
    }
    Ok(std::io::stdout().lock().write_all(to_plain_text(&pages.join("\n\n")).as_bytes())?)
}
