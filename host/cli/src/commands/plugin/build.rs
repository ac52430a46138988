//! `pl-host plugin build`: from a project to a component that says what it offers.

use std::io::Write;
use std::time::Instant;

use pl_toolchain::{Built, Profile, Project};

use super::{Loader, describe, read};
use crate::arguments::PluginBuild;
use crate::exit::{Outcome, Stop};

pub fn run(options: &PluginBuild) -> Outcome {
    let project = Project::open(&options.folder)?;
    let say = |line: &str| eprintln!("{line}");
    if options.fetch {
        pl_toolchain::fetch(project.language, &say)?;
    }
    let profile = if options.release { Profile::Release } else { Profile::Dev };
    let start = Instant::now();
    let built = build(&project, profile)?;
    let seconds = start.elapsed().as_secs_f64();
    let size = built.bytes as f64 / 1e6;
    writeln!(std::io::stdout(), "{}: {size:.1} MB, built in {seconds:.1} s", built.component.display())?;
    Ok(())
}

/// Builds a project's component and writes into it what it offers, so that `check` need not compile it. What loads here
/// is compiled for the next run too.
pub fn build(project: &Project, profile: Profile) -> Result<Built, Stop> {
    let built = pl_toolchain::build(project, profile, &|line| eprintln!("{line}"))?;
    describe::embed(&Loader::new()?, &built.component, &read(&built.component)?)?;
    Ok(built)
}
