//! `pl-host plugin build`: builds a component with its description.

use std::io::Write;
use std::time::Instant;

use pl_toolchain::{BuildOutput, Profile, Project};

use super::describe;
use super::loader::{Loader, read};
use crate::app::App;
use crate::arguments::plugin::PluginBuildArgs;
use crate::exit::{CommandError, CommandResult};
use crate::stderr;

pub fn run(app: &App, options: &PluginBuildArgs) -> CommandResult {
    let project = Project::open(&options.folder)?;
    if options.fetch {
        pl_toolchain::fetch(project.language, &stderr::line)?;
    }
    let profile = if options.release { Profile::Release } else { Profile::Dev };
    let start = Instant::now();
    let built = build(app, &project, profile)?;
    let seconds = start.elapsed().as_secs_f64();
    let size = built.bytes as f64 / 1e6;
    writeln!(std::io::stdout(), "{}: {size:.1} MB, built in {seconds:.1} s", built.component.display())?;
    Ok(())
}

/// Builds a project's component and writes its description into it, so that `check` does not have to compile
/// it. The component is then in the compile cache of the next run.
pub fn build(app: &App, project: &Project, profile: Profile) -> Result<BuildOutput, CommandError> {
    let built = pl_toolchain::build(project, profile, &stderr::line)?;
    describe::embed(&Loader::for_builds(app)?, &built.component, &read(&built.component)?)?;
    Ok(built)
}
