//! Flat sampling: an episode from start to end, one completion per agent and turn.

use futures::future::try_join_all;
use serde_json::Map;

use crate::record::{Context, Played, Spot};
use crate::turns::{Cursor, LastReward, Next};
use crate::{Cast, Failure};

/// Plays one episode.
///
/// # Errors
/// The failure that ended it, for the run's record.
pub async fn play_flat(cast: &Cast, context: &Context) -> Result<Played, Failure> {
    let place = &context.place;
    let mut cursor = Cursor::new(cast.players.len());
    let mut played = context.begin(cast);
    let mut reward = LastReward::default();
    let mut facts = Map::new();
    let mut episode = cast
        .environment
        .start(&context.task, place.start_seed(), place.environment())
        .await
        .map_err(|fault| context.failure(&fault, 0, None))?;
    loop {
        let index = match cursor.next(&cast.turns, &facts, &reward) {
            Next::Node(index) => index,
            Next::End => break,
            Next::Truncated => {
                played.summary.truncated = true;
                break;
            }
        };
        let stop = cursor.stops();
        let failed = |fault| context.failure(&fault, stop, None);
        let node = &cast.turns.nodes[index];
        let questions = cast.ask(episode.as_mut(), node, &cursor).await.map_err(failed)?;
        if context.rests && !questions.is_empty() {
            episode.rest().await.map_err(failed)?;
        }
        let answers = try_join_all(questions.iter().map(async |question| {
            let seed = place.completion(stop, question.agent as u32, 0, 0);
            let completions = cast.complete(question, vec![seed]).await?;
            try_join_all(completions.into_iter().map(|said| cast.parse(question, said))).await
        }))
        .await
        .map_err(failed)?;
        cursor.leave(index, &cast.turns);
        let joint: Vec<_> = questions.iter().zip(answers.iter().flatten()).collect();
        if joint.is_empty() {
            continue;
        }
        let step = cast.act(episode.as_mut(), &context.task, &joint).await.map_err(failed)?;
        played.summary.reproducible &= episode.reproducible();
        let spot = Spot { node_visit: stop, branch: 0, state: None, chosen: true };
        for (question, answer) in &joint {
            played.summary.tokens += answer.completion.tokens.len() as u64;
            played.transitions.push(context.transition(cast, question, answer, &step, &spot));
        }
        played.follow(cast, &joint, &step);
        if step.outcome.done || step.outcome.truncated {
            break;
        }
        reward = step.last_reward(cast, &questions);
        facts = step.outcome.facts;
    }
    played.summary.turns = cursor.stops();
    Ok(played)
}
