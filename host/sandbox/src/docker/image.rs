//! Images: the user's, looked up or made, and the one with the supervisor on top of it.

use std::collections::HashMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use bollard::Docker;
use bollard::errors::Error as BollardError;
use bollard::models::{ContainerConfig, ContainerCreateBody, ImageInspect};
use bollard::query_parameters::{
    CommitContainerOptionsBuilder, CreateImageOptionsBuilder, ListImagesOptionsBuilder, RemoveImageOptions,
    TagImageOptionsBuilder, UploadToContainerOptionsBuilder,
};
use bytes::Bytes;
use futures::StreamExt;

use super::engine::DockerEngine;
use super::error::DockerError;
use super::owner;

/// Path of the supervisor in a container.
pub const SUPERVISOR_PATH: &str = "/pl-supervisor";

/// Empty if the supervisor could not be built.
const SUPERVISOR: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/pl-supervisor"));

/// Repository of the images with the supervisor.
const REPOSITORY: &str = "pl-host-worker";

/// Label of such an image. Its value is the name of the user's image under it.
const BASE_LABEL: &str = "pl-host.base";

/// Source of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImageSource {
    /// A registry's `name:tag`.
    Registry(String),
    /// A tar archive of a root file system.
    Archive(PathBuf),
}

/// Returns the name and size of the image.
pub async fn describe(engine: &DockerEngine, docker: &Docker, image: &str) -> Result<String, DockerError> {
    let size = inspect(engine, docker, image).await?.size.unwrap_or_default() >> 20;
    Ok(format!("{image}, {size} MiB"))
}

/// Returns the id of the image: the hash of its content and configuration. Returns `None` if the engine gives none.
pub async fn id(engine: &DockerEngine, docker: &Docker, image: &str) -> Result<Option<String>, DockerError> {
    Ok(inspect(engine, docker, image).await?.id)
}

async fn inspect(engine: &DockerEngine, docker: &Docker, image: &str) -> Result<ImageInspect, DockerError> {
    docker.inspect_image(image).await.map_err(|error| match error {
        BollardError::DockerResponseServerError { status_code: 404, .. } => {
            DockerError::NoImage { endpoint: engine.endpoint().to_owned(), image: image.to_owned() }
        }
        other => engine.request_error("inspect an image")(other),
    })
}

/// Returns the name of the image that has the supervisor on top of the user's image. Makes it if it does not
/// exist.
pub async fn with_supervisor(docker: &Docker, engine: &DockerEngine) -> Result<String, DockerError> {
    let settings = &engine.settings;
    if SUPERVISOR.is_empty() {
        return Err(DockerError::NoSupervisor);
    }
    let base = inspect(engine, docker, &settings.image).await?;
    let volumes = base.config.as_ref().and_then(|config| config.volumes.as_deref()).unwrap_or_default();
    if let Some(path) = volumes.first().cloned() {
        let (endpoint, image) = (engine.endpoint().to_owned(), settings.image.clone());
        return Err(DockerError::Volume { endpoint, image, path });
    }
    let mut hasher = blake3::Hasher::new();
    hasher.update(base.id.unwrap_or_default().as_bytes()).update(SUPERVISOR);
    let tag = hasher.finalize().to_hex()[..16].to_owned();
    let name = format!("{REPOSITORY}:{tag}");
    if docker.inspect_image(&name).await.is_ok() {
        return Ok(name);
    }
    let failed = engine.request_error("add the supervisor to the image");
    let body = ContainerCreateBody {
        image: Some(settings.image.clone()),
        // It is never started, but an image without a command needs one here.
        cmd: Some(vec![SUPERVISOR_PATH.to_owned()]),
        labels: Some(HashMap::from([(owner::LABEL.to_owned(), owner::owner())])),
        ..ContainerCreateBody::default()
    };
    let container = docker.create_container(None, body).await.map_err(&failed)?.id;
    let committed = commit(docker, &container, &settings.image, &tag).await;
    engine.remove(&container).await;
    committed.map_err(failed)?;
    remove_older(docker, &settings.image, &name).await;
    Ok(name)
}

