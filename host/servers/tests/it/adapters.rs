//! Adapters on servers that start anew.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pl_servers::{RemoteAdapter, RemoteModel};

use crate::scripted::{Script, Server, config, connect, probe, request};

fn adapter(name: &str) -> Arc<RemoteAdapter> {
    Arc::new(RemoteAdapter {
        name: name.to_owned(),
        folder: PathBuf::from("/runs/team/adapters").join(name),
        version: 1,
        base: "".into(),
        checksum: String::new(),
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn adapters_are_loaded_before_their_requests_and_again_after_a_restart() {
    let script = Script { adapters: true, ..Script::default() };
    let (first, second) = (Server::start(script.clone()).await, Server::start(script.clone()).await);
    let (fleet, _) = connect(config(&[&first, &second]), probe()).await;
    let fleet = fleet.unwrap();
    let (one, two) = (adapter("coder@v1"), adapter("coder@v2"));
    fleet.load(&RemoteModel::Adapter(Arc::clone(&one))).await.unwrap();
    let loaded = |server: &Server| server.state.adapters.lock().unwrap().clone();
    assert!(loaded(&first).contains("coder@v1") && loaded(&second).contains("coder@v1"));

    // The first server starts anew and has none of them.
    let address = first.address.clone();
    first.stop().await;
    let first = Server::restart(&address, script).await;
    fleet.load(&RemoteModel::Adapter(Arc::clone(&two))).await.unwrap();
    let ask = |adapter: &Arc<RemoteAdapter>, number: u32| {
        let mut request = request(number);
        request.model = RemoteModel::Adapter(Arc::clone(adapter));
        request
    };
    for number in 0..40 {
        let adapter = if number % 2 == 0 { &one } else { &two };
        fleet.generate(&ask(adapter, number)).await.unwrap();
    }
    assert!(first.answered() + second.answered() >= 80);
    fleet.unload_adapter("coder@v1").await;
    assert!(!loaded(&second).contains("coder@v1") && loaded(&second).contains("coder@v2"));
    assert!(!loaded(&first).contains("coder@v1"));
    assert_eq!(second.state.loads.load(Ordering::SeqCst), 2, "each is loaded once");
}

#[tokio::test]
async fn a_server_that_loads_no_adapters_names_the_flags() {
    let server = Server::start(Script::default()).await;
    let (fleet, _) = connect(config(&[&server]), probe()).await;
    let error =
        fleet.unwrap().load(&RemoteModel::Adapter(adapter("coder@v1"))).await.unwrap_err().to_string();
    assert!(error.contains("VLLM_ALLOW_RUNTIME_LORA_UPDATING"), "{error}");
    assert!(error.contains("--allow-runtime-adapters"), "{error}");
}
