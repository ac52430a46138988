//! A separate Docker engine for tests, with an image of Debian and Python.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use pl_sandbox::{DockerSettings, DockerWorkers, ImageSource, Job, SandboxLimits};
use pl_testing::{Requirement, skip_or_fail};

/// Image that every test engine has.
pub const IMAGE: &str = "pl-host-test:1";

/// A `dockerd` with its own data folder. It is stopped when this value is dropped.
pub struct TestEngine {
    daemon: Child,
    folder: PathBuf,
    arguments: Vec<String>,
}

impl TestEngine {
    /// Starts an engine. Returns `None` and reports the test as skipped if that is not possible.
    pub async fn start(name: &str) -> Option<TestEngine> {
        TestEngine::start_with(name, &[]).await
    }

    /// Starts an engine with more arguments, like [`TestEngine::start`].
    pub async fn start_with(name: &str, arguments: &[String]) -> Option<TestEngine> {
        match TestEngine::try_start(name, arguments).await {
            Ok(engine) => Some(engine),
            Err(reason) => {
                skip_or_fail(Requirement::Docker, &format!("no Docker engine starts: {reason}"));
                None
            }
        }
    }

    async fn try_start(name: &str, arguments: &[String]) -> Result<TestEngine, String> {
        // SAFETY: no memory is involved.
        if unsafe { libc::geteuid() } != 0 {
            return Err("an engine needs root".to_owned());
        }
        for program in ["dockerd", "docker", "debootstrap"] {
            if !on_path(program) {
                return Err(format!("{program} is not installed"));
            }
        }
        let folder = std::env::temp_dir().join(format!("pl-host-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut engine =
            TestEngine { daemon: daemon(&folder, arguments), folder, arguments: arguments.to_vec() };
        engine.wait()?;
        let image = ImageSource::Archive(root_fs());
        DockerWorkers::make_image(&engine.settings(), image, &|_| ()).await.unwrap();
        // An engine may answer and still lack the permission to create containers.
        match engine.docker(&["run", "--rm", "--network=none", IMAGE, "echo", "runs"]).as_str() {
            "runs" => Ok(engine),
            _ => Err("the engine runs no containers".to_owned()),
        }
    }

    pub fn endpoint(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    fn socket(&self) -> PathBuf {
        self.folder.join("docker.sock")
    }

    /// Returns settings for two workers on this engine.
    pub fn settings(&self) -> DockerSettings {
        DockerSettings {
            limits: SandboxLimits {
                workers: 2,
                timeout: Duration::from_secs(10),
                ..SandboxLimits::default()
            },
            image: IMAGE.to_owned(),
            endpoints: vec![self.endpoint()],
            ..DockerSettings::default()
        }
    }

    /// Runs the `docker` command on this engine and returns what it prints.
    pub fn docker(&self, arguments: &[&str]) -> String {
        let output = Command::new("docker").arg("-H").arg(self.endpoint()).args(arguments).output().unwrap();
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// Returns the ids of all containers.
    pub fn containers(&self) -> Vec<String> {
        self.docker(&["ps", "--all", "--quiet", "--no-trunc"]).lines().map(str::to_owned).collect()
    }

    /// Stops the daemon and starts it again. Its containers die.
    pub fn restart(&mut self) {
        self.stop();
        self.daemon = daemon(&self.folder, &self.arguments);
        self.wait().unwrap();
    }

    fn stop(&mut self) {
        // SAFETY: no memory is involved, and the process is a child of this one.
        unsafe { libc::kill(self.daemon.id().cast_signed(), libc::SIGTERM) };
        self.daemon.wait().unwrap();
    }

    fn wait(&mut self) -> Result<(), String> {
        let started = Instant::now();
        while std::os::unix::net::UnixStream::connect(self.socket()).is_err()
            || self.docker(&["version"]).is_empty()
        {
            if self.daemon.try_wait().unwrap().is_some() || started.elapsed() > Duration::from_secs(60) {
                let log = std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
                return Err(format!("dockerd does not start: {}", log.lines().last().unwrap_or_default()));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }
}

impl Drop for TestEngine {
    fn drop(&mut self) {
        self.stop();
        // The engine has unmounted everything when it has ended.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn daemon(folder: &Path, arguments: &[String]) -> Child {
    let log = std::fs::File::create(folder.join("log")).unwrap();
    Command::new("dockerd")
        .args(["--iptables=false", "--ip6tables=false", "--bridge=none"])
        .arg("--data-root")
        .arg(folder.join("data"))
        .arg("--exec-root")
        .arg(folder.join("exec"))
        .arg("--pidfile")
        .arg(folder.join("pid"))
        .arg(format!("--host=unix://{}", folder.join("docker.sock").display()))
        .args(arguments)
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap()
}

/// Returns the path of an archive of Debian with Python. It is made once, in `$PL_HOST_CACHE` or else in the
/// target folder.
pub fn root_fs() -> PathBuf {
    let archive = archive();
    // Tests that start in the meantime wait until it is made.
    let lock = std::fs::File::create(archive.with_extension("lock")).unwrap();
    lock.lock().unwrap();
    if !archive.is_file() {
        let folder = archive.with_extension("partial");
        let partial = archive.with_extension("partial.tar");
        let _ = std::fs::remove_dir_all(&folder);
        run(Command::new("debootstrap")
            .args(["--variant=minbase", "--include=python3", "bookworm"])
            .arg(&folder));
        // No test reads these files, which are half of it, and each engine unpacks the archive.
        let left_out =
            ["var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/locale", "usr/share/man"];
        let mut tar = Command::new("tar");
        tar.args(left_out.map(|folder| format!("--exclude=./{folder}/*")));
        run(tar.arg("-C").arg(&folder).arg("-cf").arg(&partial).arg("."));
        std::fs::rename(partial, &archive).unwrap();
        std::fs::remove_dir_all(folder).unwrap();
    }
    archive
}

fn archive() -> PathBuf {
    let folder = std::env::var_os("PL_HOST_CACHE")
        .map_or_else(|| Path::new(env!("CARGO_TARGET_TMPDIR")).to_path_buf(), PathBuf::from);
    std::fs::create_dir_all(&folder).unwrap();
    folder.join("debian-python.tar")
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

pub fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

pub fn python(source: &str) -> Job {
    Job { language: "python".to_owned(), source: source.to_owned(), ..Job::default() }
}
