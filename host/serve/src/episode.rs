//! An episode of the team as a chat completion: its turns are played, and the last one is the answer.

use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::Response;
use futures::StreamExt;
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::chat_request::ChatRequest;
use crate::chat_response::{Envelope, usage};
use crate::error::ApiError;
use crate::response;
use crate::service::{Permit, Service};
use crate::stream::{self, Progress};
use crate::team::{Team, TeamError, TeamResult, TeamTurn};

/// Answers with an episode of the team.
pub(crate) async fn play(
    service: &Arc<Service>,
    team: Arc<dyn Team>,
    chat: ChatRequest,
) -> Result<Response, ApiError> {
    refuse_options(&chat)?;
    let (task, seed) = (task(&chat)?, chat.sampling.episode_seed());
    let envelope = Envelope::new(chat.model.as_deref().unwrap_or_default());
    let permit = service.admit()?;
    if chat.stream {
        let include_usage = chat.stream_options.include_usage;
        return Ok(stream_episode(service, team, task, seed, envelope, include_usage, permit));
    }
    let (sender, mut receiver) = unbounded_channel();
    let ending = team.play(&task, seed, sender).await?;
    drop(permit);
    let mut turns = Vec::new();
    while let Ok(turn) = receiver.try_recv() {
        turns.push(turn);
    }
    let prompt = turns.iter().map(|turn| turn.prompt_tokens).sum();
    let tokens = turns.iter().map(|turn| turn.tokens).sum();
    service.count_tokens(prompt, tokens);
    let finish = finish_reason(ending, turns.last())?;
    let content = turns.last().map(|turn| turn.content.as_str()).unwrap_or_default();
    let earlier = turns.split_last().map(|(_, earlier)| earlier).unwrap_or_default();
    let reasoning: String = earlier.iter().map(transcript).collect();
    let choice = json!({
        "index": 0,
        "message": { "role": "assistant", "content": content, "reasoning_content": reasoning },
        "logprobs": null,
        "finish_reason": finish,
    });
    let mut response = envelope.object("chat.completion", &[choice]);
    response.insert("usage".to_owned(), usage(prompt, tokens));
    response.insert("turns".to_owned(), json!(turns));
    Ok(response::ok(&response))
}

/// Refuses options that have no meaning for a team, and those of sampling, which its workflow sets.
fn refuse_options(chat: &ChatRequest) -> Result<(), ApiError> {
    let options = [
        ("n", chat.sampling.n.is_some_and(|n| n != 1)),
        ("tools", !chat.tools.is_empty()),
        ("logprobs", chat.logprobs),
        ("return_token_ids", chat.return_token_ids),
        ("response_format", chat.response_format.as_ref().is_some_and(|format| format.grammar().is_some())),
        ("chat_template_kwargs", chat.chat_template_kwargs.enable_thinking.is_some()),
    ];
    if let Some((name, _)) = options.into_iter().find(|(_, is_given)| *is_given) {
        return Err(ApiError::field(name, format!("`{name}` has no meaning for a team; leave it out")));
    }
    if let Some(name) = chat.sampling.effective_parameter() {
        let message = format!("`{name}` is not taken for a team, whose workflow sets it; leave it out");
        return Err(ApiError::field(name, message));
    }
    Ok(())
}

/// Returns the task that a conversation has.
fn task(chat: &ChatRequest) -> Result<String, ApiError> {
    let [message] = chat.messages.as_slice() else {
        let message = "a team works on one task: send one message with the role `user`";
        return Err(ApiError::field("messages", message));
    };
    if message.role != "user" {
        return Err(ApiError::field("messages", "a team's task has the role `user`"));
    }
    message.text()
}

/// Returns the reason for which an episode ended.
///
/// # Errors
/// If it was truncated before the first turn.
fn finish_reason(ending: TeamResult, last: Option<&TeamTurn>) -> Result<&'static str, ApiError> {
    match (ending.truncated, last) {
        (true, None) => Err(ApiError::task_too_long()),
        (true, Some(_)) => Ok("length"),
        (false, _) => Ok("stop"),
    }
}

impl From<TeamError> for ApiError {
    fn from(error: TeamError) -> Self {
        let message = error.to_string();
        match error {
            TeamError::Task(_) => ApiError::field("messages", message),
            TeamError::Episode(_) => ApiError::with_status(StatusCode::INTERNAL_SERVER_ERROR, message),
        }
    }
}

/// Returns a turn as a part of the reasoning.
fn transcript(turn: &TeamTurn) -> String {
    format!("{}: {}\n\n", turn.agent, turn.content)
}

/// Streams an episode: each turn as reasoning once the next one begins, the last one as content.
fn stream_episode(
    service: &Arc<Service>,
    team: Arc<dyn Team>,
    task: String,
    seed: u64,
    envelope: Envelope,
    include_usage: bool,
    permit: Permit,
) -> Response {
    let (sender, turns) = unbounded_channel();
    let (values, receiver) = unbounded_channel();
    let shared = Arc::clone(service);
    let playing = async move {
        let _permit = permit;
        let send = |delta: Value, finish: Value| {
            let choice = json!({ "index": 0, "delta": delta, "finish_reason": finish });
            // A client that is gone ends the stream, and with it this future.
            let _ = values.send(envelope.chunk(choice));
        };
        send(json!({ "role": "assistant", "content": "" }), Value::Null);
        let mut turns: UnboundedReceiver<TeamTurn> = turns;
        let mut last: Option<TeamTurn> = None;
        let relay = async {
            let (mut prompt, mut tokens) = (0, 0);
            while let Some(turn) = turns.recv().await {
                prompt += turn.prompt_tokens;
                tokens += turn.tokens;
                shared.count_tokens(turn.prompt_tokens, turn.tokens);
                if let Some(earlier) = last.replace(turn) {
                    send(json!({ "reasoning_content": transcript(&earlier) }), Value::Null);
                }
            }
            (prompt, tokens)
        };
        let (ending, (prompt, tokens)) = tokio::join!(team.play(&task, seed, sender), relay);
        match ending.map_err(ApiError::from).and_then(|ending| finish_reason(ending, last.as_ref())) {
            Ok(finish) => {
                let content = last.map(|turn| turn.content).unwrap_or_default();
                send(json!({ "content": content }), Value::Null);
                send(json!({}), json!(finish));
                if include_usage {
                    let _ = values.send(envelope.usage_chunk(usage(prompt, tokens)));
                }
            }
            Err(error) => drop(values.send(error.to_json())),
        }
    };
    stream::events(stream::while_running(playing, receiver).filter_map(async |part| match part {
        Progress::Sent(value) => Some(value),
        Progress::Ended(()) => None,
    }))
}
