//! Flat sampling: an episode from start to end, one completion per agent and turn.

use futures::future::join_all;
use serde_json::Map;

use crate::record::{Context, Played, Spot};
use crate::stop::{Answer, Question};
use crate::tape::Tape;
use crate::turns::{Cursor, LastReward, Next};
use crate::{Cast, Fault};

/// Plays one episode into `played`.
///
/// # Errors
/// The fault that ended it, at the tape's stop.
pub(crate) async fn play_flat(
    cast: &Cast,
    context: &Context,
    played: &mut Played,
    tape: &mut Tape,
) -> Result<(), Fault> {
    let mut cursor = Cursor::new(cast.players.len());
    let mut reward = LastReward::default();
    let mut facts = Map::new();
    let mut live = cast.start(context, tape).await?;
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
        let questions = cast.ask(&mut live, &cast.turns.nodes[index], &cursor, tape).await?;
        if context.rests && !questions.is_empty() {
            live.rest(tape).await?;
        }
        let answers = answers(cast, context, &questions, tape).await?;
        cursor.leave(index, &cast.turns);
        let joint: Vec<_> = questions.iter().zip(&answers).collect();
        if joint.is_empty() {
            continue;
        }
        let step = cast.act(&mut live, &context.task, &joint, tape).await?;
        played.summary.reproducible &= live.reproducible();
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
    Ok(())
}

/// One answer per question. The agents answer side by side; each of them ends before a fault of another counts,
/// so that the same fault counts whoever is fastest.
async fn answers(
    cast: &Cast,
    context: &Context,
    questions: &[Question],
    tape: &mut Tape,
) -> Result<Vec<Answer>, Fault> {
    let (stop, shared) = (tape.stop(), &*tape);
    let answering = questions.iter().map(async |question| {
        let mut tape = shared.beside();
        let answer = answer(cast, context, question, stop, &mut tape).await;
        (tape, answer)
    });
    let answered = join_all(answering).await;
    let (tapes, answers): (Vec<Tape>, Vec<_>) = answered.into_iter().unzip();
    tapes.into_iter().for_each(|own| tape.append(own));
    answers.into_iter().collect()
}

async fn answer(
    cast: &Cast,
    context: &Context,
    question: &Question,
    stop: u32,
    tape: &mut Tape,
) -> Result<Answer, Fault> {
    let seed = context.place.completion(stop, question.agent as u32, 0, 0);
    let said = cast.complete(question, vec![seed]).await?;
    match said.into_iter().next() {
        Some(completion) => {
            cast.said(question, &completion, tape);
            cast.parse(question, completion, tape).await
        }
        None => Err(Fault::of(&cast.players[question.agent].name, "generation", "no completion came")),
    }
}
