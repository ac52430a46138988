//! Designs of a step: written by a designer for the step's tasks, then played by their own teams.
//!
//! A task of a designed scenario has `designs` episodes of the designer, samples 0, 1, …, and after them `executions` of
//! each design that can be played, with the samples that follow. All start from the same state: what differs is the team.

use std::collections::BTreeMap;
use std::sync::Arc;

use pl_dsl::workflow::{Designer, Rollout};
use pl_rollout::{EpisodeSetup, RolloutBatch, RolloutPlan};
use serde_json::{Map, Value, json};

use crate::design::{Assessment, DesignRecord, Outcome, ScenarioDesigner, design_of, hash_of};
use crate::evaluation::{mean, mean_of};

use super::rollouts::ScenarioBatch;

/// Origin of designs that a model has written.
const ORIGIN: &str = "designer";

/// Outcome from which a design counts as a success of its designer.
const SUCCESS: f64 = 0.5;

/// Designs for tasks of one scenario.
pub(super) struct StepDesigns {
    pub scenario: usize,
    /// Results of the designer's episodes.
    written: RolloutBatch,
    tasks: u32,
    designs: Vec<StepDesign>,
}

/// A design of a step.
struct StepDesign {
    /// Number of its task in the step, and of the designer's episode among those of the task.
    position: (u32, u32),
    task_id: String,
    text: String,
    tokens: u64,
    /// Number of its agents. `None` if it has a mistake.
    agents: Option<usize>,
    outcome: Outcome,
    /// Results of its episodes.
    played: RolloutBatch,
}

/// Executions of a design that are to be played.
pub(super) struct Executions {
    /// Position among the designs.
    pub design: usize,
    pub setup: EpisodeSetup,
    pub plan: RolloutPlan,
}

impl StepDesigns {
    /// Takes the designs from the designer's episodes on the tasks of `plan`. Returns them with the episodes that they are
    /// to play.
    pub fn new(
        scenario: usize,
        designer: &ScenarioDesigner,
        plan: &RolloutPlan,
        written: RolloutBatch,
    ) -> (StepDesigns, Vec<Executions>) {
        let Designer { designs: per_task, executions, .. } = *designer.designer();
        let (mut designs, mut all) = (Vec::new(), Vec::new());
        for transition in written.transitions.iter().filter(|one| one.final_call) {
            let (number, sample) = (transition.key.task, transition.key.sample);
            let Some(task) = plan.tasks.get((number - plan.first_task) as usize) else { continue };
            let text = design_of(&transition.action).unwrap_or_default();
            let mut agents = None;
            let outcome = match designer.builder.assess(&text) {
                Assessment::Wrong { mistakes, .. } => Outcome::wrong(&mistakes),
                Assessment::Costly { bound, most } => Outcome::Costly { bound, most },
                Assessment::Sound(team) => {
                    let setup = designer.builder.setup_of(*team, sample as usize);
                    agents = Some(setup.agents.len());
                    let plan = RolloutPlan {
                        tasks: vec![Arc::clone(task)],
                        first_task: number,
                        mode: Rollout::Flat,
                        samples: executions,
                        first_sample: per_task + sample * executions,
                        ..plan.clone()
                    };
                    all.push(Executions { design: designs.len(), setup, plan });
                    Outcome::of_episodes(&RolloutBatch::default())
                }
            };
            designs.push(StepDesign {
                position: (number, sample),
                task_id: transition.task_id.clone(),
                text,
                tokens: transition.completion.len() as u64,
                agents,
                outcome,
                played: RolloutBatch::default(),
            });
        }
        let tasks = plan.tasks.len() as u32;
        (StepDesigns { scenario, written, tasks, designs }, all)
    }

    /// Keeps the results of a design's episodes.
    pub fn end_executions(&mut self, design: usize, played: RolloutBatch) {
        if let Some(design) = self.designs.get_mut(design) {
            design.outcome = Outcome::of_episodes(&played);
            design.played = played;
        }
    }

