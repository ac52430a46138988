//! `pl-host sandbox`: runs programs like the code of agents, and sets up their workers.

use std::io::{IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use pl_dsl::workflow::{Docker, Sandbox as Settings, SandboxBackend, WorkerProcesses};
use pl_run::Embedded;
use pl_run::sandbox::{LazyWorkers, docker_settings};
use pl_run::{Permissions, SandboxMachineOptions, run_jobs};
use pl_sandbox::{
    DEFAULT_IMAGE, DockerSettings, DockerWorkers, Ending, ImageSource, Inspection, Job, Verdict,
};

use crate::app::App;
use crate::arguments::sandbox::{
    BackendChoice, IsolationChoice, SandboxCommand, SandboxDoctorArgs, SandboxEngineArgs, SandboxImageArgs,
    SandboxRunArgs, SandboxServeArgs,
};
use crate::commands::worker::join_options;
use crate::exit::{CommandError, CommandResult};
use crate::interrupt::stop_on_signals;
use crate::progress::Terminal;
use crate::stderr;
use crate::visible;

/// Name under which a registry has the base of the default image.
const REGISTRY_IMAGE: &str = "python:3.11-slim";

pub fn run(embedded: Embedded, terminal: &Arc<Terminal>, command: &SandboxCommand) -> CommandResult {
    let app = || App::new(embedded, Arc::clone(terminal), Permissions::default());
    match command {
        SandboxCommand::Run(options) => run_file(&app()?, options),
        SandboxCommand::Doctor(options) => doctor(&app()?, options),
        SandboxCommand::Image(options) => image(&app()?, options),
        SandboxCommand::Serve(options) => serve(&app()?, options),
        // Without the threads of an app.
        SandboxCommand::Worker => Ok(pl_sandbox::serve_jobs(embedded.python_worker)?),
    }
}

fn run_file(app: &App, options: &SandboxRunArgs) -> CommandResult {
    require_containers(options)?;
    let job = job(options)?;
    let workers = LazyWorkers::for_workflow(&app.host, &settings(options), Path::new(""))?;
    let verdicts = app.host.block_on(workers.execute(vec![job]));
    let Some(verdict) = verdicts.into_iter().next() else {
        return Err(CommandError::failed("the sandbox returned no verdict"));
    };
    visible::stdout().write_all(verdict.stdout.as_bytes())?;
    match std::io::stderr().is_terminal() {
        true => stderr::text(&visible::visible(&verdict.stderr)),
        false => stderr::text(&verdict.stderr),
    }
    if options.usage {
        stderr::line(&usage(&verdict));
    }
    match verdict.ending {
        Ending::Ok => Ok(()),
        ending => {
            let exit = verdict.exit.map(|code| format!(", exit code {code}")).unwrap_or_default();
            Err(CommandError::failed(format!("{}: {}{exit}", options.file.display(), ending.as_str())))
        }
    }
}

/// Refuses the options of containers for a backend that has none.
fn require_containers(options: &SandboxRunArgs) -> CommandResult {
    let SandboxEngineArgs { image, runtime, endpoints, certificates } = &options.engine;
    let given: Vec<&str> = [
        ("--image", image.is_some()),
        ("--runtime", runtime.is_some()),
        ("--endpoint", !endpoints.is_empty()),
        ("--certificates", certificates.is_some()),
        ("--run", !options.run.is_empty()),
    ]
    .into_iter()
    .filter_map(|(name, is_given)| is_given.then_some(name))
    .collect();
    match options.backend {
        BackendChoice::Wasm if !given.is_empty() => Err(CommandError::input(format!(
            "{}: the wasm backend has no containers; add `--backend docker`",
            given.join(", ")
        ))),
        _ => Ok(()),
    }
}

/// Runs the jobs of runs that other machines coordinate.
fn serve(app: &App, options: &SandboxServeArgs) -> CommandResult {
    let stop = stop_on_signals(app, "the jobs in progress", || {
        "its jobs are run again once their leases have ended".to_owned()
    });
    let cores = || std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(1));
    let machine = SandboxMachineOptions {
        join: join_options(&options.server, &options.run, &options.name),
        slots: options.slots.unwrap_or_else(cores),
        endpoints: options.endpoints.clone(),
        certificates: options.certificates.clone(),
    };
    stderr::line(&format!("sandbox {}", machine.join.name));
    Ok(run_jobs(&app.host, &machine, &stop)?)
}

