//! `pl-host worker`: plays the tasks of runs that other processes coordinate.

use pl_run::{WorkerOptions, select_device, work};

use crate::app::App;
use crate::arguments::cluster::WorkerArgs;
use crate::commands::cluster::address;
use crate::exit::CommandResult;
use crate::interrupt::stop_on_signals;

pub fn run(app: &App, arguments: &WorkerArgs) -> CommandResult {
    let stop = stop_on_signals(app);
    let options = WorkerOptions {
        address: address(&arguments.server.nats, &arguments.server.access),
        run: arguments.run.clone(),
        name: arguments.name.clone().unwrap_or_else(default_name),
        slots: arguments.slots,
        device: select_device(&app.host, arguments.device.into())?,
        trust: arguments.trust,
        mixed_cpus: arguments.mixed_cpus,
    };
    eprintln!("worker {}", options.name);
    Ok(work(&app.host, &options, &stop)?)
}

/// Returns a name that no other worker of a run has: of the machine and the process.
fn default_name() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("{host}-{}", std::process::id())
}
