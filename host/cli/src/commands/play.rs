//! `pl-host play`: one episode, shown as a conversation while it is played.

use std::io::Write;
use std::sync::Arc;

use mas_dsl::workflow::Rollout;
use pl_plugin::{Message, Part, Role, Task};
use pl_rollout::{Cast, Heard, Phase, Plan, Said, Summary, play_batch};
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

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

/// Shows what is heard, each completion as it comes. Agents that speak side by side are shown one after another.
async fn follow(out: &mut impl Write, mut heard: UnboundedReceiver<Heard>) -> std::io::Result<()> {
    while let Some(heard) = heard.recv().await {
        match heard {
            Heard::Asked { agent, visit, messages, mut text } => {
                ask(out, &agent, visit, &messages)?;
                let mut lines = Indented::new(out);
                while let Some(chunk) = text.recv().await {
                    lines.write(&chunk.text)?;
                }
                lines.end()?;
            }
            Heard::Done(said) => done(out, &said)?,
        }
    }
    Ok(())
}

fn ask(out: &mut impl Write, agent: &str, visit: u32, messages: &[Message]) -> std::io::Result<()> {
    writeln!(out, "\n── {agent} · turn {} ──", visit + 1)?;
    for message in messages {
        let role = match message.role {
            Role::System => "system",
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => "tool",
        };
        writeln!(out, "[{role}]")?;
        let mut lines = Indented::new(out);
        lines.write(&plain(message))?;
        lines.end()?;
    }
    writeln!(out, "[{agent} says]")
}

fn done(out: &mut impl Write, said: &Said) -> std::io::Result<()> {
    let right = if said.success { ", right" } else { "" };
    writeln!(out, "[{} does]  {}", said.agent, said.action)?;
    writeln!(out, "[{} earns] {:.2}{right}, for {} tokens", said.agent, said.reward, said.tokens)
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

/// Text that comes in pieces, every line of it set in.
struct Indented<'a, W> {
    out: &'a mut W,
    at_start: bool,
}

impl<'a, W: Write> Indented<'a, W> {
    fn new(out: &'a mut W) -> Self {
        Indented { out, at_start: true }
    }

    /// Writes a piece so that it is seen at once.
    fn write(&mut self, text: &str) -> std::io::Result<()> {
        for line in text.split_inclusive('\n') {
            if self.at_start {
                self.out.write_all(b"  ")?;
            }
            self.out.write_all(line.as_bytes())?;
            self.at_start = line.ends_with('\n');
        }
        self.out.flush()
    }

    fn end(self) -> std::io::Result<()> {
        if self.at_start { Ok(()) } else { self.out.write_all(b"\n") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_set_in_as_the_whole_would_be() {
        let written = |pieces: &[&str]| {
            let mut out = Vec::new();
            let mut lines = Indented::new(&mut out);
            pieces.iter().for_each(|piece| lines.write(piece).unwrap());
            lines.end().unwrap();
            String::from_utf8(out).unwrap()
        };
        let whole = written(&["one\n\n  two\nthree"]);
        assert_eq!(whole, "  one\n  \n    two\n  three\n");
        assert_eq!(written(&["o", "ne\n", "\n  tw", "", "o\nthree"]), whole);
        assert_eq!(written(&["one\n\n  two\nthree\n"]), whole);
        assert_eq!(written(&[""]), "");
    }
}
