//! vLLM beside a test, from the environment of `cargo xtask servers`.

use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::NamedTempFile;

/// Longest time until vLLM answers: it loads Python modules for minutes on a busy machine.
const LONGEST_START: Duration = Duration::from_secs(900);

/// A running vLLM.
pub struct Vllm {
    child: Child,
    port: u16,
    log: NamedTempFile,
}

impl Vllm {
    /// Starts vLLM with a model's folder on a free port. Returns `None` and reports the test as skipped unless vLLM
    /// is in the cache.
    pub fn start(model: &Path) -> Option<Vllm> {
        let program = program();
        if !program.is_file() {
            let reason = "vLLM is not in the cache (cargo xtask servers fetches it)";
            pl_testing::skip_or_fail(pl_testing::Requirement::Vllm, reason);
            return None;
        }
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let server = Vllm::spawn(&program, model, port);
        server.wait();
        Some(server)
    }

    /// Kills vLLM and starts it again at the same address. Returns without waiting for it.
    pub fn restart(&mut self, model: &Path) {
        self.end();
        *self = Vllm::spawn(&program(), model, self.port);
    }

    fn spawn(program: &Path, model: &Path, port: u16) -> Vllm {
        let log = NamedTempFile::new().unwrap();
        let output = || Stdio::from(File::options().append(true).open(log.path()).unwrap());
        let mut command = Command::new(program);
        command
            .arg("serve")
            .arg(model)
            .args(["--host", "127.0.0.1", "--port", &port.to_string(), "--served-model-name", "base"])
            .args(["--enforce-eager", "--dtype", "float32", "--max-model-len", "2048"])
            .args(["--enable-lora", "--max-loras", "8", "--max-lora-rank", "16"])
            .args(["--logprobs-mode", "processed_logprobs", "--generation-config", "vllm"])
            .arg("--enable-scale-out")
            // vLLM 0.32 on a CPU ends when it divides the prompt of a request with a seed.
            .args(["--no-enable-chunked-prefill", "--max-num-batched-tokens", "8192"])
            .env("VLLM_CPU_KVCACHE_SPACE", "2")
            .env("VLLM_ALLOW_RUNTIME_LORA_UPDATING", "True")
            .env("VLLM_SERVER_DEV_MODE", "1")
            .env("VLLM_NO_USAGE_STATS", "1")
            .env("HF_HUB_OFFLINE", "1")
            .stdin(Stdio::null())
            .stdout(output())
            .stderr(output());
        // A group of its own: the engine is a child of the server, and both must end.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        Vllm { child: command.spawn().unwrap(), port, log }
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    fn wait(&self) {
        let deadline = Instant::now() + LONGEST_START;
        let alive = || Path::new(&format!("/proc/{}/stat", self.child.id())).exists();
        while std::net::TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            let log = || std::fs::read_to_string(self.log.path()).unwrap_or_default();
            assert!(alive() && !is_zombie(self.child.id()), "vLLM has ended:\n{}", log());
            assert!(Instant::now() < deadline, "vLLM did not start:\n{}", log());
            std::thread::sleep(Duration::from_millis(500));
        }
    }

    fn end(&mut self) {
        let group = format!("-{}", self.child.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
        let _ = self.child.wait();
    }
}

impl Drop for Vllm {
    fn drop(&mut self) {
        self.end();
    }
}

/// Returns true if a process has ended and its result was not fetched yet.
fn is_zombie(process: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z'))
}

/// vLLM's program in the cache.
fn program() -> PathBuf {
    pl_toolchain::cache::root().unwrap().join("servers/bin/vllm")
}
