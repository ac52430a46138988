//! `pl-host plan`: what a run would do, without doing it.

use std::io::Write;

use crate::arguments::Plan as Options;
use crate::exit::{Outcome, Stop};
use crate::plan::Plan;
use crate::session::{self, Loaded};

pub fn run(options: &Options) -> Outcome {
    let runtime = tokio::runtime::Runtime::new().map_err(Stop::failed)?;
    let device = session::device(options.device)?;
    let loaded = Loaded::open(&runtime, &options.source.file, &options.source.given.all()?)?;
    let plan = Plan::of(&loaded, device);
    let mut out = std::io::stdout().lock();
    match options.json {
        true => writeln!(out, "{:#}", plan.json())?,
        false => write!(out, "{plan}")?,
    }
    Ok(())
}
