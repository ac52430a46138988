//! Rendering of an episode as a conversation: prompts, completions, actions and rewards.

use std::io::Write;

use pl_plugin::{Message, Part, Role};
use pl_rollout::{AgentStep, EpisodeEvent, EpisodeSummary};
use tokio::sync::mpsc::UnboundedReceiver;

use crate::plan::Counted;

/// Shows the events of an episode, each completion while it is generated. Agents of one node are shown one
/// after another.
///
/// # Errors
/// Those of `out`.
pub async fn show(out: &mut impl Write, mut events: UnboundedReceiver<EpisodeEvent>) -> std::io::Result<()> {
    while let Some(event) = events.recv().await {
        match event {
            EpisodeEvent::Prompted { agent, visit, messages, mut text } => {
                show_prompt(out, &agent, visit, &messages)?;
                let (mut lines, mut candidate) = (Indented::new(out), 0);
                while let Some(chunk) = text.recv().await {
                    // The candidates of a tree's node come one after another.
                    if chunk.index != candidate {
                        candidate = chunk.index;
                        lines.end()?;
                        writeln!(out, "[or says]")?;
                        lines = Indented::new(out);
                    }
                    lines.write(&chunk.text)?;
                }
                lines.end()?;
            }
            EpisodeEvent::PromptTooLong { agent, tokens, context } => {
                let prompt = Counted(tokens as u64, "token");
                writeln!(
                    out,
                    "\n[{agent} can't be asked] a prompt of {prompt} leaves no room in the model's context of {context}"
                )?;
            }
            EpisodeEvent::Acted(step) => show_step(out, &step)?,
            EpisodeEvent::Restarted(failure) => {
                writeln!(out, "[it fails] {failure}\n\nThe episode is played again from its start.")?;
            }
            EpisodeEvent::Drawn(drawing) => {
                writeln!(out)?;
                let mut lines = Indented::new(out);
                lines.write(&drawing)?;
                lines.end()?;
            }
        }
    }
    Ok(())
}

fn show_prompt(out: &mut impl Write, agent: &str, visit: u32, messages: &[Message]) -> std::io::Result<()> {
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
        lines.write(&plain_text(message))?;
        lines.end()?;
    }
    writeln!(out, "[{agent} says]")
}

fn show_step(out: &mut impl Write, step: &AgentStep) -> std::io::Result<()> {
    let right = if step.success { ", right" } else { "" };
    writeln!(out, "[{} does]  {}", step.agent, step.action)?;
    writeln!(out, "[{} earns] {:.2}{right}, for {} tokens", step.agent, step.reward, step.tokens)
}

/// Shows how an episode ended.
///
/// # Errors
/// Those of `out`.
pub fn show_ending(out: &mut impl Write, episode: &EpisodeSummary) -> std::io::Result<()> {
    let ending = match (episode.success, episode.truncated) {
        (true, _) => "solved",
        (false, true) => "not solved, truncated",
        (false, false) => "not solved",
    };
    let (turns, tokens) = (Counted(episode.turns.into(), "turn"), Counted(episode.tokens, "token"));
    writeln!(out, "\n{ending} after {turns} and {tokens}")
}

fn plain_text(message: &Message) -> String {
    let part = |part: &Part| match part {
        Part::Text(text) => text.clone(),
        Part::Image { .. } => "(image)".to_owned(),
        Part::Data { .. } => "(data)".to_owned(),
    };
    message.parts.iter().map(part).collect()
}

/// Writer that indents every line of a text that arrives in pieces.
struct Indented<'a, W> {
    out: &'a mut W,
    at_start: bool,
}

impl<'a, W: Write> Indented<'a, W> {
    fn new(out: &'a mut W) -> Self {
        Indented { out, at_start: true }
    }

    /// Writes and flushes a piece.
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
    fn an_episode_that_is_played_again_says_why() {
        let (sender, events) = tokio::sync::mpsc::unbounded_channel();
        sender.send(EpisodeEvent::Restarted("task 1, apply: a fault".to_owned())).unwrap();
        drop(sender);
        let mut out = Vec::new();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(show(&mut out, events)).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(
            text.starts_with("[it fails] task 1, apply: a fault\n") && text.contains("played again"),
            "{text}"
        );
    }

    #[test]
    fn a_prompt_that_ends_an_episode_is_shown() {
        let (sender, events) = tokio::sync::mpsc::unbounded_channel();
        let event = EpisodeEvent::PromptTooLong { agent: "alto".to_owned(), tokens: 5000, context: 4096 };
        sender.send(event).unwrap();
        drop(sender);
        let mut out = Vec::new();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(show(&mut out, events)).unwrap();
        let expected = "\n[alto can't be asked] a prompt of 5,000 tokens leaves no room in the model's context of 4096\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn an_episode_of_one_turn_has_one_turn() {
        let summary = EpisodeSummary {
            task: 0,
            task_id: String::new(),
            sample: 0,
            success: true,
            agents: Vec::new(),
            turns: 1,
            tokens: 2000,
            truncated: false,
            reproducible: true,
        };
        let mut out = Vec::new();
        show_ending(&mut out, &summary).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "\nsolved after 1 turn and 2,000 tokens\n");
    }

    #[test]
    fn pieces_are_indented_like_the_whole() {
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
