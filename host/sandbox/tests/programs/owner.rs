//! A process that has a worker process, as `pl-host` has some, for a test that kills it. Its arguments are the worker's
//! program, the file of the Python worker, the folder of the cache, and a Python program for the worker, or none.

use std::error::Error;
use std::io::Write;

use pl_sandbox::{Job, ProcessSettings, ProcessWorkers, SandboxLimits, WorkerProgram};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, component, cache, program @ ..] = arguments.as_slice() else {
        return Err("three arguments are needed".into());
    };
    let settings = ProcessSettings {
        program: WorkerProgram { path: path.into(), arguments: vec![component.clone()] },
        cache_dir: cache.into(),
        limits: SandboxLimits { workers: 1, ..SandboxLimits::default() },
        jobs_per_worker: 1000,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(own_a_process(settings, program.first()))
}

/// Starts a worker process, gives it a job, and waits until this process is killed.
async fn own_a_process(settings: ProcessSettings, program: Option<&String>) -> Result<(), Box<dyn Error>> {
    let workers = ProcessWorkers::start(settings).await?;
    writeln!(std::io::stdout(), "started")?;
    if let Some(source) = program {
        let job = Job { language: "python".to_owned(), source: source.clone(), ..Job::default() };
        drop(workers.run(job).await);
    }
    std::future::pending().await
}
