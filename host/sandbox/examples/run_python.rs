//! Runs a Python file in the sandbox: `cargo run -p pl-sandbox --example run_python WORKER.wasm FILE.py`.
use pl_sandbox::*;
use std::time::Instant;
#[tokio::main]
async fn main() {
    let args: Vec<String> = std::env::args().collect();
    let t = Instant::now();
    let engine = pl_wasm::Engine::new(pl_wasm::EngineConfig::workers().cache_dir("/tmp/pyx/cache")).unwrap();
    let w = PythonWorkers::new(&engine, &std::fs::read(&args[1]).unwrap(), SandboxLimits::default()).unwrap();
    eprintln!("load {:?}", t.elapsed());
    let source = std::fs::read_to_string(&args[2]).unwrap();
    for _ in 0..3 {
        let t = Instant::now();
        let v = w
            .run(Job {
                language: "python".into(),
                source: source.clone(),
                stdin: "hello\n".into(),
                files: vec![],
            })
            .await;
        eprintln!(
            "{:?} {:?} {:?} repro {}\n{}\n--\n{}",
            t.elapsed(),
            v.ending,
            v.exit,
            v.reproducible,
            v.stdout,
            v.stderr
        );
    }
}