/// Returns the time and memory of a job: `1.25 s, 7.9 MiB`.
fn usage(verdict: &Verdict) -> String {
    let memory = verdict.usage.memory.map(|bytes| format!(", {:.1} MiB", bytes as f64 / f64::from(1 << 20)));
    format!("{:.3} s{}", verdict.usage.time.as_secs_f64(), memory.unwrap_or_default())
}

fn settings(options: &SandboxRunArgs) -> Settings {
    let backend = match options.backend {
        BackendChoice::Wasm => SandboxBackend::Wasm,
        BackendChoice::Docker => SandboxBackend::Docker,
    };
    let docker = || Docker { run: options.run.clone(), ..containers(&options.engine) };
    Settings {
        backend,
        timeout: Duration::from_secs(options.timeout),
        memory: options.memory << 20,
        output: 1 << 20,
        workers: 1,
        processes: (options.isolation == IsolationChoice::Process)
            .then_some(WorkerProcesses { jobs_per_worker: 1 }),
        docker: (backend == SandboxBackend::Docker).then(docker),
    }
}

fn containers(engine: &SandboxEngineArgs) -> Docker {
    let default = DockerSettings::default();
    Docker {
        image: engine.image.clone(),
        runtime: engine.runtime.clone(),
        pids: default.pids,
        cpus: default.cpus,
        endpoints: engine.endpoints.clone(),
        certificates: engine.certificates.as_ref().map(|path| path.display().to_string()),
        jobs_per_worker: default.jobs_per_worker,
        run: Vec::new(),
        fallback: false,
    }
}

fn job(options: &SandboxRunArgs) -> Result<Job, CommandError> {
    let source = std::fs::read_to_string(&options.file)
        .map_err(|e| CommandError::input(format!("cannot read {}: {e}", options.file.display())))?;
    let mut stdin = String::new();
    if !std::io::stdin().is_terminal() {
        std::io::stdin().read_to_string(&mut stdin).map_err(CommandError::input)?;
    }
    let language = language(options)?;
    Ok(Job { language: language.to_owned(), source, stdin, ..Job::default() })
}

/// Returns the language of the program, by the ending of its name.
///
/// # Errors
/// If the backend can't run it.
fn language(options: &SandboxRunArgs) -> Result<&str, CommandError> {
    let language = match options.file.extension().and_then(|ending| ending.to_str()) {
        Some("sh") => "shell",
        Some("py") | None => "python",
        Some(other) => other,
    };
    let is_docker = options.backend == BackendChoice::Docker;
    let runs = match language {
        "python" => true,
        "shell" => is_docker,
        _ => is_docker && !options.run.is_empty(),
    };
    match runs {
        true => Ok(language),
        false => Err(CommandError::input(format!(
            "{}: unsupported language {language:?}: the wasm backend runs Python; use `--backend docker` for shell (.sh), \
             and `--backend docker --run COMMAND,{{file}}` for others",
            options.file.display()
        ))),
    }
}

/// Returns the container settings of the command line.
fn container_settings(engine: &SandboxEngineArgs) -> DockerSettings {
    let settings = Settings {
        backend: SandboxBackend::Docker,
        timeout: Duration::from_secs(20),
        memory: 256 << 20,
        output: 64 << 10,
        workers: 1,
        processes: None,
        docker: None,
    };
    docker_settings(&settings, &containers(engine), Path::new(""))
}

