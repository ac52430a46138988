//! Tree sampling: at every stop, candidates from one state, each on its own copy; the episode goes on from
//! the best.
//!
//! Between calls a state is a snapshot. No tree ever holds one copy of the environment while it waits for
//! another, so that trees can't lock each other out of a full pool.

use futures::future::{join_all, try_join_all};
use pl_inference::Completion;
use pl_plugin::Snapshot;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::Map;

use crate::record::{Context, Played, Spot};
use crate::stop::{Answer, Question, Step};
use crate::tape::Tape;
use crate::trace::What;
use crate::turns::{Cursor, LastReward, Next};
use crate::{Cast, Fault};

/// Tries at one candidate before the group does without it.
const TRIES: u32 = 3;

/// A joint action that was applied to its own copy of the node's state.
struct Candidate {
    branch: u32,
    /// One per question.
    answers: Vec<Answer>,
    step: Step,
    /// After the step.
    state: Snapshot,
    reproducible: bool,
}

/// Plays one tree into `played` and keeps every candidate of every node, also those that failed alone.
///
/// # Errors
/// The fault that ended it, at the tape's stop: one at the trunk, or the last one of a node none of whose candidates
/// could be played.
pub(crate) async fn play_tree(
    cast: &Cast,
    context: &Context,
    played: &mut Played,
    tape: &mut Tape,
) -> Result<(), Fault> {
    let place = &context.place;
    let mut cursor = Cursor::new(cast.players.len());
    let mut reward = LastReward::default();
    let mut facts = Map::new();
    let mut state = cast.start(context, tape).await?.snapshot(tape).await?;
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
        tape.at(stop);
        let mut trunk = cast.restore(&state, tape).await?;
        let questions = cast.ask(&mut trunk, &cast.turns.nodes[index], &cursor, tape).await?;
        drop(trunk);
        cursor.leave(index, &cast.turns);
        if questions.is_empty() {
            continue;
        }
        let grown = grow(cast, context, &state, &questions, played, tape).await?;
        let best = choose(cast, &questions, &grown, place.tie(stop));
        tape.note(None, What::Chosen(best));
        let hash = state.hash();
        for candidate in &grown {
            let spot = Spot {
                node_visit: stop,
                branch: candidate.branch,
                state: Some(&hash),
                chosen: candidate.branch == best,
            };
            for (question, answer) in questions.iter().zip(&candidate.answers) {
                played.transitions.push(context.transition(cast, question, answer, &candidate.step, &spot));
            }
        }
        let Some(winner) = grown.into_iter().find(|c| c.branch == best) else { break };
        let joint: Vec<_> = questions.iter().zip(&winner.answers).collect();
        played.follow(cast, &joint, &winner.step);
        state = winner.state;
        if winner.step.outcome.done || winner.step.outcome.truncated {
            break;
        }
        reward = winner.step.last_reward(cast, &questions);
        facts = winner.step.outcome.facts;
    }
    played.summary.turns = cursor.stops();
    Ok(())
}

/// Samples, applies and scores the candidates of a node. One that fails is sampled anew; after
/// [`TRIES`] tries the group does without it.
async fn grow(
    cast: &Cast,
    context: &Context,
    state: &Snapshot,
    questions: &[Question],
    played: &mut Played,
    tape: &mut Tape,
) -> Result<Vec<Candidate>, Fault> {
    let stop = tape.stop();
    let mut grown = Vec::new();
    let mut wanted: Vec<u32> = (0..context.candidates).collect();
    let mut last_fault = None;
    for retry in 0..TRIES {
        if wanted.is_empty() {
            break;
        }
        let completions = try_join_all(questions.iter().map(|question| {
            let seed = |&branch| context.place.completion(stop, question.agent as u32, branch, retry);
            cast.complete(question, wanted.iter().map(seed).collect())
        }))
        .await?;
        played.summary.tokens += completions.iter().flatten().map(|c| c.tokens.len() as u64).sum::<u64>();
        let joint = |at: usize| completions.iter().map(|said| said[at].clone()).collect::<Vec<_>>();
        let tries = wanted.iter().enumerate().map(async |(at, &branch)| {
            let mut own = tape.of_candidate(branch, retry);
            let tried = try_candidate(cast, context, state, questions, branch, joint(at), &mut own).await;
            (own, tried)
        });
        let tried = join_all(tries).await;
        let mut missing = Vec::new();
        for (branch, (own, result)) in wanted.iter().copied().zip(tried) {
            tape.append(own);
            match result {
                Ok(candidate) => {
                    played.summary.reproducible &= candidate.reproducible;
                    grown.push(candidate);
                }
                Err(fault) => {
                    played.failures.push(context.failure(&fault, stop, Some(branch)));
                    last_fault = Some(fault);
                    missing.push(branch);
                }
            }
        }
        wanted = missing;
    }
    grown.sort_by_key(|candidate| candidate.branch);
    match last_fault {
        Some(fault) if grown.is_empty() => Err(fault),
        _ => Ok(grown),
    }
}

/// Parses a joint action, applies it to a copy of `state` and scores it. A completion that the agent's plugin
/// fails on costs its candidate alone, like an action that the environment fails on.
async fn try_candidate(
    cast: &Cast,
    context: &Context,
    state: &Snapshot,
    questions: &[Question],
    branch: u32,
    said: Vec<Completion>,
    tape: &mut Tape,
) -> Result<Candidate, Fault> {
    // All of it first: a replay needs what was said, also by those that an earlier fault kept from being understood.
    questions.iter().zip(&said).for_each(|(question, completion)| cast.said(question, completion, tape));
    let tried = async {
        let mut answers = Vec::with_capacity(questions.len());
        for (question, completion) in questions.iter().zip(said) {
            answers.push(cast.parse(question, completion, tape).await?);
        }
        let mut live = cast.restore(state, tape).await?;
        let joint: Vec<_> = questions.iter().zip(&answers).collect();
        let step = cast.act(&mut live, &context.task, &joint, tape).await?;
        let state = live.snapshot(tape).await?;
        Ok(Candidate { branch, answers, step, state, reproducible: live.reproducible() })
    }
    .await;
    if let Err(fault) = &tried {
        tape.fault(fault);
    }
    tried
}

/// The branch with the highest mean reward of the agents that acted; ties are drawn.
fn choose(cast: &Cast, questions: &[Question], grown: &[Candidate], tie: [u8; 32]) -> u32 {
    let total = |c: &Candidate| questions.iter().map(|q| c.step.reward(cast, q.agent)).sum::<f64>();
    let best = grown.iter().map(total).fold(f64::NEG_INFINITY, f64::max);
    let tied: Vec<u32> = grown.iter().filter(|c| total(c) >= best).map(|c| c.branch).collect();
    let mut stream = ChaCha8Rng::from_seed(tie);
    match tied.len() {
        0 => 0,
        count => tied[(stream.next_u64() % count as u64) as usize],
    }
}
