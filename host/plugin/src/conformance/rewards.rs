//! What a reward promises: the same scores for the same step.

use pl_types::Item;

use super::drive::Driven;
use super::{Outcome, Report, Trouble, broken};
use crate::journal::Journal;
use crate::Reward;

pub async fn examine(item: &Item, reward: &Reward, driven: &Driven, report: &mut Report) {
    let journal = Journal::default();
    let scored = scores(&reward.with_journal(&journal), driven).await;
    if scored.is_ok() {
        report.spend("score", &journal);
    }
    report.note(item, "scores a step the same whoever was scored before", scored);
}

async fn scores(reward: &Reward, driven: &Driven) -> Outcome {
    let mut first = Vec::new();
    let mut refusal = None;
    for (played, step) in driven.steps() {
        let actions = [(step.agent.clone(), step.action.clone())];
        match reward.score(&played.task, &actions, &step.outcome).await {
            Ok(scores) => first.push((played, step, actions, scores)),
            Err(error) if error.refusal().is_some() => refusal = Some(error),
            Err(error) => return Err(error.into()),
        }
    }
    if first.is_empty() {
        return Err(Trouble::Missing(match refusal {
            Some(error) => format!("no step that it can score: {error}"),
            None => "no step to score: give a plugin whose environment and agents make some".to_owned(),
        }));
    }
    for (played, step, actions, scores) in first.iter().rev() {
        let again = reward.score(&played.task, actions, &step.outcome).await?;
        if again != *scores {
            let action = &step.action;
            return Err(broken(format!("the action {action} is scored {scores:?} once and {again:?} then")));
        }
    }
    Ok(())
}
