//! Checks of endpoints, for people who set them up.

use super::engine::DockerEngine;
use super::error::DockerError;
use super::image;

/// State of an endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspection {
    /// Endpoint as it is written in the settings.
    pub endpoint: String,
    /// Version and architecture of the engine if it answers.
    pub engine: Option<String>,
    /// Name and size of the image if it exists.
    pub image: Option<String>,
    /// Problem that makes the endpoint unusable, with advice.
    pub problem: Option<String>,
}

/// Finds out if the engine answers and has the image.
pub async fn inspect(engine: &DockerEngine) -> Inspection {
    let endpoint = engine.endpoint().to_owned();
    let mut found = Inspection { endpoint, engine: None, image: None, problem: None };
    found.problem = inspect_into(engine, &mut found).await.err().map(|problem| problem.to_string());
    found
}

async fn inspect_into(engine: &DockerEngine, found: &mut Inspection) -> Result<(), DockerError> {
    let docker = engine.docker().await?;
    let version = docker.version().await.map_err(|source| engine.unreachable(source))?;
    let architecture = version.arch.unwrap_or_default();
    found.engine = Some(format!("Docker {} on {architecture}", version.version.unwrap_or_default()));
    let supported = own_architecture();
    if architecture != supported {
        let endpoint = engine.endpoint().to_owned();
        return Err(DockerError::Architecture { endpoint, architecture, supported });
    }
    found.image = Some(image::describe(engine, docker, &engine.settings.image).await?);
    Ok(())
}

/// Returns Docker's name of the architecture that this program is built for.
fn own_architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
