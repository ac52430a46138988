//! `pl-host play`: one episode, shown as a conversation while it is played.

use std::io::Write;
use std::sync::Arc;

use pl_dsl::workflow::Rollout;
use pl_plugin::Task;
use pl_rollout::{Cast, Phase, Plan, play_batch};
use serde_json::{Value, json};
use tokio::sync::mpsc::unbounded_channel;

use crate::arguments::Play;
use crate::conversation::{conclude, follow};
use crate::exit::{Outcome, Stop};
use crate::session::{self, Loaded, Team};

pub fn run(options: &Play) -> Outcome {
    let runtime = tokio::runtime::Runtime::new().map_err(Stop::failed)?;
    let (loaded, team) =
        session::open(&runtime, &options.source, &options.machine, options.checkpoint.as_deref())?;
    let task = match &options.task {
        Some(text) => Arc::new(given(text)),
        None => runtime.block_on(first(&loaded, &team))?,
    };
    let plan = Plan {
        seed: options.machine.seed,
        phase: Phase::Play,
        step: 0,
        tasks: vec![Arc::clone(&task)],
        mode: Rollout::Flat,
        samples: 1,
        in_flight: 1,
        versions: team.trainer.versions().into(),
    };
    let (sender, heard) = unbounded_channel();
    let cast = Arc::new(Cast { listener: Some(sender), ..Cast::clone(&team.cast) });
    let mut out = std::io::stdout().lock();
    writeln!(out, "task {}: {}", task.id, task.data)?;
    let played = runtime.block_on(async {
        // The conversation ends when nobody is left who holds the sender.
        let playing = async { play_batch(cast, &plan, |_| {}).await.map_err(Stop::failed) };
        let (batch, ()) =
            tokio::try_join!(playing, async { follow(&mut out, heard).await.map_err(Stop::from) })?;
        Ok::<_, Stop>(batch)
    })?;
    for failure in &played.failures {
        eprintln!("the episode was begun again: {}: {}", failure.stage, failure.cause);
    }
    for episode in &played.episodes {
        conclude(&mut out, episode)?;
    }
    Ok(())
}

/// A record as JSON, or a question in words.
fn given(text: &str) -> Task {
    let data = match serde_json::from_str::<Value>(text) {
        Ok(Value::Object(record)) => Value::Object(record).to_string(),
        _ => json!({ "question": text }).to_string(),
    };
    Task { id: "given".to_owned(), data }
}

async fn first(loaded: &Loaded, team: &Team) -> Result<Arc<Task>, Stop> {
    let wanted = &loaded.workflow.scenarios[0].environment.tasks;
    let source = loaded.tasks(wanted, &team.environment, None).await?;
    let tasks = source.take(0, 1).await.map_err(Stop::input)?;
    tasks.into_iter().next().ok_or_else(|| Stop::input("there are no tasks"))
}
