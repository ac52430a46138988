//! `pl-host plugin dev`: builds a plugin whenever its sources change, and replays a recorded episode against each build.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant, SystemTime};

use notify::{RecursiveMode, Watcher};
use pl_toolchain::{Profile, Project};

use super::build;
use crate::arguments::{PluginDev, Replay};
use crate::commands::replay;
use crate::exit::{Outcome, Stop, report};

/// How long the sources must rest before they are built: editors write files in several steps.
const REST: Duration = Duration::from_millis(80);

pub fn run(options: &PluginDev) -> Outcome {
    let project = Project::open(&options.folder)?;
    let run = match &options.run {
        Some(run) => run.clone(),
        None => newest_run(&project)?,
    };
    let changes = watch(&project)?;
    loop {
        let turned = turn(&project, &run, options);
        if options.once {
            return turned;
        }
        // What went wrong is mended by the next change.
        report(turned);
        eprintln!("waiting for changes of {} (Ctrl-C ends)", project.folder.display());
        if !changes.wait() {
            return Err(Stop::failed("the project's folder can't be watched any more"));
        }
    }
}

/// Builds, and replays against the build.
fn turn(project: &Project, run: &Path, options: &PluginDev) -> Outcome {
    let begun = Instant::now();
    let component = build::build(project, Profile::Dev)?.component;
    let replayed = replay::run(&Replay {
        run: run.to_owned(),
        episode: Some(match &options.episode {
            Some(episode) => episode.clone(),
            None => replay::last(run)?,
        }),
        all: false,
        failed: false,
        show: options.show,
        plugins: vec![(options.plugin.clone().unwrap_or_else(|| project.name.clone()), component)],
    });
    eprintln!("built and replayed in {:.2} s", begun.elapsed().as_secs_f64());
    replayed
}

/// The newest run below `runs` of the working folder or of the project's.
fn newest_run(project: &Project) -> Result<PathBuf, Stop> {
    let folders = [PathBuf::from("runs"), project.folder.join("runs")];
    let runs = folders.iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten().flatten();
    let dated = runs.filter_map(|entry| {
        let path = entry.path();
        let begun: SystemTime = path.join("workflow.json").metadata().ok()?.modified().ok()?;
        Some((begun, path))
    });
    dated.max().map(|(_, path)| path).ok_or_else(|| {
        Stop::input(format!(
            "there is no run whose episode could be replayed: `pl-host run {0}.mas --set train.steps=1` makes one, and \
             --run names one that lies elsewhere",
            project.folder.join(&project.name).display()
        ))
    })
}

/// What happens to a project's sources.
struct Changes {
    events: Receiver<()>,
    _watcher: notify::RecommendedWatcher,
}

fn watch(project: &Project) -> Result<Changes, Stop> {
    let (sender, events) = channel();
    // What is made by building is no change.
    let made = [
        project.folder.join("target"),
        project.folder.join("runs"),
        project.out.clone(),
        project.folder.join("sdk"),
    ];
    let own = move |path: &Path| {
        let hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        !hidden
            && !made.iter().any(|made| path.starts_with(made))
            && path.extension().is_none_or(|e| e != "part" && e != "lock")
    };
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        if event.is_ok_and(|event| !event.kind.is_access() && event.paths.iter().any(|path| own(path))) {
            // Nobody listens any more when the command ends.
            let _ = sender.send(());
        }
    })
    .map_err(Stop::failed)?;
    watcher.watch(&project.folder, RecursiveMode::Recursive).map_err(Stop::failed)?;
    Ok(Changes { events, _watcher: watcher })
}

impl Changes {
    /// Waits for a change, and until the sources rest. False: there will be none.
    fn wait(&self) -> bool {
        if self.events.recv().is_err() {
            return false;
        }
        while self.events.recv_timeout(REST).is_ok() {}
        true
    }
}
