//! Servers that sleep between rollouts.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pl_servers::{FleetConfig, RemoteAdapter, RemoteModel, RemoteWeights, ServerError, SleepLevel};

use crate::scripted::{Script, Server, config, connect, probe, request};

async fn start() -> Server {
    Server::start(Script { weights: true, adapters: true, ..Script::default() }).await
}

fn commands(server: &Server) -> Vec<String> {
    std::mem::take(&mut server.state.commands.lock().unwrap())
}

#[tokio::test]
async fn a_server_sleeps_until_its_next_request() {
    let server = start().await;
    let settings = FleetConfig { sleep: SleepLevel::KeepWeights, ..config(&[&server]) };
    let fleet = connect(settings, probe()).await.0.unwrap();
    fleet.sleep().await.unwrap();
    assert_eq!(commands(&server), ["sleep?level=1"]);
    fleet.generate(&request(1)).await.unwrap();
    fleet.generate(&request(2)).await.unwrap();
    assert_eq!(commands(&server), ["wake_up"]);
    fleet.sleep().await.unwrap();
    fleet.wake().await;
    fleet.wake().await;
    assert_eq!(commands(&server), ["sleep?level=1", "wake_up"]);
}

#[tokio::test]
async fn a_server_that_a_killed_run_left_asleep_is_woken() {
    let server = start().await;
    server.state.asleep.store(1, Ordering::SeqCst);
    let settings = FleetConfig { sleep: SleepLevel::KeepWeights, ..config(&[&server]) };
    let fleet = connect(settings, probe()).await.0.unwrap();
    fleet.generate(&request(1)).await.unwrap();
    assert_eq!(commands(&server), ["wake_up"]);
}

#[tokio::test]
async fn adapters_are_loaded_again_on_weights_that_were_dropped() {
    let server = start().await;
    let settings = FleetConfig { sleep: SleepLevel::DropWeights, ..config(&[&server]) };
    let fleet = connect(settings, probe()).await.0.unwrap();
    let adapter = Arc::new(RemoteAdapter {
        name: "coder@v1".into(),
        folder: PathBuf::from("/runs/team/adapters/coder@v1"),
        version: 1,
        base: "".into(),
        checksum: String::new(),
    });
    let mut request = request(1);
    request.model = RemoteModel::Adapter(adapter);
    fleet.generate(&request).await.unwrap();
    fleet.sleep().await.unwrap();
    assert!(server.state.adapters.lock().unwrap().is_empty(), "no adapter stays on a server without weights");
    fleet.generate(&request).await.unwrap();
    assert_eq!(server.state.loads.load(Ordering::SeqCst), 2);
    assert_eq!(
        commands(&server),
        [
            "version loading",
            "sleep?level=2",
            "wake_up?tags=weights",
            "reload_weights its own folder",
            "wake_up?tags=kv_cache",
        ]
    );
}

#[tokio::test]
async fn a_whole_model_is_read_again_after_its_weights_were_dropped() {
    let server = start().await;
    let settings = FleetConfig { sleep: SleepLevel::DropWeights, ..config(&[&server]) };
    let fleet = connect(settings, probe()).await.0.unwrap();
    let model = RemoteModel::Weights(Arc::new(RemoteWeights {
        name: "base".into(),
        folder: PathBuf::from("/runs/team/adapters/coder@v1"),
        checksum: format!("{:032x}", 1),
        delta: None,
        version: 1,
    }));
    let mut request = request(1);
    request.model = model.clone();
    fleet.load(&model).await.unwrap();
    fleet.sleep().await.unwrap();
    commands(&server);
    fleet.generate(&request).await.unwrap();
    assert!(commands(&server).contains(&"reload_weights /runs/team/adapters/coder@v1".to_owned()));
}

#[tokio::test]
async fn a_server_that_cannot_sleep_is_refused_with_the_flags_to_set() {
    let server = Server::start(Script::default()).await;
    let settings = FleetConfig { sleep: SleepLevel::KeepWeights, ..config(&[&server]) };
    let error = connect(settings, probe()).await.0.unwrap_err();
    assert!(matches!(error, ServerError::Unfit { .. }), "{error}");
    assert!(error.to_string().contains("--enable-sleep-mode"), "{error}");
}