/// Shows what each backend has and lacks. The default backend needs nothing. Fails if the options ask for containers, and these
/// are not usable.
fn doctor(app: &App, options: &SandboxDoctorArgs) -> CommandResult {
    let settings = container_settings(&options.engine);
    let found = app.host.block_on(DockerWorkers::inspect(&settings));
    let mut out = visible::stdout();
    writeln!(out, "wasm: ready (built-in Python)")?;
    for one in &found {
        write!(out, "{}", report(one))?;
    }
    if !found.iter().any(|one| one.problem.is_none()) {
        let unusable = "the docker backend can't run programs yet";
        let SandboxEngineArgs { image, runtime, endpoints, .. } = &options.engine;
        if image.is_some() || runtime.is_some() || !endpoints.is_empty() {
            return Err(CommandError::failed(unusable));
        }
        return Ok(writeln!(out, "{unusable}")?);
    }
    // The test: a supervisor refuses to work in a container that is not isolated as it should be.
    let one = pl_sandbox::SandboxLimits { workers: 1, ..settings.limits.clone() };
    let started = app.host.block_on(async {
        let workers = DockerWorkers::start(DockerSettings { limits: one, ..settings }, |_| ()).await?;
        workers.shut_down().await;
        Ok::<(), pl_sandbox::Error>(())
    });
    started.map_err(CommandError::failed)?;
    writeln!(out, "docker: ready (a container was started, its isolation checked, and removed)")?;
    Ok(())
}

/// Describes an endpoint in a few lines.
fn report(found: &Inspection) -> String {
    let mut lines = format!("docker at {}\n", found.endpoint);
    let mut line = |text: &str| lines.push_str(&format!("  {text}\n"));
    if let Some(engine) = &found.engine {
        line(&format!("engine: {engine}"));
    }
    if let Some(image) = &found.image {
        line(&format!("image: {image}"));
    }
    if let Some(problem) = &found.problem {
        line(&format!("missing: {problem}"));
    }
    lines
}

/// Creates the image of the containers from a registry, or else from a root file system.
fn image(app: &App, options: &SandboxImageArgs) -> CommandResult {
    let settings = container_settings(&options.engine);
    let create = |source: ImageSource| {
        let spinner = app.terminal.spinner(&format!("creating {}", settings.image));
        let shown = spinner.clone();
        let progress = move |step: String| shown.set_message(step);
        let created = app.host.block_on(DockerWorkers::make_image(&settings, source, &progress));
        spinner.finish_and_clear();
        created
    };
    if let Some(root) = &options.root {
        let archive = Archive::from_root(root)?;
        create(ImageSource::Archive(archive.path.clone())).map_err(CommandError::failed)?;
    } else {
        let source = if settings.image == DEFAULT_IMAGE { REGISTRY_IMAGE } else { &settings.image };
        if let Err(fetching) = create(ImageSource::Registry(source.to_owned())) {
            stderr::line(&format!(
                "{source} can't be fetched ({fetching}); creating Debian with Python instead"
            ));
            let archive = Archive::with_debian(&app.terminal)?;
            create(ImageSource::Archive(archive.path.clone())).map_err(CommandError::failed)?;
        }
    }
    Ok(writeln!(std::io::stdout(), "{}", settings.image)?)
}

/// Archive of a root file system. A temporary one is removed when this value is dropped.
struct Archive {
    path: PathBuf,
    temporary: Option<PathBuf>,
}

impl Archive {
    /// Packs a folder. An archive is used as it is.
    fn from_root(root: &Path) -> Result<Archive, CommandError> {
        if root.is_file() {
            return Ok(Archive { path: root.to_path_buf(), temporary: None });
        }
        if !root.is_dir() {
            let message = format!("{} is neither a folder nor an archive", root.display());
            return Err(CommandError::Input(message));
        }
        let mut archive = Archive::temporary()?;
        archive.pack(root)?;
        Ok(archive)
    }

