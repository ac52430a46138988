//! Removal of containers that a killed pl-host left behind.
//!
//! A supervisor ends together with its host, and so does its container. If an engine still has one, for example
//! because it was stopped itself, the next start finds it by its label and removes it.

use std::collections::HashMap;

use bollard::query_parameters::ListContainersOptionsBuilder;

use super::engine::DockerEngine;
use super::owner::{self, LABEL};

/// Removes the containers of dead processes.
pub async fn remove(engine: &DockerEngine) {
    let Ok(docker) = engine.docker().await else { return };
    let filters = HashMap::from([("label", vec![LABEL])]);
    let options = ListContainersOptionsBuilder::default().all(true).filters(&filters).build();
    let Ok(containers) = docker.list_containers(Some(options)).await else { return };
    let stale = containers.into_iter().filter_map(|container| {
        let owner = container.labels?.remove(LABEL)?;
        owner::is_dead(&owner).then_some(container.id?)
    });
    let removals = stale.map(|id| async move {
        tracing::info!(
            endpoint = engine.endpoint(),
            container = id,
            "removing a container of a killed pl-host"
        );
        engine.remove(&id).await;
    });
    futures::future::join_all(removals).await;
}
