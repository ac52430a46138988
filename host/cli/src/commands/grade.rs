//! `pl-host grade`: answers graded as a run would grade them, an episode per line.

use std::io::{BufRead, Write};
use std::sync::Arc;

use futures::{StreamExt, stream};
use pl_plugin::{Completion, Finish, Stream, Task};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::arguments::Grade;
use crate::exit::{Outcome, Stop};
use crate::session::Loaded;

/// A line of the input: what was answered, and either the task's record or, where the environment reads records
/// of nothing else, the right answer alone. Other fields are allowed and passed over.
#[derive(Deserialize)]
struct Answer {
    gold: Option<String>,
    task: Option<Value>,
    pred: String,
}

impl Answer {
    /// The task's record, and the answer.
    fn read(self) -> Option<(Value, String)> {
        let record = self.task.or_else(|| self.gold.map(|gold| json!({ "gold": gold })))?;
        Some((record, self.pred))
    }
}

/// The parts of a workflow that grade.
struct Grader {
    environment: pl_plugin::Environment,
    agent: pl_plugin::Agent,
    agent_name: String,
    reward: pl_plugin::Reward,
}

pub fn run(options: &Grade) -> Outcome {
    let runtime = tokio::runtime::Runtime::new().map_err(Stop::failed)?;
    let loaded = Loaded::open(&runtime, &options.source.file, &options.source.given.all()?)?;
    let index = agent_index(&loaded, options.agent.as_deref())?;
    let grader = Arc::new(Grader {
        environment: loaded.environment()?,
        agent: loaded.agent(index)?,
        agent_name: loaded.workflow.agents[index].name.clone(),
        reward: loaded.reward()?,
    });
    let answers = read()?;
    let total = answers.len();
    let mut out = std::io::stdout().lock();
    let mut right = 0usize;
    runtime.block_on(async {
        let mut verdicts = stream::iter(answers.into_iter().enumerate().map(|(line, (record, answer))| {
            let grader = Arc::clone(&grader);
            tokio::spawn(async move {
                grader.grade(line + 1, &record, answer).await.map_err(|fault| (line + 1, fault))
            })
        }))
        .buffered(64);
        while let Some(verdict) = verdicts.next().await {
            let correct = verdict
                .map_err(Stop::failed)?
                .map_err(|(line, fault)| Stop::input(format!("line {line}: {fault}")))?;
            right += usize::from(correct);
            if options.json {
                writeln!(out, "{}", json!({ "correct": correct }))?;
            }
        }
        Ok::<(), Stop>(())
    })?;
    if !options.json {
        let share = if total == 0 { 0.0 } else { 100.0 * right as f64 / total as f64 };
        writeln!(out, "{right} of {total} are right ({share:.1} %)")?;
    }
    Ok(())
}

fn agent_index(loaded: &Loaded, name: Option<&str>) -> Result<usize, Stop> {
    let agents = &loaded.workflow.agents;
    match name {
        Some(name) => agents.iter().position(|a| a.name == name).ok_or_else(|| {
            let names: Vec<_> = agents.iter().map(|a| a.name.as_str()).collect();
            Stop::input(format!("--agent {name}: the workflow's agents are {}", names.join(", ")))
        }),
        None => loaded.workflow.scenarios[0]
            .turns
            .nodes
            .last()
            .and_then(|node| node.agents.last().copied())
            .ok_or_else(|| Stop::input("the workflow has no agents")),
    }
}

/// Records and answers.
fn read() -> Result<Vec<(Value, String)>, Stop> {
    std::io::stdin()
        .lock()
        .lines()
        .enumerate()
        .filter(|(_, line)| line.as_ref().map_or(true, |text| !text.trim().is_empty()))
        .map(|(index, line)| {
            let bad = |e: String| Stop::input(format!("standard input:{}: {e}", index + 1));
            let line = line.map_err(|e| bad(e.to_string()))?;
            let form = "a line is {\"gold\": …, \"pred\": …} or {\"task\": {…}, \"pred\": …}";
            let answer: Answer = serde_json::from_str(&line).map_err(|e| bad(format!("{e}; {form}")))?;
            answer.read().ok_or_else(|| bad(format!("it has neither `gold` nor `task`; {form}")))
        })
        .collect()
}

impl Grader {
    async fn grade(&self, line: usize, record: &Value, answer: String) -> Result<bool, pl_plugin::Error> {
        let task = Task { id: format!("line {line}"), data: record.to_string() };
        let mut episode = self.environment.start(&task, 0, Stream::new([0; 32])).await?;
        let view = episode.view(&self.agent_name).await?;
        let completion = Completion::new(answer, Finish::Stop);
        let action = self.agent.parse(&view, &completion).await?;
        let actions = [(self.agent_name.clone(), action)];
        let outcome = episode.apply(actions.to_vec()).await?;
        let scores = self.reward.score(&task, &actions, &outcome).await?;
        Ok(scores.local.iter().any(|score| score.agent == self.agent_name && score.success))
    }
}