    /// Credits the designer with the outcomes. Returns the results of all episodes, of which the designer's are no episodes of a
    /// team, and the records of the designs.
    pub fn finish(self, step: u64, designer: &Designer) -> (ScenarioBatch, Vec<DesignRecord>) {
        let StepDesigns { scenario, written, tasks, designs } = self;
        let mut batch = RolloutBatch { episodes: Vec::new(), ..written };
        let outcomes: BTreeMap<(u32, u32), f64> = designs
            .iter()
            .filter_map(|design| match design.outcome {
                Outcome::Played { success, .. } => Some((design.position, success)),
                Outcome::Invalid { .. } | Outcome::Costly { .. } => None,
            })
            .collect();
        for transition in &mut batch.transitions {
            if transition.key.sample < designer.guided {
                // It is learned from as if it had been sampled without the grammar.
                transition.support = None;
            }
            let solved = outcomes.get(&(transition.key.task, transition.key.sample)).copied();
            // The check's part, which the episode of the designer was scored by.
            transition.local_reward = transition.team_reward;
            transition.team_reward = solved.unwrap_or(0.0);
            transition.reward += transition.team_reward;
            transition.success = transition.team_reward >= SUCCESS;
        }
        let mut records = Vec::new();
        let mut metrics = metrics(designs.iter().filter(|one| one.position.1 >= designer.guided));
        for design in designs {
            let ((task, sample), execution_tokens) =
                (design.position, design.played.episodes.iter().map(|episode| episode.tokens).sum());
            records.push(DesignRecord {
                round: u32::try_from(step).unwrap_or(u32::MAX),
                index: task * designer.designs + sample,
                hash: hash_of(&design.text),
                origin: ORIGIN.to_owned(),
                parents: Vec::new(),
                outcome: design.outcome,
                designer_tokens: design.tokens,
                execution_tokens,
                task: Some(design.task_id),
                design: design.text,
            });
            batch.append(design.played);
        }
        metrics.insert("executions".into(), batch.episodes.len().into());
        if designer.guided > 0 {
            metrics.insert("guided".into(), (designer.guided * tasks).into());
        }
        if designer.alternate.is_some() {
            let learns = if designer.learns_in(step) { "designer" } else { "agents" };
            metrics.insert("learns".into(), learns.into());
        }
        (ScenarioBatch { scenario, tasks, batch, designs: Some(metrics) }, records)
    }
}

/// Returns metrics of designs: shares of those that pass their check and of those that are played, and means.
fn metrics<'a>(designs: impl Iterator<Item = &'a StepDesign>) -> Map<String, Value> {
    let designs: Vec<&StepDesign> = designs.collect();
    let share = |holds: fn(&Outcome) -> bool| mean(designs.iter().map(|one| f64::from(holds(&one.outcome))));
    let mistakes = designs.iter().map(|one| match &one.outcome {
        Outcome::Invalid { mistakes } => mistakes.len() as f64,
        Outcome::Costly { .. } | Outcome::Played { .. } => 0.0,
    });
    let mistakes = mean(mistakes);
    let successes = designs.iter().filter_map(|one| match one.outcome {
        Outcome::Played { success, .. } => Some(success),
        Outcome::Invalid { .. } | Outcome::Costly { .. } => None,
    });
    let successes: Vec<f64> = successes.collect();
    let best = successes.iter().copied().reduce(f64::max);
    let fields = json!({
        "count": designs.len(),
        "valid": share(|outcome| !matches!(outcome, Outcome::Invalid { .. })),
        "played": share(|outcome| matches!(outcome, Outcome::Played { .. })),
        "mistakes": mistakes,
        "agents": mean_of(designs.iter().filter_map(|one| one.agents).map(|count| count as f64)),
        "success": mean_of(successes.iter().copied()),
        "best": best,
    });
    match fields {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}
