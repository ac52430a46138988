//! Weights of whole models on servers with vLLM's API.

use std::path::PathBuf;
use std::sync::Arc;

use pl_servers::{Fleet, Probe, RemoteModel, RemoteWeights, ServerError};

use crate::scripted::{Script, Server, config, connect, probe, request};

fn weights(version: u64, folder: &str) -> RemoteModel {
    RemoteModel::Weights(Arc::new(RemoteWeights {
        name: "base".into(),
        folder: PathBuf::from("/runs/team/adapters").join(folder),
        checksum: format!("{version:032x}"),
        delta: None,
        version,
    }))
}

fn script() -> Script {
    Script { weights: true, ..Script::default() }
}

fn commands(server: &Server) -> Vec<String> {
    std::mem::take(&mut server.state.commands.lock().unwrap())
}

async fn ask(fleet: &Fleet, model: &RemoteModel) {
    let mut request = request(1);
    request.model = model.clone();
    fleet.generate(&request).await.unwrap();
}

#[tokio::test]
async fn vllm_reads_a_folder_while_no_request_is_in_progress() {
    let server = Server::start(script()).await;
    let fleet = connect(config(&[&server]), probe()).await.0.unwrap();
    let first = weights(1, "coder@v1");
    fleet.load(&first).await.unwrap();
    let version = format!("1-{:016}", 0);
    assert_eq!(
        commands(&server),
        [
            "pause?mode=wait&clear_cache=true",
            "version loading",
            "reload_weights /runs/team/adapters/coder@v1",
            &format!("version {version}"),
            "resume",
        ]
    );
    ask(&fleet, &first).await;
    fleet.load(&first).await.unwrap();
    // A run that goes on asks a server that has its weights already.
    let again = connect(config(&[&server]), probe()).await.0.unwrap();
    again.load(&first).await.unwrap();
    assert_eq!(commands(&server), Vec::<String>::new());
}

#[tokio::test]
async fn weights_that_somebody_replaced_are_loaded_again() {
    let server = Server::start(script()).await;
    let fleet = connect(config(&[&server]), probe()).await.0.unwrap();
    let model = weights(2, "coder@v2");
    fleet.load(&model).await.unwrap();
    commands(&server);
    // As after a restart between two requests.
    *server.state.version.lock().unwrap() = "default".to_owned();
    ask(&fleet, &model).await;
    assert!(commands(&server).contains(&"reload_weights /runs/team/adapters/coder@v2".to_owned()));
}

#[tokio::test]
async fn a_folder_that_a_server_cannot_read_is_an_error_and_the_server_goes_on() {
    let server = Server::start(script()).await;
    let fleet = connect(config(&[&server]), probe()).await.0.unwrap();
    let error = fleet.load(&weights(3, "missing")).await.unwrap_err();
    assert!(matches!(error, ServerError::Unfit { .. }), "{error}");
    assert!(error.to_string().contains("`base`: no such folder"), "{error}");
    let commands = commands(&server);
    assert_eq!(commands.last().map(String::as_str), Some("resume"));
    assert_eq!(*server.state.version.lock().unwrap(), "loading", "no version that anyone asks for");
}

#[tokio::test]
async fn a_server_without_the_endpoints_names_the_variable() {
    let server = Server::start(Script::default()).await;
    let fleet = connect(config(&[&server]), probe()).await.0.unwrap();
    let error = fleet.load(&weights(1, "coder@v1")).await.unwrap_err().to_string();
    assert!(error.contains("VLLM_SERVER_DEV_MODE=1"), "{error}");
}

#[tokio::test]
async fn a_server_with_one_model_takes_no_weights_beside_another_policy() {
    let server = Server::start(script()).await;
    let mut probes = probe();
    let other = Probe { model: RemoteModel::Named("base".into()), ..probe().remove(0) };
    probes.push(other);
    let fleet = connect(config(&[&server]), probes).await.0.unwrap();
    let error = fleet.load(&weights(1, "coder@v1")).await.unwrap_err().to_string();
    assert!(error.contains("which other policies use too"), "{error}");
    assert_eq!(commands(&server), Vec::<String>::new());
}
