//! Rendering of plans as a table.

pub mod simulation;

use std::fmt;

use pl_dsl::workflow::ServerKind;
use pl_dsl::workflow::objective::CriticBase;
use pl_run::plan::{
    CheckpointPlan, CorpusPlan, CriticPlan, DesignPlan, PermissionPlan, PolicyPlan, RunPlan, TaskPlan,
};
use pl_run::{Bytes, one_line};

/// A number with separated thousands.
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

/// A number of things: `1 completion`, `2,000 completions`.
pub struct Counted(pub u64, pub &'static str);

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counted(count, thing) = self;
        write!(f, "{} {thing}{}", Count(*count), if *count == 1 { "" } else { "s" })
    }
}

/// Section of the table. Its title is on the first line only.
struct Section<'f, 'g> {
    title: &'static str,
    out: &'f mut fmt::Formatter<'g>,
}

impl Section<'_, '_> {
    fn line(&mut self, text: impl fmt::Display) -> fmt::Result {
        let title = std::mem::take(&mut self.title);
        writeln!(self.out, "  {title:<9} {text}")
    }
}

fn section<'f, 'g>(out: &'f mut fmt::Formatter<'g>, title: &'static str) -> Section<'f, 'g> {
    Section { title, out }
}

/// Returns the width of the longest text.
fn column<'a>(texts: impl IntoIterator<Item = &'a str>) -> usize {
    texts.into_iter().map(|text| text.chars().count()).max().unwrap_or(0)
}

/// Plan for people.
pub struct PlanTable<'a>(pub &'a RunPlan);

impl fmt::Display for PlanTable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plan = self.0;
        writeln!(f, "{}, on {}", plan.workflow, plan.device)?;
        section(f, "layout").line(format_args!("{}: {}", plan.layout, plan.layout_meaning))?;
        write_weights(plan, f)?;
        write_components(plan, f)?;
        write_counts(plan, f)?;
        write_permissions(plan, f)
    }
}

fn write_weights(plan: &RunPlan, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let wide = column(plan.models.iter().map(|model| model.name.as_str()));
    let source = column(plan.models.iter().map(|model| model.source.as_str()));
    let mut models = section(f, "models");
    for model in &plan.models {
        let place = match (&model.path, model.fetch) {
            (Some(path), _) => format!("{}, {}", model.kind, path.display()),
            (None, true) => format!("{}, will be fetched", model.kind),
            (None, false) => format!("{}, MISSING", model.kind),
        };
        models.line(format_args!(
            "{:<wide$}  {:<source$}  {}  {place}",
            model.name, model.source, model.dtype
        ))?;
    }
    let wide = column(plan.policies.iter().map(|policy| policy.name.as_str()));
    let words: Vec<String> = plan.policies.iter().map(policy_words).collect();
    let kinds = column(words.iter().map(String::as_str));
    let mut policies = section(f, "policies");
    for (policy, words) in plan.policies.iter().zip(&words) {
        let numbers = match policy.trained_parameters {
            Some(0) => String::new(),
            Some(numbers) => format!("{} parameters trained", Count(numbers)),
            None => "number of parameters unknown until the model is fetched".to_owned(),
        };
        let agents = policy.agents.join(", ");
        let line = format!("{:<wide$}  {words:<kinds$}  used by {agents}  {numbers}", policy.name);
        policies.line(line.trim_end())?;
        if let Some(critic) = &policy.critic {
            let numbers = critic.trained_parameters;
            let numbers = numbers.map(|numbers| format!("  {} parameters trained", Count(numbers)));
            let words = critic_words(critic);
            policies.line(format_args!("{:<wide$}  {words}{}", "", numbers.unwrap_or_default()))?;
        }
    }
    write_servers(plan, f)?;
    match &plan.memory {
        Ok(memory) => write!(f, "{}", memory),
        Err(why) => section(f, "memory").line(format_args!("unknown: {why}")),
    }
}

/// Writes what a run needs beyond the workflow's folder.
fn write_permissions(plan: &RunPlan, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut needs = section(f, "needs");
    for PermissionPlan { flag, place, purpose, allowed } in &plan.permissions {
        // A name with a line break can't look like another line.
        let place = place.as_ref().map_or_else(String::new, |place| format!("{}: ", one_line(place)));
        let purpose = one_line(purpose);
        let allowed = if *allowed { "allowed" } else { "NOT ALLOWED yet" };
        needs.line(format_args!("{place}{purpose}, {allowed} ({flag})"))?;
    }
    Ok(())
}

