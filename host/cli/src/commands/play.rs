//! `pl-host play`: one episode, shown as a conversation.

use std::io::Write;
use std::sync::Arc;

use mas_dsl::workflow::Rollout;
use pl_plugin::{Message, Part, Role, Task};
use pl_rollout::{Phase, Plan, Said, Summary, play_batch};
use serde_json::{Value, json};

use crate::arguments::Play;
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
    let batch = runtime.block_on(play_batch(team.cast.clone(), &plan, |_| {})).map_err(Stop::failed)?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "task {}: {}", task.id, task.data)?;
    for said in batch.transcripts.iter().flatten() {
        show(&mut out, said)?;
    }
    for episode in &batch.episodes {
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

fn show(out: &mut impl Write, said: &Said) -> std::io::Result<()> {
    writeln!(out, "\n── {} · turn {} ──", said.agent, said.visit + 1)?;
    for message in &said.messages {
        let role = match message.role {
            Role::System => "system",
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => "tool",
        };
        writeln!(out, "[{role}]\n{}", indent(&plain(message)))?;
    }
    writeln!(out, "[{} says, {} tokens]\n{}", said.agent, said.tokens, indent(&said.text))?;
    writeln!(out, "[does]  {}", said.action)?;
    writeln!(out, "[earns] {:.2}{}", said.reward, if said.success { ", right" } else { "" })
}

fn conclude(out: &mut impl Write, episode: &Summary) -> std::io::Result<()> {
    let ending = match (episode.success, episode.truncated) {
        (true, _) => "solved",
        (false, true) => "not solved, cut short",
        (false, false) => "not solved",
    };
    writeln!(out, "\n{ending} after {} turns and {} tokens", episode.turns, episode.tokens)
}

fn plain(message: &Message) -> String {
    let part = |part: &Part| match part {
        Part::Text(text) => text.clone(),
        Part::Image { .. } => "(image)".to_owned(),
        Part::Data { .. } => "(data)".to_owned(),
    };
    message.parts.iter().map(part).collect()
}

fn indent(text: &str) -> String {
    text.lines().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}