    /// Packs Debian with Python from a Debian mirror.
    fn with_debian(terminal: &Terminal) -> Result<Archive, CommandError> {
        let mut archive = Archive::temporary()?;
        let root = archive.path.with_file_name("root");
        let spinner = terminal.spinner("debootstrap: Debian with Python, takes a minute");
        let debootstrap = run_tool("debootstrap", |command| {
            command.args(["--variant=minbase", "--include=python3", "bookworm"]).arg(&root)
        });
        spinner.finish_and_clear();
        debootstrap.map_err(|error| {
            let CommandError::Failed(reason) = error else { return error };
            CommandError::Failed(format!(
                "{reason} (debootstrap needs root and the package debootstrap)\nhint: `--root FOLDER` creates the image from \
                 any root file system"
            ))
        })?;
        archive.pack(&root)?;
        Ok(archive)
    }

    fn temporary() -> Result<Archive, CommandError> {
        let folder = std::env::temp_dir().join(format!("pl-host-image-{}", std::process::id()));
        std::fs::create_dir_all(&folder)
            .map_err(|e| CommandError::Failed(format!("cannot create {}: {e}", folder.display())))?;
        Ok(Archive { path: folder.join("root.tar"), temporary: Some(folder) })
    }

    fn pack(&mut self, root: &Path) -> CommandResult {
        run_tool("tar", |tar| tar.arg("-C").arg(root).arg("-cf").arg(&self.path).arg("."))
    }
}

impl Drop for Archive {
    fn drop(&mut self) {
        if let Some(folder) = &self.temporary {
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

/// Runs a program of the system. Fails with the last line that it wrote to stderr.
fn run_tool(
    name: &str,
    with: impl FnOnce(&mut std::process::Command) -> &mut std::process::Command,
) -> CommandResult {
    let output = with(&mut std::process::Command::new(name))
        .output()
        .map_err(|e| CommandError::Failed(format!("cannot run {name}: {e}")))?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr);
    Err(CommandError::Failed(format!("{name}: {}", message.lines().last().unwrap_or("it failed"))))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::arguments::{Arguments, Command};

    /// Returns the options of `sandbox run` with these arguments. Returns `None` if they are invalid.
    fn options(arguments: &[&str]) -> Option<SandboxRunArgs> {
        let arguments = ["pl-host", "sandbox", "run"].iter().chain(arguments);
        match Arguments::try_parse_from(arguments).ok()?.command {
            Command::Sandbox { command: SandboxCommand::Run(options) } => Some(options),
            _ => None,
        }
    }

    #[test]
    fn options_of_containers_need_the_backend_that_has_them() {
        let given = [
            "--image=python:3.12",
            "--runtime=runsc",
            "--endpoint=unix:///docker.sock",
            "--certificates=keys",
            "--run=node,{file}",
        ];
        for flag in given {
            let refused = require_containers(&options(&[flag, "a.py"]).unwrap());
            let Err(CommandError::Input(why)) = refused else { panic!("{flag} is accepted") };
            let name = flag.split_once('=').unwrap().0;
            assert_eq!(why, format!("{name}: the wasm backend has no containers; add `--backend docker`"));
            assert!(require_containers(&options(&["--backend", "docker", flag, "a.py"]).unwrap()).is_ok());
        }
        assert!(require_containers(&options(&["a.py"]).unwrap()).is_ok());
    }

    #[test]
    fn a_language_that_no_backend_runs_is_refused_before_anything_starts() {
        for (arguments, expected) in [
            (&["a.py"][..], "python"),
            (&["--backend", "docker", "a.sh"], "shell"),
            (&["--backend", "docker", "--run", "node,{file}", "a.js"], "js"),
        ] {
            assert!(matches!(language(&options(arguments).unwrap()), Ok(found) if found == expected));
        }
        for arguments in [&["base.mas"][..], &["a.sh"], &["--backend", "docker", "base.mas"]] {
            let options = options(arguments).unwrap();
            let Err(CommandError::Input(why)) = language(&options) else { panic!("{arguments:?}") };
            assert!(why.contains("unsupported language") && why.contains("--run COMMAND,{file}"), "{why}");
        }
    }
}