fn write_servers(plan: &RunPlan, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let wide = column(plan.servers.iter().map(|server| server.name.as_str()));
    let mut servers = section(f, "servers");
    for server in &plan.servers {
        let key = match &server.key_variable {
            Some(variable) if server.lacks_key => format!(", key in {variable}: MISSING"),
            Some(variable) => format!(", key in {variable}"),
            None => String::new(),
        };
        let kind = match server.kind {
            ServerKind::Vllm => "vllm, reproducible if it is pl-host serve",
            ServerKind::SgLang => "sglang, not reproducible",
            ServerKind::LlamaCpp => "llamacpp, not reproducible",
            ServerKind::OpenAi => "openai, a hosted model, not reproducible",
        };
        let addresses = server.addresses.join(", ");
        servers.line(format_args!(
            "{:<wide$}  {addresses}, {} requests at a time{key}; {kind}",
            server.name, server.connections
        ))?;
    }
    Ok(())
}

fn write_components(plan: &RunPlan, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let wide = column(plan.plugins.iter().map(|plugin| plugin.name.as_str()));
    let mut plugins = section(f, "plugins");
    for plugin in &plan.plugins {
        let place = plugin.path.as_ref().map_or_else(|| "built in".into(), |path| path.display().to_string());
        let cached =
            if plugin.cached { "from the compile cache" } else { "to be compiled (once, then cached)" };
        plugins.line(format_args!("{:<wide$}  {place}, {cached}", plugin.name))?;
        for folder in &plugin.grant.read {
            plugins.line(format_args!("{:<wide$}  may read {folder}", ""))?;
        }
        for host in &plugin.grant.http {
            plugins
                .line(format_args!("{:<wide$}  may send HTTP requests to {host}: not reproducible", ""))?;
        }
    }
    let python = match plan.sandbox.python_cached {
        Some(true) => ", its Python from the compile cache",
        Some(false) => ", its Python is compiled when the first program runs",
        None => "",
    };
    section(f, "sandbox").line(format_args!("{}{python}", plan.sandbox.limits))?;
    let mut corpora = section(f, "corpus");
    for corpus in &plan.corpora {
        corpora.line(corpus_words(corpus))?;
    }
    write_scenarios(plan, f)?;
    let mut tasks = section(f, "tasks");
    let environments = plan.scenarios.iter().map(|scenario| (&scenario.tasks, &scenario.curriculum));
    let evaluations = plan.evaluations.iter().map(|one| (&one.tasks, &None));
    let mut rows: Vec<(&TaskPlan, &Option<String>)> = Vec::new();
    for (tasks, curriculum) in environments.chain(evaluations) {
        // Scenarios may share an environment.
        if rows.iter().all(|(known, _)| known.name != tasks.name) {
            rows.push((tasks, curriculum));
        }
    }
    let wide = column(rows.iter().map(|(tasks, _)| tasks.name.as_str()));
    for (one, curriculum) in rows {
        let words = curriculum.clone().unwrap_or_else(|| task_words(one));
        tasks.line(format_args!("{:<wide$}  {words}", one.name))?;
    }
    Ok(())
}

/// Writes the scenarios of a workflow that names them.
fn write_scenarios(plan: &RunPlan, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let names = || plan.scenarios.iter().filter_map(|scenario| scenario.name.as_deref());
    let wide = column(names());
    let mut lines = section(f, "scenarios");
    for (name, scenario) in names().zip(&plan.scenarios) {
        let share = match scenario.share {
            0.0 => "evaluated only".to_owned(),
            // One digit, so that the shares add up.
            share => format!("{} % of the tasks", (1000.0 * share).round() / 10.0),
        };
        lines.line(format_args!("{name:<wide$}  {share}, in {}", scenario.tasks.name))?;
    }
    Ok(())
}

fn write_counts(plan: &RunPlan, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let most = "at most";
    let wide = column(plan.scenarios.iter().filter_map(|scenario| scenario.name.as_deref()));
    let mut episodes = section(f, "episode");
    for scenario in &plan.scenarios {
        let name = scenario.name.as_ref().map(|name| format!("{name:<wide$}  ")).unwrap_or_default();
        if let Some(designs) = &scenario.designs {
            let DesignPlan { designer, designs, design_tokens, executions, execution_tokens, .. } = designs;
            episodes.line(format_args!(
                "{name}{} a task by {designer}, {most} {} sampled tokens each",
                Counted(u64::from(*designs), "design"),
                Count(u64::from(*design_tokens))
            ))?;
            episodes.line(format_args!(
                "{name}{} of each design, {most} {} sampled tokens each",
                Counted(u64::from(*executions), "episode"),
                Count(*execution_tokens)
            ))?;
            // Its own team, if it has one, plays evaluations.
            if scenario.episode.completions == 0 {
                continue;
            }
        }
        episodes.line(format_args!(
            "{name}{most} {}, {} sampled tokens",
            Counted(scenario.episode.completions, "completion"),
            Count(scenario.episode.tokens)
        ))?;
    }
    if let Some(training) = &plan.training {
        let step = &training.step;
        let mut lines = section(f, "step");
        lines.line(format_args!(
            "{}, {}",
            Counted(step.tasks, "task"),
            Counted(step.episodes, training.rollout.trim_end_matches('s'))
        ))?;
        lines.line(format_args!(
            "{most} {}, {}, {} sampled tokens",
            Counted(step.groups, "group"),
            Counted(step.completions, "completion"),
            Count(step.tokens)
        ))?;
        let each = step.optimizer_steps;
        let steps = Counted(each, "optimiser step");
        lines.line(format_args!("{most} {steps} of each trained policy"))?;
    }
    let wide = column(plan.evaluations.iter().map(|one| one.tasks.name.as_str()));
    let mut lines = section(f, "evaluate");
    for one in &plan.evaluations {
        let when = match (one.rounds, one.every) {
            (0, _) => "only with `pl-host evaluate`".to_owned(),
            (rounds, 1) => format!("{rounds} times: at the start and after every step"),
            (rounds, every) => format!("{rounds} times: at the start, every {every} steps, at the end"),
        };
        let round = &one.round;
        lines.line(format_args!("{:<wide$}  {when}", one.tasks.name))?;
        lines.line(format_args!(
            "{:<wide$}  {} each time, {most} {}, {} sampled tokens",
            "",
            Counted(round.episodes, "episode"),
            Counted(round.completions, "completion"),
            Count(round.tokens)
        ))?;
    }
    let Some(training) = &plan.training else {
        return section(f, "run").line("none: the workflow has no `train` block");
    };
    let mut run = section(f, "run");
    let folder = training.folder.display();
    run.line(format_args!("{}, folder {folder}", Counted(training.steps, "step")))?;
    run.line(format_args!(
        "{most} {}, {} sampled tokens to train on, {} to evaluate",
        Counted(training.completions, "completion"),
        Count(training.tokens),
        Count(training.evaluation_tokens)
    ))?;
    run.line(checkpoint_words(&training.checkpoints))
}

