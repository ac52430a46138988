//! `pl-host learner`: does the updates of policies in runs that other processes coordinate.

use pl_run::{LearnerOptions, RankPlace, learn};

use crate::app::App;
use crate::arguments::cluster::LearnerArgs;
use crate::commands::worker::{LEASE_ENDS, join_options, participant};
use crate::exit::CommandResult;
use crate::interrupt::stop_on_signals;
use crate::stderr;

pub fn run(app: &App, arguments: &LearnerArgs) -> CommandResult {
    let stop = stop_on_signals(app, "the update in progress", || LEASE_ENDS.to_owned());
    let options = LearnerOptions {
        join: join_options(&arguments.server, &arguments.run, &arguments.name),
        policy: arguments.policy.clone(),
        place: arguments.rank.zip(arguments.leader.clone()).map(|(rank, leader)| RankPlace { rank, leader }),
        participant: participant(app, &arguments.participant)?,
    };
    stderr::line(&format!("learner {}", options.join.name));
    Ok(learn(&app.host, &options, &stop)?)
}