async fn commit(docker: &Docker, container: &str, base: &str, tag: &str) -> Result<(), BollardError> {
    let upload = UploadToContainerOptionsBuilder::default().path("/").build();
    let archive = supervisor_archive()?;
    docker.upload_to_container(container, Some(upload), bollard::body_full(archive.into())).await?;
    let options =
        CommitContainerOptionsBuilder::default().container(container).repo(REPOSITORY).tag(tag).build();
    // Overwrites the owner's label, which the image would otherwise inherit from the container.
    let labels =
        HashMap::from([(BASE_LABEL.to_owned(), base.to_owned()), (owner::LABEL.to_owned(), String::new())]);
    docker
        .commit_container(options, ContainerConfig { labels: Some(labels), ..ContainerConfig::default() })
        .await?;
    Ok(())
}

/// Returns a tar archive with the supervisor.
fn supervisor_archive() -> std::io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(SUPERVISOR.len() as u64);
    header.set_mode(0o755);
    archive.append_data(&mut header, SUPERVISOR_PATH.trim_start_matches('/'), SUPERVISOR)?;
    archive.into_inner()
}

/// Removes images of the same base with an older supervisor or an older version of the base, unless they are
/// in use.
async fn remove_older(docker: &Docker, base: &str, newest: &str) {
    let filters = HashMap::from([("label", vec![format!("{BASE_LABEL}={base}")])]);
    let options = ListImagesOptionsBuilder::default().filters(&filters).build();
    let Ok(images) = docker.list_images(Some(options)).await else { return };
    for image in images.into_iter().flat_map(|image| image.repo_tags) {
        if image != newest {
            let _ = docker.remove_image(&image, None::<RemoveImageOptions>, None).await;
        }
    }
}

/// Makes an image from a source. `progress` receives a description of each step.
pub async fn make(
    engine: &DockerEngine,
    image: &str,
    source: &ImageSource,
    progress: &(dyn Fn(String) + Send + Sync),
) -> Result<(), DockerError> {
    let docker = engine.docker().await?;
    let failed = engine.request_error("make the image");
    let (name, tag) = split_tag(image);
    let mut steps = match source {
        ImageSource::Registry(source) => {
            let (source, tag) = split_tag(source);
            let options = CreateImageOptionsBuilder::default().from_image(source).tag(tag).build();
            docker.create_image(Some(options), None, None).boxed()
        }
        ImageSource::Archive(path) => {
            let chunks =
                read_chunks(path).map_err(|source| DockerError::Archive { path: path.clone(), source })?;
            let options = CreateImageOptionsBuilder::default().from_src("-").repo(name).tag(tag).build();
            docker.create_image(Some(options), Some(bollard::body_try_stream(chunks)), None).boxed()
        }
    };
    while let Some(step) = steps.next().await {
        let step = step.map_err(&failed)?;
        if let Some(status) = step.status {
            progress(step.id.map_or(status.clone(), |id| format!("{id}: {status}")));
        }
    }
    if let ImageSource::Registry(source) = source
        && source != image
    {
        let options = TagImageOptionsBuilder::default().repo(name).tag(tag).build();
        docker.tag_image(source, Some(options)).await.map_err(failed)?;
    }
    // The end of the steps is no sign of success: an engine that stops ends them too.
    inspect(engine, docker, image).await.map(|_| ()).map_err(|error| match error {
        DockerError::NoImage { endpoint, image } => DockerError::NotMade { endpoint, image },
        other => other,
    })
}

/// Returns a file as a stream of chunks.
fn read_chunks(
    path: &Path,
) -> std::io::Result<impl futures::Stream<Item = std::io::Result<Bytes>> + Send + 'static> {
    let file = std::fs::File::open(path)?;
    Ok(futures::stream::try_unfold(file, |mut file| async move {
        let mut chunk = vec![0; 1 << 20];
        let length = file.read(&mut chunk)?;
        chunk.truncate(length);
        Ok((length > 0).then(|| (Bytes::from(chunk), file)))
    }))
}

/// Splits an image into its name and tag. The default tag is `latest`. The port of a registry is not a tag.
fn split_tag(image: &str) -> (&str, &str) {
    match image.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => (name, tag),
        _ => (image, "latest"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_tags() {
        assert_eq!(split_tag("python:3.11-slim"), ("python", "3.11-slim"));
        assert_eq!(split_tag("python"), ("python", "latest"));
        assert_eq!(split_tag("host:5000/python"), ("host:5000/python", "latest"));
        assert_eq!(split_tag("host:5000/python:3"), ("host:5000/python", "3"));
    }
}
