//! A worker process, as `pl-host sandbox worker` is one. Its argument is the file of the Python worker.

use std::path::PathBuf;

fn main() -> std::io::Result<()> {
    let component = std::env::args_os().nth(1).map(PathBuf::from).unwrap_or_default();
    pl_sandbox::serve_jobs(&std::fs::read(component)?)
}
