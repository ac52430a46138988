//! Streams of a run on the server.

use async_nats::jetstream::stream::{Config, Stream};

use crate::connection::Connection;
use crate::error::Error;

/// Creates a stream, or opens the one of this name. Its subjects may be those of an earlier version and are replaced; limits
/// that somebody has given it stay.
///
/// # Errors
/// If the server fails.
pub(crate) async fn create_stream(
    connection: &Connection,
    action: &str,
    config: Config,
) -> Result<Stream, Error> {
    let create = || connection.context.get_or_create_stream(config.clone());
    let stream = connection.persist(action, create).await?;
    let current = &stream.cached_info().config;
    if current.subjects != config.subjects {
        let updated = Config { subjects: config.subjects.clone(), ..current.clone() };
        connection.persist(action, || connection.context.update_stream(updated.clone())).await?;
    }
    Ok(stream)
}
