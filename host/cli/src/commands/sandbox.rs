//! `pl-host sandbox`: what an agent's code would get, and what its workers need.

use std::io::{IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use pl_dsl::workflow::{Docker, Sandbox as Settings, SandboxBackend};
use pl_sandbox::{
    DEFAULT_IMAGE, DockerSettings, DockerWorkers, Ending, ImageSource, Inspection, Job, Verdict,
};

use crate::arguments::{Backend, Sandbox as Command, SandboxDoctor, SandboxEngine, SandboxImage, SandboxRun};
use crate::exit::{Outcome, Stop};
use crate::progress;
use crate::workers::{LazyWorkers, docker_settings};

/// What the default image is fetched as.
const REGISTRY_IMAGE: &str = "python:3.11-slim";

pub fn run(command: &Command) -> Outcome {
    match command {
        Command::Run(options) => run_file(options),
        Command::Doctor(options) => doctor(options),
        Command::Image(options) => image(options),
    }
}

fn run_file(options: &SandboxRun) -> Outcome {
    let job = job(options)?;
    let workers = LazyWorkers::find(&settings(options), Path::new(""))?;
    let runtime = tokio::runtime::Runtime::new().map_err(Stop::failed)?;
    let verdicts = runtime.block_on(workers.execute(vec![job]));
    let Some(verdict) = verdicts.into_iter().next() else {
        return Err(Stop::failed("the sandbox gave no verdict"));
    };
    std::io::stdout().write_all(verdict.stdout.as_bytes())?;
    eprint!("{}", verdict.stderr);
    if options.usage {
        eprintln!("{}", usage(&verdict));
    }
    match verdict.ending {
        Ending::Ok => Ok(()),
        ending => {
            let exit = verdict.exit.map(|code| format!(", exit code {code}")).unwrap_or_default();
            Err(Stop::failed(format!("{}: {}{exit}", options.file.display(), ending.as_str())))
        }
    }
}

/// `1.25 s, 7.9 MiB`
fn usage(verdict: &Verdict) -> String {
    let memory = verdict.usage.memory.map(|bytes| format!(", {:.1} MiB", bytes as f64 / f64::from(1 << 20)));
    format!("{:.3} s{}", verdict.usage.time.as_secs_f64(), memory.unwrap_or_default())
}

fn settings(options: &SandboxRun) -> Settings {
    let backend = match options.backend {
        Backend::Wasm => SandboxBackend::Wasm,
        Backend::Docker => SandboxBackend::Docker,
    };
    let docker = || Docker { run: options.run.clone(), ..containers(&options.engine) };
    Settings {
        backend,
        timeout: Duration::from_secs(options.timeout),
        memory: options.memory << 20,
        output: 1 << 20,
        workers: 1,
        docker: (backend == SandboxBackend::Docker).then(docker),
    }
}

fn containers(engine: &SandboxEngine) -> Docker {
    let usual = DockerSettings::default();
    Docker {
        image: engine.image.clone(),
        pids: usual.pids,
        cpus: usual.cpus,
        endpoints: engine.endpoints.clone(),
        certificates: engine.certificates.as_ref().map(|path| path.display().to_string()),
        jobs_per_worker: usual.jobs_per_worker,
        run: Vec::new(),
        fallback: false,
    }
}

fn job(options: &SandboxRun) -> Result<Job, Stop> {
    let source = std::fs::read_to_string(&options.file)
        .map_err(|e| Stop::input(format!("cannot read {}: {e}", options.file.display())))?;
    let mut stdin = String::new();
    if !std::io::stdin().is_terminal() {
        std::io::stdin().read_to_string(&mut stdin).map_err(Stop::input)?;
    }
    let language = match options.file.extension().and_then(|ending| ending.to_str()) {
        Some("sh") => "shell",
        Some("py") | None => "python",
        Some(other) => other,
    };
    Ok(Job { language: language.to_owned(), source, stdin, ..Job::default() })
}

/// The settings of containers as the command line has them.
fn engines(engine: &SandboxEngine) -> DockerSettings {
    let settings = Settings {
        backend: SandboxBackend::Docker,
        timeout: Duration::from_secs(20),
        memory: 256 << 20,
        output: 64 << 10,
        workers: 1,
        docker: None,
    };
    docker_settings(&settings, &containers(engine), Path::new(""))
}

/// Says what each backend has and lacks. Exit code 1 where containers can't be had.
fn doctor(options: &SandboxDoctor) -> Outcome {
    let settings = engines(&options.engine);
    let runtime = tokio::runtime::Runtime::new().map_err(Stop::failed)?;
    let found = runtime.block_on(DockerWorkers::inspect(&settings));
    let mut out = std::io::stdout().lock();
    writeln!(out, "wasm: ready (Python, built in)")?;
    for one in &found {
        write!(out, "{}", report(one))?;
    }
    if !found.iter().any(|one| one.problem.is_none()) {
        return Err(Stop::failed("the docker backend can't run programs yet"));
    }
    // The proof: a container that is as closed as it should be, or its supervisor refuses.
    let one = pl_sandbox::SandboxLimits { workers: 1, ..settings.limits.clone() };
    let tried = runtime.block_on(async {
        let workers = DockerWorkers::start(DockerSettings { limits: one, ..settings }, |_| ()).await?;
        workers.shut_down().await;
        Ok::<(), pl_sandbox::Error>(())
    });
    tried.map_err(Stop::failed)?;
    writeln!(out, "docker: ready (a container was started, found closed, and removed)")?;
    Ok(())
}

/// A few lines on an endpoint.
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

/// Makes the image of the containers: fetched where a registry is reachable, else from a root file system.
fn image(options: &SandboxImage) -> Outcome {
    let settings = engines(&options.engine);
    let runtime = tokio::runtime::Runtime::new().map_err(Stop::failed)?;
    let make = |source: ImageSource| {
        let spinner = progress::spinner(&format!("making {}", settings.image));
        let shown = spinner.clone();
        let progress = move |step: String| shown.set_message(step);
        let made = runtime.block_on(DockerWorkers::make_image(&settings, source, &progress));
        spinner.finish_and_clear();
        made.map_err(|e| e.to_string())
    };
    if let Some(root) = &options.root {
        let archive = Archive::of(root).map_err(Stop::input)?;
        make(ImageSource::Archive(archive.path.clone())).map_err(Stop::failed)?;
    } else {
        let source = if settings.image == DEFAULT_IMAGE { REGISTRY_IMAGE } else { &settings.image };
        if let Err(fetching) = make(ImageSource::Registry(source.to_owned())) {
            eprintln!("{source} can't be fetched ({fetching}); making Debian with Python instead");
            let archive = Archive::of_debian().map_err(|reason| {
                Stop::failed(format!(
                    "{reason}\nhint: `--root FOLDER` makes the image of any root file system"
                ))
            })?;
            make(ImageSource::Archive(archive.path.clone())).map_err(Stop::failed)?;
        }
    }
    println!("{}", settings.image);
    Ok(())
}

/// The archive of a root file system, removed with this value where it is ours.
struct Archive {
    path: PathBuf,
    ours: Option<PathBuf>,
}

impl Archive {
    /// Of a folder, or the archive that it is already.
    fn of(root: &Path) -> Result<Archive, String> {
        if root.is_file() {
            return Ok(Archive { path: root.to_path_buf(), ours: None });
        }
        if !root.is_dir() {
            return Err(format!("{} is neither a folder nor an archive", root.display()));
        }
        let mut archive = Archive::empty()?;
        archive.pack(root)?;
        Ok(archive)
    }

    /// Of Debian with Python, from a Debian mirror.
    fn of_debian() -> Result<Archive, String> {
        let mut archive = Archive::empty()?;
        let root = archive.path.with_file_name("root");
        let spinner = progress::spinner("debootstrap: Debian with Python, takes a minute");
        let made = command("debootstrap", |made| {
            made.args(["--variant=minbase", "--include=python3", "bookworm"]).arg(&root)
        });
        spinner.finish_and_clear();
        made.map_err(|e| format!("{e} (it needs root and the package debootstrap)"))?;
        archive.pack(&root)?;
        Ok(archive)
    }

    fn empty() -> Result<Archive, String> {
        let folder = std::env::temp_dir().join(format!("pl-host-image-{}", std::process::id()));
        std::fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        Ok(Archive { path: folder.join("root.tar"), ours: Some(folder) })
    }

    fn pack(&mut self, root: &Path) -> Result<(), String> {
        command("tar", |tar| tar.arg("-C").arg(root).arg("-cf").arg(&self.path).arg("."))
    }
}

impl Drop for Archive {
    fn drop(&mut self) {
        if let Some(folder) = &self.ours {
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

fn command(
    name: &str,
    with: impl FnOnce(&mut std::process::Command) -> &mut std::process::Command,
) -> Result<(), String> {
    let output = with(&mut std::process::Command::new(name)).output().map_err(|e| format!("{name}: {e}"))?;
    if output.status.success() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&output.stderr);
    Err(format!("{name}: {}", words.lines().last().unwrap_or("it failed")))
}
