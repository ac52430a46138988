//! Streams of a run on the server.

use async_nats::jetstream::stream::{Config, Stream};

use crate::connection::Connection;
use crate::error::Error;

/// Creates a stream, or opens the one of this name and gives it the same subjects.
///
/// # Errors
/// If the server fails.
pub(crate) async fn create_stream(
    connection: &Connection,
    action: &str,
    config: Config,
) -> Result<Stream, Error> {
    let create = || connection.context.create_or_update_stream(config.clone());
    connection.persist(action, create).await?;
    connection.persist(action, || connection.context.get_stream(config.name.clone())).await
}
