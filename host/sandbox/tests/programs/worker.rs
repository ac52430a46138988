//! A worker process, as `pl-host sandbox worker` is one. Its argument is the file of the Python worker. With a second one, it
//! computes all the time, as code could that has broken out of its instance.

use std::path::PathBuf;

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args_os().skip(1);
    let component = arguments.next().map(PathBuf::from).unwrap_or_default();
    if arguments.next().is_some() {
        std::thread::spawn(compute);
    }
    pl_sandbox::serve_jobs(&std::fs::read(component)?)
}

fn compute() {
    loop {
        std::hint::spin_loop();
    }
}
