//! `pl-host explain`: what a code, a block, a setting or a function means.

use std::io::Write;

use pl_dsl::explain::{explain, plain, topics};

use crate::arguments::Explain;
use crate::exit::{Outcome, Stop};

pub fn run(options: &Explain) -> Outcome {
    // As a check lists them: `MAS0007, MAS0012`.
    let asked = options.topics.iter().map(|topic| topic.trim_end_matches(','));
    let mut pages = asked.map(explain).collect::<Result<Vec<_>, _>>().map_err(Stop::input)?;
    if pages.is_empty() {
        pages.push(topics());
    }
    Ok(std::io::stdout().lock().write_all(plain(&pages.join("\n\n")).as_bytes())?)
}
