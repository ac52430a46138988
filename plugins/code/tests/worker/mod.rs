//! The real Python worker, as the host runs it.

use std::path::Path;
use std::sync::OnceLock;

use pl_sandbox::{PythonWorkers, SandboxLimits};
use pl_sdk::sandbox::{Ending, Job, Verdict};
use pl_wasm::{Engine, EngineConfig};
use tokio::runtime::Runtime;

/// Returns one engine for all tests, because the worker takes seconds to load.
fn workers() -> &'static (Runtime, PythonWorkers) {
    static WORKERS: OnceLock<(Runtime, PythonWorkers)> = OnceLock::new();
    WORKERS.get_or_init(|| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/release/plugins/python.wasm.zst");
        let component = std::fs::read(&path)
            .unwrap_or_else(|error| panic!("{}: {error}; `cargo xtask setup` builds it", path.display()));
        let engine = Engine::new(EngineConfig::workers().cache_dir(pl_testing::compile_cache())).unwrap();
        let workers = PythonWorkers::new(&engine, &component, SandboxLimits::default()).unwrap();
        (Runtime::new().unwrap(), workers)
    })
}

/// Runs a guest's job as the host does.
pub fn execute(job: &Job) -> Verdict {
    let (runtime, workers) = workers();
    let Job { language, source, stdin, .. } = job.clone();
    let job = pl_sandbox::Job { language, source, stdin, ..pl_sandbox::Job::default() };
    let verdict = runtime.block_on(workers.run(job));
    let ending = match verdict.ending {
        pl_sandbox::Ending::Ok => Ending::Ok,
        pl_sandbox::Ending::Error => Ending::Error,
        pl_sandbox::Ending::Timeout => Ending::Timeout,
        pl_sandbox::Ending::Memory => Ending::Memory,
        pl_sandbox::Ending::OutputLimit => Ending::OutputLimit,
        pl_sandbox::Ending::ProcessLimit => Ending::ProcessLimit,
        pl_sandbox::Ending::LostWorker => Ending::LostWorker,
    };
    Verdict { ending, exit: verdict.exit, stdout: verdict.stdout, stderr: verdict.stderr }
}
