//! `pl-host worker`: plays the tasks of runs that other processes coordinate.

use pl_run::{Participant, WorkerOptions, select_device, work};

use crate::app::App;
use crate::arguments::cluster::{ParticipantArgs, WorkerArgs};
use crate::commands::cluster::address;
use crate::exit::{CommandError, CommandResult};
use crate::interrupt::stop_on_signals;
use crate::stderr;

/// Description of what becomes of the work of a worker or learner that is stopped at once.
pub const LEASE_ENDS: &str = "another process does its work again once the lease has ended";

pub fn run(app: &App, arguments: &WorkerArgs) -> CommandResult {
    let stop = stop_on_signals(app, "the tasks in progress", || LEASE_ENDS.to_owned());
    let options = WorkerOptions {
        address: address(&arguments.server.nats, &arguments.server.access),
        run: arguments.run.clone(),
        name: arguments.name.clone().unwrap_or_else(default_name),
        slots: arguments.slots,
        participant: participant(app, &arguments.participant)?,
    };
    stderr::line(&format!("worker {}", options.name));
    Ok(work(&app.host, &options, &stop)?)
}

/// Returns what this process allows and has.
pub fn participant(app: &App, arguments: &ParticipantArgs) -> Result<Participant, CommandError> {
    let ParticipantArgs { device, trust, weights_folder, mixed_cpus } = arguments.clone();
    Ok(Participant { device: select_device(&app.host, device.into())?, trust, weights_folder, mixed_cpus })
}

/// Returns a name that no other process of a run has: of the machine and the process.
pub fn default_name() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("{host}-{}", std::process::id())
}
