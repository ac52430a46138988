//! `pl-host plugin dev`: builds a plugin after every change, and replays a recorded episode with each build.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant, SystemTime};

use notify::{RecursiveMode, Watcher};
use pl_run::replay::RunTraces;
use pl_toolchain::{Profile, Project};

use super::build;
use crate::app::App;
use crate::arguments::plugin::PluginDevArgs;
use crate::arguments::runs::ReplayArgs;
use crate::commands::replay;
use crate::exit::{CommandError, CommandResult, report};
use crate::stderr;

/// Time without changes before a build: editors write files in several steps.
const QUIET_PERIOD: Duration = Duration::from_millis(80);

pub fn run(app: &App, options: &PluginDevArgs) -> CommandResult {
    let project = Project::open(&options.folder)?;
    let run = match &options.run {
        Some(run) => run.clone(),
        None => newest_run(&project)?,
    };
    let changes = watch(&project)?;
    loop {
        let result = build_and_replay(app, &project, &run, options);
        if options.once {
            return result;
        }
        // The next change may repair an error.
        report(&result);
        stderr::line(&format!("waiting for changes of {} (Ctrl-C ends)", project.folder.display()));
        if !changes.wait() {
            return Err(CommandError::failed("the project's folder can no longer be watched"));
        }
    }
}

/// Builds the project and replays the episode with the build.
fn build_and_replay(app: &App, project: &Project, run: &Path, options: &PluginDevArgs) -> CommandResult {
    let started = Instant::now();
    let component = build::build(app, project, Profile::Dev)?.component;
    let replayed = replay::run(
        app,
        &ReplayArgs {
            run: run.to_owned(),
            episode: Some(match &options.episode {
                Some(episode) => episode.clone(),
                None => RunTraces::open(run)?.last_episode()?,
            }),
            all: false,
            failed: false,
            trust: false,
            show: options.show,
            permissions: options.permissions.clone(),
            plugins: vec![(options.plugin.clone().unwrap_or_else(|| project.name.clone()), component)],
        },
    );
    stderr::line(&format!("built and replayed in {:.2} s", started.elapsed().as_secs_f64()));
    replayed
}

/// Returns the newest run in the folder `runs` of the working folder or of the project.
fn newest_run(project: &Project) -> Result<PathBuf, CommandError> {
    let folders = [PathBuf::from("runs"), project.folder.join("runs")];
    let runs = folders.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten();
    let dated = runs.filter_map(|entry| {
        let path = entry.path();
        let created: SystemTime = path.join("workflow.json").metadata().ok()?.modified().ok()?;
        Some((created, path))
    });
    dated.max().map(|(_, path)| path).ok_or_else(|| {
        CommandError::input(format!(
            "there is no run whose episode could be replayed: create one with `pl-host run {0}.mas --set train.steps=1`, or \
             name one with --run",
            project.folder.join(&project.name).display()
        ))
    })
}

/// Changes of a project's sources.
struct Changes {
    events: Receiver<()>,
    _watcher: notify::RecommendedWatcher,
}

/// Files of a project that are no sources.
struct Ignored {
    /// Outputs of the build and of runs.
    outputs: [PathBuf; 4],
    /// Files that this process writes its output to, as in `pl-host plugin dev > dev.txt`, by [`identity`].
    written: Vec<(u64, u64)>,
}

impl Ignored {
    fn of(project: &Project) -> Self {
        let folder = &project.folder;
        Self {
            outputs: [folder.join("target"), folder.join("runs"), project.out.clone(), folder.join("sdk")],
            written: ["/dev/stdout", "/dev/stderr"]
                .iter()
                .filter_map(|stream| fs::metadata(stream).ok())
                .filter(Metadata::is_file)
                .map(|file| identity(&file))
                .collect(),
        }
    }

    /// Returns false for outputs, hidden files, logs, and parts of files that tools are writing.
    fn is_source(&self, path: &Path) -> bool {
        let hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        !hidden
            && !self.outputs.iter().any(|output| path.starts_with(output))
            && path.extension().is_none_or(|e| e != "part" && e != "lock" && e != "log")
            && !fs::metadata(path).is_ok_and(|file| self.written.contains(&identity(&file)))
    }
}

/// Returns the device of a file and the file's number on it.
fn identity(file: &Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

fn watch(project: &Project) -> Result<Changes, CommandError> {
    let (sender, events) = channel();
    let ignored = Ignored::of(project);
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        if event.is_ok_and(|event| {
            !event.kind.is_access() && event.paths.iter().any(|path| ignored.is_source(path))
        }) {
            // The receiver is gone when the command ends.
            let _ = sender.send(());
        }
    })
    .map_err(CommandError::failed)?;
    watcher.watch(&project.folder, RecursiveMode::Recursive).map_err(CommandError::failed)?;
    Ok(Changes { events, _watcher: watcher })
}

impl Changes {
    /// Waits for a change and then for the quiet period. Returns false if the watcher has ended.
    fn wait(&self) -> bool {
        if self.events.recv().is_err() {
            return false;
        }
        while self.events.recv_timeout(QUIET_PERIOD).is_ok() {}
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_and_the_programs_own_output_are_no_sources() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| {
            let path = folder.path().join(name);
            fs::write(&path, "text").unwrap();
            path
        };
        let written = file("output.txt");
        let ignored = Ignored {
            outputs: ["target", "runs", "guess.wasm", "sdk"].map(|name| folder.path().join(name)),
            written: vec![identity(&fs::metadata(&written).unwrap())],
        };
        for path in [written, file("dev.log"), file(".guess.py.swp"), folder.path().join("target/x")] {
            assert!(!ignored.is_source(&path), "{}", path.display());
        }
        for path in [file("guess.py"), file("words.txt"), folder.path().join("deleted.py")] {
            assert!(ignored.is_source(&path), "{}", path.display());
        }
    }
}
