//! `pl-host worker`: plays the tasks of runs that other processes coordinate.

use pl_run::{JoinOptions, Participant, WorkerOptions, select_device, work};

use crate::app::App;
use crate::arguments::cluster::{ParticipantArgs, ServerArgs, WorkerArgs};
use crate::commands::cluster::address;
use crate::exit::{CommandError, CommandResult};
use crate::interrupt::stop_on_signals;
use crate::stderr;

/// Description of what becomes of the work of a worker or learner that is stopped at once.
pub const LEASE_ENDS: &str = "another process does its work again once the lease has ended";

pub fn run(app: &App, arguments: &WorkerArgs) -> CommandResult {
    let stop = stop_on_signals(app, "the tasks in progress", || LEASE_ENDS.to_owned());
    let options = WorkerOptions {
        join: join_options(&arguments.server, &arguments.run, &arguments.name),
        slots: arguments.slots,
        participant: participant(app, &arguments.participant)?,
    };
    stderr::line(&format!("worker {}", options.join.name));
    Ok(work(&app.host, &options, &stop)?)
}

/// Returns what this process allows and has.
pub fn participant(app: &App, arguments: &ParticipantArgs) -> Result<Participant, CommandError> {
    let ParticipantArgs { device, trust, weights_folder, mixed_cpus } = arguments.clone();
    Ok(Participant { device: select_device(&app.host, device.into())?, trust, weights_folder, mixed_cpus })
}

/// Returns the server, the run and the name of a process that takes part in runs. A process without a name has one that no
/// other of a run has: of the machine and the process.
pub fn join_options(server: &ServerArgs, run: &Option<String>, name: &Option<String>) -> JoinOptions {
    let default_name = || {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        format!("{host}-{}", std::process::id())
    };
    JoinOptions {
        address: address(&server.nats, &server.access),
        run: run.clone(),
        name: name.clone().unwrap_or_else(default_name),
    }
}