fn checkpoint_words(plan: &CheckpointPlan) -> String {
    let disk = match plan.bytes_each {
        Some(each) => {
            format!(", about {} each, {} on disk", Bytes(each), Bytes(each * plan.kept))
        }
        None => String::new(),
    };
    format!("at most {}, of which {} are kept{disk}", Counted(plan.count, "checkpoint"), plan.kept)
}

fn corpus_words(plan: &CorpusPlan) -> String {
    let CorpusPlan { name, source, indexed, problem } = plan;
    match (problem, indexed) {
        (Some(problem), _) => format!("{name}  MISSING: {problem}"),
        (None, Some(true)) => format!("{name}  {source}, its index from the cache"),
        (None, Some(false)) => format!("{name}  {source}, to be indexed (once, then cached)"),
        (None, None) => format!("{name}  {source}: not reproducible"),
    }
}

fn task_words(plan: &TaskPlan) -> String {
    match (&plan.file, plan.records, &plan.problem) {
        (_, _, Some(problem)) => format!("MISSING: {problem}"),
        (Some(file), Some(records), _) => format!("{}, {}", file.display(), Counted(records, "record")),
        (Some(file), None, _) => file.display().to_string(),
        (None, ..) => format!("generated ({})", plan.generator.as_deref().unwrap_or_default()),
    }
}

/// Describes the weights of a policy.
fn policy_words(policy: &PolicyPlan) -> String {
    let weights = match (&policy.lora, policy.trained) {
        (Some(lora), _) => format!("adapter of rank {} on {}", lora.rank, policy.model),
        (None, true) => format!("all of {}", policy.model),
        (None, false) => policy.model.clone(),
    };
    let from = policy.from.as_ref().map(|from| format!(", from {from}")).unwrap_or_default();
    let frozen = if policy.trained { "" } else { ", not trained" };
    let place = match (&policy.server, &policy.served) {
        (Some(server), Some(served)) => format!(", as {served} on {server}"),
        (Some(server), None) => format!(", on {server}"),
        (None, _) => String::new(),
    };
    let rollout =
        policy.devices.rollout.as_ref().map(|own| format!(", rollouts on {own}")).unwrap_or_default();
    let train = policy.devices.train.as_ref().map(|own| format!(", training on {own}")).unwrap_or_default();
    format!("{weights}{from}{frozen}{place}{rollout}{train}")
}

/// Describes the critic of a policy.
fn critic_words(critic: &CriticPlan) -> String {
    let CriticPlan { on, model, lora, .. } = critic;
    match (on, lora) {
        (CriticBase::Policy, _) => "critic: a value head on the policy".to_owned(),
        (CriticBase::Shared, _) => "critic: a value head on the policy, which it trains too".to_owned(),
        (CriticBase::Model, _) => format!("critic: a value head on all of {model}"),
        (CriticBase::Adapter, lora) => {
            let rank = lora.as_ref().map_or(0, |lora| lora.rank);
            format!("critic: a value head on an adapter of rank {rank} on {model}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_separated() {
        let shown = [0, 999, 1000, 1_234_567].map(|number| Count(number).to_string());
        assert_eq!(shown, ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn one_thing_is_not_several() {
        let shown = [0, 1, 2000].map(|number| Counted(number, "group").to_string());
        assert_eq!(shown, ["0 groups", "1 group", "2,000 groups"]);
    }
}
