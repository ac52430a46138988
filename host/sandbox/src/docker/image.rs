//! Images: the user's, found or made, and the one with the supervisor on top.

use std::collections::HashMap;
use std::io::Read;
use std::path::Path;

use bollard::Docker;
use bollard::errors::Error as Fault;
use bollard::models::{ContainerConfig, ContainerCreateBody};
use bollard::query_parameters::{
    CommitContainerOptionsBuilder, CreateImageOptionsBuilder, ListImagesOptionsBuilder, RemoveImageOptions,
    TagImageOptionsBuilder, UploadToContainerOptionsBuilder,
};
use bytes::Bytes;
use futures::StreamExt;
use pl_supervisor::PYTHON_FOLDER;

use super::engine::Engine;
use super::{DockerSettings, ImageSource, leftovers};
use crate::Error;

/// Where the supervisor lies in a container.
pub const SUPERVISOR_PATH: &str = "/pl-supervisor";

const SUPERVISOR: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/pl-supervisor"));

/// The module that makes an interpreter wait, in [`PYTHON_FOLDER`].
const PYTHON_MODULE: &[u8] = include_bytes!("../../supervisor/python/usercustomize.py");

/// The repository of images with the supervisor.
const REPOSITORY: &str = "pl-host-worker";

/// The label of such an image: the one that it stands on.
const BASE: &str = "pl-host.base";

/// The image with its size; or what to do where it is not there.
pub async fn find(engine: &Engine, docker: &Docker, image: &str) -> Result<String, String> {
    match docker.inspect_image(image).await {
        Ok(found) => {
            let size = found.size.unwrap_or_default() >> 20;
            Ok(format!("{image}, {size} MiB"))
        }
        Err(Fault::DockerResponseServerError { status_code: 404, .. }) => Err(missing(engine, image)),
        Err(error) => Err(format!("{}: {error}", engine.endpoint())),
    }
}

fn missing(engine: &Engine, image: &str) -> String {
    format!(
        "the engine at {} has no image {image:?}; make it with `pl-host sandbox image --image {image}`",
        engine.endpoint()
    )
}

/// The image with the supervisor on top of the user's, made where it is not there yet.
pub async fn with_supervisor(
    docker: &Docker,
    engine: &Engine,
    settings: &DockerSettings,
) -> Result<String, String> {
    if SUPERVISOR.is_empty() {
        return Err("this pl-host was built without the supervisor that containers need".to_owned());
    }
    let said = |error: Fault| format!("{}: {error}", engine.endpoint());
    let base = match docker.inspect_image(&settings.image).await {
        Err(Fault::DockerResponseServerError { status_code: 404, .. }) => {
            return Err(missing(engine, &settings.image));
        }
        other => other.map_err(said)?,
    };
    let mut hasher = blake3::Hasher::new();
    hasher.update(base.id.unwrap_or_default().as_bytes()).update(SUPERVISOR).update(PYTHON_MODULE);
    let tag = hasher.finalize().to_hex()[..16].to_owned();
    let name = format!("{REPOSITORY}:{tag}");
    if docker.inspect_image(&name).await.is_ok() {
        return Ok(name);
    }
    let body = ContainerCreateBody {
        image: Some(settings.image.clone()),
        // It is never started; an image without a command of its own needs one.
        cmd: Some(vec![SUPERVISOR_PATH.to_owned()]),
        labels: Some(HashMap::from([(leftovers::LABEL.to_owned(), leftovers::owner())])),
        ..ContainerCreateBody::default()
    };
    let container = docker.create_container(None, body).await.map_err(said)?.id;
    let committed = commit(docker, &container, &settings.image, &tag).await;
    engine.remove(&container).await;
    committed.map_err(said)?;
    remove_older(docker, &settings.image, &name).await;
    Ok(name)
}

async fn commit(docker: &Docker, container: &str, base: &str, tag: &str) -> Result<(), Fault> {
    let upload = UploadToContainerOptionsBuilder::default().path("/").build();
    docker.upload_to_container(container, Some(upload), bollard::body_full(archive()?.into())).await?;
    let options =
        CommitContainerOptionsBuilder::default().container(container).repo(REPOSITORY).tag(tag).build();
    // Without the label of the container, so that the image's containers are not taken for it.
    let labels =
        HashMap::from([(BASE.to_owned(), base.to_owned()), (leftovers::LABEL.to_owned(), String::new())]);
    docker
        .commit_container(options, ContainerConfig { labels: Some(labels), ..ContainerConfig::default() })
        .await?;
    Ok(())
}

/// What is laid on top of the user's image, as a tar archive.
fn archive() -> std::io::Result<Vec<u8>> {
    let module = format!("{PYTHON_FOLDER}/usercustomize.py");
    let mut archive = tar::Builder::new(Vec::new());
    for (path, mode, bytes) in [(SUPERVISOR_PATH, 0o755, SUPERVISOR), (&module, 0o644, PYTHON_MODULE)] {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(mode);
        archive.append_data(&mut header, path.trim_start_matches('/'), bytes)?;
    }
    archive.into_inner()
}

/// Images of the same base that an older supervisor or base made. Those in use stay.
async fn remove_older(docker: &Docker, base: &str, newest: &str) {
    let filters = HashMap::from([("label", vec![format!("{BASE}={base}")])]);
    let options = ListImagesOptionsBuilder::default().filters(&filters).build();
    let Ok(images) = docker.list_images(Some(options)).await else { return };
    for image in images.into_iter().flat_map(|image| image.repo_tags) {
        if image != newest {
            let _ = docker.remove_image(&image, None::<RemoveImageOptions>, None).await;
        }
    }
}

/// Makes the engine have an image.
pub async fn make(
    engine: &Engine,
    image: &str,
    from: &ImageSource,
    progress: &(dyn Fn(String) + Send + Sync),
) -> Result<(), Error> {
    let docker = engine.docker().await.map_err(|reason| engine.error(reason))?;
    let failed = |error: Fault| engine.error(format!("{} makes no image: {error}", engine.endpoint()));
    let (name, tag) = split(image);
    let mut steps = match from {
        ImageSource::Registry(source) => {
            let (source, tag) = split(source);
            let options = CreateImageOptionsBuilder::default().from_image(source).tag(tag).build();
            docker.create_image(Some(options), None, None).boxed()
        }
        ImageSource::Archive(path) => {
            let chunks = chunks(path).map_err(|e| engine.error(format!("{}: {e}", path.display())))?;
            let options = CreateImageOptionsBuilder::default().from_src("-").repo(name).tag(tag).build();
            docker.create_image(Some(options), Some(bollard::body_try_stream(chunks)), None).boxed()
        }
    };
    while let Some(step) = steps.next().await {
        let step = step.map_err(failed)?;
        if let Some(status) = step.status {
            progress(step.id.map_or(status.clone(), |id| format!("{id}: {status}")));
        }
    }
    if let ImageSource::Registry(source) = from
        && source != image
    {
        let options = TagImageOptionsBuilder::default().repo(name).tag(tag).build();
        docker.tag_image(source, Some(options)).await.map_err(failed)?;
    }
    Ok(())
}

/// A file in pieces, read as they are sent.
fn chunks(
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

/// Name and tag. The tag may be left out; a port of a registry is none.
fn split(image: &str) -> (&str, &str) {
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
        assert_eq!(split("python:3.11-slim"), ("python", "3.11-slim"));
        assert_eq!(split("python"), ("python", "latest"));
        assert_eq!(split("host:5000/python"), ("host:5000/python", "latest"));
        assert_eq!(split("host:5000/python:3"), ("host:5000/python", "3"));
    }
}
