//! A plan for people: a line to each thing, in columns.

use std::fmt;

use super::{Checkpoints, Plan, Tasks};
use crate::memory::Bytes;

/// A number with its thousands apart.
struct Count(u64);

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        let grouped: Vec<String> = digits
            .as_bytes()
            .rchunks(3)
            .rev()
            .map(|three| String::from_utf8_lossy(three).into_owned())
            .collect();
        f.pad(&grouped.join(","))
    }
}

/// A title at the first line of each part alone.
struct Part<'f, 'g> {
    title: &'static str,
    out: &'f mut fmt::Formatter<'g>,
}

impl Part<'_, '_> {
    fn line(&mut self, text: impl fmt::Display) -> fmt::Result {
        let title = std::mem::take(&mut self.title);
        writeln!(self.out, "  {title:<9} {text}")
    }
}

fn part<'f, 'g>(out: &'f mut fmt::Formatter<'g>, title: &'static str) -> Part<'f, 'g> {
    Part { title, out }
}

/// The width of a column that holds these texts.
fn column<'a>(texts: impl IntoIterator<Item = &'a str>) -> usize {
    texts.into_iter().map(|text| text.chars().count()).max().unwrap_or(0)
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}, on {}", self.workflow, self.device)?;
        part(f, "layout").line(format_args!("{}: {}", self.layout, self.layout_meaning))?;
        self.weights(f)?;
        self.plays(f)?;
        self.counts(f)
    }
}

impl Plan {
    fn weights(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wide = column(self.models.iter().map(|model| model.name.as_str()));
        let source = column(self.models.iter().map(|model| model.source.as_str()));
        let mut models = part(f, "models");
        for model in &self.models {
            let place = match (&model.path, model.fetch) {
                (Some(path), _) => format!("{}, {}", model.kind, path.display()),
                (None, true) => format!("{}, will be fetched", model.kind),
                (None, false) => format!("{}, NOT THERE", model.kind),
            };
            models.line(format_args!(
                "{:<wide$}  {:<source$}  {}  {place}",
                model.name, model.source, model.dtype
            ))?;
        }
        let wide = column(self.policies.iter().map(|policy| policy.name.as_str()));
        let words: Vec<String> = self.policies.iter().map(|policy| policy.words()).collect();
        let kinds = column(words.iter().map(String::as_str));
        let mut policies = part(f, "policies");
        for (policy, words) in self.policies.iter().zip(&words) {
            let numbers = match policy.trained_parameters {
                Some(0) => String::new(),
                Some(numbers) => format!("{} parameters trained", Count(numbers)),
                None => "parameters not known before the model is here".to_owned(),
            };
            let agents = policy.agents.join(", ");
            let line = format!("{:<wide$}  {words:<kinds$}  speaks for {agents}  {numbers}", policy.name);
            policies.line(line.trim_end())?;
        }
        match &self.memory {
            Ok(memory) => write!(f, "{}", memory),
            Err(why) => part(f, "memory").line(format_args!("unknown: {why}")),
        }
    }

    fn plays(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wide = column(self.plugins.iter().map(|plugin| plugin.name.as_str()));
        let mut plugins = part(f, "plugins");
        for plugin in &self.plugins {
            let place =
                plugin.path.as_ref().map_or_else(|| "built in".into(), |path| path.display().to_string());
            let cached =
                if plugin.cached { "from the compile cache" } else { "to be compiled (once, then cached)" };
            plugins.line(format_args!("{:<wide$}  {place}, {cached}", plugin.name))?;
            for folder in &plugin.grant.read {
                plugins.line(format_args!("{:<wide$}  may read {folder}", ""))?;
            }
            for host in &plugin.grant.http {
                plugins.line(format_args!("{:<wide$}  may ask {host} over HTTP: not reproducible", ""))?;
            }
        }
        let python = match self.sandbox.python_cached {
            Some(true) => ", its Python from the compile cache",
            Some(false) => ", its Python is compiled when the first program comes",
            None => "",
        };
        part(f, "sandbox").line(format_args!("{}{python}", self.sandbox.limits))?;
        let mut tasks = part(f, "tasks");
        let rows = || std::iter::once(&self.tasks).chain(self.evaluations.iter().map(|one| &one.tasks));
        let wide = column(rows().map(|tasks| tasks.name.as_str()));
        for one in rows() {
            tasks.line(format_args!("{:<wide$}  {}", one.name, one.words()))?;
        }
        Ok(())
    }

    fn counts(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let most = "at most";
        let episode = &self.episode;
        part(f, "episode").line(format_args!(
            "{most} {} completions, {} sampled tokens",
            Count(episode.completions),
            Count(episode.tokens)
        ))?;
        if let Some(training) = &self.training {
            let step = &training.step;
            let mut lines = part(f, "step");
            lines.line(format_args!(
                "{} tasks, {} {}",
                Count(step.tasks),
                Count(step.episodes),
                training.rollout
            ))?;
            lines.line(format_args!(
                "{most} {} groups, {} completions, {} sampled tokens",
                Count(step.groups),
                Count(step.completions),
                Count(step.tokens)
            ))?;
            let each = step.optimizer_steps;
            let updates = if each == 1 { "step" } else { "steps" };
            lines.line(format_args!("{most} {each} optimiser {updates} of each trained policy"))?;
        }
        let wide = column(self.evaluations.iter().map(|one| one.tasks.name.as_str()));
        let mut lines = part(f, "evaluate");
        for one in &self.evaluations {
            let when = match (one.rounds, one.every) {
                (0, _) => "only by `pl-host evaluate`".to_owned(),
                (rounds, every) => format!("{rounds} times: at first, every {every} steps, in the end"),
            };
            let round = &one.round;
            lines.line(format_args!("{:<wide$}  {when}", one.tasks.name))?;
            lines.line(format_args!(
                "{:<wide$}  {} episodes a time, {most} {} completions, {} sampled tokens",
                "",
                Count(round.episodes),
                Count(round.completions),
                Count(round.tokens)
            ))?;
        }
        let Some(training) = &self.training else {
            return part(f, "run").line("none: the workflow has no `train` block");
        };
        let mut run = part(f, "run");
        run.line(format_args!("{} steps, folder {}", Count(training.steps), training.folder.display()))?;
        run.line(format_args!(
            "{most} {} completions, {} sampled tokens to train on, {} to evaluate",
            Count(training.completions),
            Count(training.tokens),
            Count(training.evaluation_tokens)
        ))?;
        run.line(training.checkpoints.words())
    }
}

impl Checkpoints {
    fn words(&self) -> String {
        let disk = match self.bytes_each {
            Some(each) => {
                format!(", about {} each, {} on disk", Bytes(each), Bytes(each * self.kept))
            }
            None => String::new(),
        };
        format!("checkpoints {}, at most {} of them kept{disk}", Count(self.count), self.kept)
    }
}

impl Tasks {
    fn words(&self) -> String {
        match (&self.file, self.records, &self.problem) {
            (_, _, Some(problem)) => format!("NOT THERE: {problem}"),
            (Some(file), Some(records), _) => format!("{}, {} records", file.display(), Count(records)),
            (Some(file), None, _) => file.display().to_string(),
            (None, ..) => format!("generated ({})", self.generator.as_deref().unwrap_or_default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_stand_apart() {
        let shown = [0, 999, 1000, 1_234_567].map(|number| Count(number).to_string());
        assert_eq!(shown, ["0", "999", "1,000", "1,234,567"]);
    }
}
