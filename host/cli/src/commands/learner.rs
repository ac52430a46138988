//! `pl-host learner`: does the updates of policies in runs that other processes coordinate.

use pl_run::{LearnerOptions, RankPlace, learn};

use crate::app::App;
use crate::arguments::cluster::LearnerArgs;
use crate::commands::cluster::address;
use crate::commands::worker::{LEASE_ENDS, default_name, participant};
use crate::exit::CommandResult;
use crate::interrupt::stop_on_signals;
use crate::stderr;

pub fn run(app: &App, arguments: &LearnerArgs) -> CommandResult {
    let stop = stop_on_signals(app, "the update in progress", || LEASE_ENDS.to_owned());
    let options = LearnerOptions {
        address: address(&arguments.server.nats, &arguments.server.access),
        run: arguments.run.clone(),
        policy: arguments.policy.clone(),
        name: arguments.name.clone().unwrap_or_else(default_name),
        place: arguments.rank.zip(arguments.leader.clone()).map(|(rank, leader)| RankPlace { rank, leader }),
        participant: participant(app, &arguments.participant)?,
    };
    stderr::line(&format!("learner {}", options.name));
    Ok(learn(&app.host, &options, &stop)?)
}
