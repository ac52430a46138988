//! Keys of servers, which stand in the environment and never in a file.

use pl_servers::ServerError;

use crate::error::Error;

/// Reads the key of a server from an environment variable. `server` is the name of its block, for messages.
///
/// # Errors
/// If the variable is missing or empty.
pub(crate) fn server_key(server: &str, variable: &str) -> Result<String, Error> {
    let key = std::env::var(variable).ok().filter(|key| !key.is_empty());
    key.ok_or_else(|| {
        Error::server(ServerError::Setup {
            server: server.to_owned(),
            problem: format!("the environment variable {variable}, which has its key, is not set"),
        })
    })
}
