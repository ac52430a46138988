//! An episode as a conversation: what agents are asked, what they say and do, what they earn.

use std::io::Write;

use pl_plugin::{Message, Part, Role};
use pl_rollout::{Heard, Said, Summary};
use tokio::sync::mpsc::UnboundedReceiver;

/// Shows what is heard, each completion as it comes. Agents that speak side by side are shown one after another.
pub async fn follow(out: &mut impl Write, mut heard: UnboundedReceiver<Heard>) -> std::io::Result<()> {
    while let Some(heard) = heard.recv().await {
        match heard {
            Heard::Asked { agent, visit, messages, mut text } => {
                ask(out, &agent, visit, &messages)?;
                let (mut lines, mut answer) = (Indented::new(out), 0);
                while let Some(chunk) = text.recv().await {
                    // Candidates of a tree's node, whole and one after another.
                    if chunk.index != answer {
                        answer = chunk.index;
                        lines.end()?;
                        writeln!(out, "[or says]")?;
                        lines = Indented::new(out);
                    }
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

/// How it ended.
pub fn conclude(out: &mut impl Write, episode: &Summary) -> std::io::Result<()> {
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
