//! Completions as they are generated, and their events.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::stream::{self, Stream, StreamExt};
use pl_types::{Chunk, Completion, GenerateError, Request};
use serde_json::Value;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::error::ApiError;
use crate::service::{Permit, Service};

/// A part of what a request generates.
pub(crate) enum Generated {
    /// More of one completion.
    Chunk(Chunk),
    /// All completions, after their last chunks.
    Finished(Vec<Completion>),
    Failed(ApiError),
}

type Generation = Pin<Box<dyn Future<Output = Result<Vec<Completion>, GenerateError>> + Send>>;

struct Progress {
    chunks: UnboundedReceiver<Chunk>,
    /// `None` once it has ended.
    generation: Option<Generation>,
    result: Option<Result<Vec<Completion>, GenerateError>>,
    _permit: Permit,
}

impl Progress {
    async fn next(mut self) -> Option<(Generated, Self)> {
        while let Some(generation) = &mut self.generation {
            tokio::select! {
                // Chunks first: a result is passed on after the last of them.
                biased;
                Some(chunk) = self.chunks.recv() => return Some((Generated::Chunk(chunk), self)),
                result = generation => {
                    self.result = Some(result);
                    self.generation = None;
                }
            }
        }
        if let Ok(chunk) = self.chunks.try_recv() {
            return Some((Generated::Chunk(chunk), self));
        }
        let last = match self.result.take()? {
            Ok(completions) => Generated::Finished(completions),
            Err(error) => Generated::Failed(error.into()),
        };
        Some((last, self))
    }
}

/// Generates and returns what comes of it. Dropping the stream cancels the request.
pub(crate) fn generate(
    service: &Arc<Service>,
    mut request: Request,
    permit: Permit,
) -> impl Stream<Item = Generated> + Send + use<> {
    let (sender, chunks) = unbounded_channel();
    request.listener = Some(sender);
    let generator = Arc::clone(&service.generator);
    let generation: Generation = Box::pin(async move { generator.generate(request).await });
    let start = Progress { chunks, generation: Some(generation), result: None, _permit: permit };
    stream::unfold(start, Progress::next)
}

/// Returns a response of server-sent events, one per value, that ends as OpenAI's do: with `[DONE]`.
pub(crate) fn events(values: impl Stream<Item = Value> + Send + 'static) -> Response {
    let values = values.map(|value| value.to_string()).chain(stream::iter(["[DONE]".to_owned()]));
    let events = values.map(|data| Ok::<_, Infallible>(Event::default().data(data)));
    Sse::new(events).keep_alive(KeepAlive::default()).into_response()
}

/// Returns the values that `work` sends. Dropping the stream drops `work`.
pub(crate) fn while_running(
    work: impl Future<Output = ()> + Send + 'static,
    values: UnboundedReceiver<Value>,
) -> impl Stream<Item = Value> + Send {
    let work: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(work);
    stream::unfold((Some(work), values), |(mut work, mut values)| async move {
        while let Some(running) = &mut work {
            tokio::select! {
                biased;
                Some(value) = values.recv() => return Some((value, (work, values))),
                () = running => work = None,
            }
        }
        let value = values.try_recv().ok()?;
        Some((value, (work, values)))
    })
}
