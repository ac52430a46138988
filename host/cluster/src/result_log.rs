//! The log of results: appended by workers, read by the coordinator from its beginning.

use std::time::Duration;

use async_nats::header::NATS_MESSAGE_ID;
use async_nats::jetstream::consumer::pull::OrderedConfig;
use async_nats::jetstream::consumer::{DeliverPolicy, ReplayPolicy};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::{Config, DiscardPolicy, RetentionPolicy, StorageType, Stream};
use bytes::Bytes;
use futures::StreamExt;

use crate::connection::Connection;
use crate::error::Error;
use crate::lease::{Outcome, ResultMessage};
use crate::names::Names;
use crate::streams::create_stream;

/// Time in which the server drops a result that was published before.
const DUPLICATE_WINDOW: Duration = Duration::from_secs(900);

/// Pause before the log is read again after an error.
const PAUSE: Duration = Duration::from_millis(200);

/// Creates the stream of results.
pub(crate) async fn create(connection: &Connection, names: &Names) -> Result<Stream, Error> {
    let config = Config {
        name: names.results(),
        subjects: names.result_subjects(),
        retention: RetentionPolicy::Limits,
        storage: StorageType::File,
        discard: DiscardPolicy::New,
        duplicate_window: DUPLICATE_WINDOW,
        ..Config::default()
    };
    create_stream(connection, "create the stream of results", config).await
}

/// Appends a result of a lease of a coordinator. A worker that publishes it twice appends it once; that of a later coordinator's
/// lease is appended, because its coordinator may not have kept the first.
pub(crate) async fn append(
    connection: &Connection,
    names: &Names,
    epoch: u64,
    message: &ResultMessage,
) -> Result<(), Error> {
    let encoded: Bytes = postcard::to_allocvec(message).map_err(connection.failed("encode a result"))?.into();
    let subject = names.result_subject(message.queue, message.step);
    let id = message_id(epoch, message);
    let publish = || async {
        let message = PublishMessage::build().payload(encoded.clone()).message_id(&id);
        connection.context.send_publish(subject.clone(), message).await?.await
    };
    connection.persist("store a result", publish).await?;
    Ok(())
}

/// Returns the id of a message in the log, by which the server knows a repeated one. It begins with the lease's key, the epoch of
/// its coordinator and the worker's name: [`sender`] reads them.
fn message_id(epoch: u64, message: &ResultMessage) -> String {
    let ResultMessage { key, worker, .. } = message;
    match &message.outcome {
        Outcome::Part { index, .. } => format!("{key}-{epoch}-{worker}.{index}"),
        _ => format!("{key}-{epoch}-{worker}"),
    }
}

/// Returns the key, the epoch and the worker of a message's id. No worker's name has a dot.
fn sender(id: &str) -> Option<(&str, u64, &str)> {
    let (key, rest) = id.split_once('-')?;
    let (epoch, worker) = rest.split_once('-')?;
    Some((key, epoch.parse().ok()?, worker.split('.').next()?))
}

/// Returns a message that can't be read as a result for the lease of its id: its worker has acknowledged the lease, and no other
/// result would come. Returns `None` if it is no message of a worker, or of a lease of another coordinator than that of `epoch`.
fn unreadable(
    names: &Names,
    epoch: u64,
    subject: &str,
    id: Option<&str>,
    reason: String,
) -> Option<ResultMessage> {
    let (key, of_epoch, worker) = sender(id?)?;
    let (queue, step) = names.of_result_subject(subject)?;
    (of_epoch == epoch).then(|| ResultMessage {
        key: key.to_owned(),
        queue,
        task: String::new(),
        step,
        worker: worker.to_owned(),
        outcome: Outcome::Unreadable { reason },
    })
}

/// Hands every result in the log to `receive`, those from before first, until the task is aborted. A server that is away
/// is waited for. A message to the coordinator of `epoch` that can't be read is handed over as [`Outcome::Unreadable`].
pub(crate) async fn follow(
    connection: Connection,
    names: Names,
    stream: Stream,
    epoch: u64,
    receive: impl Fn(ResultMessage),
) {
    // Sequence of the next message.
    let mut next = 1;
    loop {
        tokio::select! {
            ended = read(&names, &stream, epoch, &mut next, &receive) => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "the log of results is read again");
                }
            }
            () = connection.reconnected() => {}
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn read(
    names: &Names,
    stream: &Stream,
    epoch: u64,
    next: &mut u64,
    receive: &impl Fn(ResultMessage),
) -> Result<(), async_nats::Error> {
    let config = OrderedConfig {
        deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: *next },
        replay_policy: ReplayPolicy::Instant,
        ..OrderedConfig::default()
    };
    let consumer = stream.create_consumer(config).await?;
    let mut messages = consumer.messages().await?;
    while let Some(message) = messages.next().await {
        let message = message?;
        let sequence = message.info()?.stream_sequence;
        let refuse = |reason: String| {
            tracing::warn!(sequence, reason, "a message in the log of results is not usable");
            let id = message.headers.as_ref().and_then(|headers| headers.get(NATS_MESSAGE_ID));
            let id = id.map(|id| id.as_str());
            if let Some(message) = unreadable(names, epoch, &message.subject, id, reason) {
                receive(message);
            }
        };
        match postcard::from_bytes::<ResultMessage>(&message.payload) {
            Ok(result) if *message.subject == *names.result_subject(result.queue, result.step) => {
                receive(result)
            }
            Ok(_) => refuse("it is on a subject that is not its own".to_owned()),
            Err(error) => refuse(error.to_string()),
        }
        *next = sequence + 1;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::LeaseQueue;

    #[test]
    fn a_message_that_can_not_be_read_is_of_the_lease_and_the_worker_of_its_id() {
        let names = Names::new("run-1");
        let result = ResultMessage {
            key: "0123".to_owned(),
            queue: LeaseQueue::Workers,
            task: "train 1.0".to_owned(),
            step: 4,
            worker: "rack-2-b".to_owned(),
            outcome: Outcome::Inline { hash: String::new(), bytes: Vec::new() },
        };
        let (id, subject) = (message_id(7, &result), names.result_subject(result.queue, result.step));
        let read = |epoch, subject: &str, id| unreadable(&names, epoch, subject, id, "why".to_owned());
        let own = read(7, &subject, Some(&*id)).unwrap();
        assert_eq!((own.id(), &*own.worker), (result.id(), "rack-2-b"));
        assert_eq!(own.outcome, Outcome::Unreadable { reason: "why".to_owned() });
        let part = ResultMessage { outcome: Outcome::Part { index: 3, bytes: Vec::new() }, ..result.clone() };
        let id_of_part = message_id(7, &part);
        assert_eq!(read(7, &subject, Some(&*id_of_part)).unwrap().worker, "rack-2-b");
        for (epoch, subject, id) in [
            (8, &*subject, Some(&*id)),
            (7, "pl.run-1.status", Some(&*id)),
            (7, "pl.run-1.result.x", Some(&*id)),
            (7, &*subject, Some("another id")),
            (7, &*subject, None),
        ] {
            assert_eq!(read(epoch, subject, id), None, "{epoch} {subject} {id:?}");
        }
    }
}
