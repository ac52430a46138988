//! Pauses, sleep and new weights, over HTTP.

use std::sync::Mutex;

use async_trait::async_trait;
use pl_serve::{ControlError, EngineControl};
use pl_types::{PauseMode, WeightInfo, WeightSource};
use serde_json::json;

use crate::engine::Server;

/// An engine that only keeps what it was told.
#[derive(Default)]
pub struct Controlled {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    is_paused: bool,
    is_sleeping: bool,
    version: u64,
    checksum: String,
}

#[async_trait]
impl EngineControl for Controlled {
    async fn pause(&self, _: PauseMode, _: bool) -> Result<(), ControlError> {
        self.state.lock().unwrap().is_paused = true;
        Ok(())
    }

    async fn resume(&self) -> Result<(), ControlError> {
        self.state.lock().unwrap().is_paused = false;
        Ok(())
    }

    fn is_paused(&self) -> bool {
        self.state.lock().unwrap().is_paused
    }

    async fn sleep(&self) -> Result<(), ControlError> {
        self.state.lock().unwrap().is_sleeping = true;
        Ok(())
    }

    async fn wake_up(&self) -> Result<(), ControlError> {
        self.state.lock().unwrap().is_sleeping = false;
        Ok(())
    }

    fn is_sleeping(&self) -> bool {
        self.state.lock().unwrap().is_sleeping
    }

    async fn load_weights(
        &self,
        _: usize,
        source: WeightSource,
        version: u64,
    ) -> Result<String, ControlError> {
        let checksum = match source {
            WeightSource::Folder(folder) if folder.as_os_str() == "/missing" => {
                return Err(ControlError("/missing: no such folder".into()));
            }
            WeightSource::Folder(_) => "whole",
            WeightSource::Delta(_) => "changed",
        };
        let mut state = self.state.lock().unwrap();
        (state.version, state.checksum) = (version, checksum.to_owned());
        Ok(checksum.to_owned())
    }

    async fn set_version(&self, _: usize, version: u64) -> Result<(), ControlError> {
        self.state.lock().unwrap().version = version;
        Ok(())
    }

    async fn weight_info(&self, _: usize) -> Result<WeightInfo, ControlError> {
        let State { version, checksum, .. } = &*self.state.lock().unwrap();
        Ok(WeightInfo { version: *version, checksum: checksum.clone() })
    }
}

#[test]
fn weights_are_replaced_as_a_whole_and_by_deltas() {
    let server = Server::with_adapters();
    let update = |format: &str, path: &str, version: u64| {
        let body = json!({
            "model": "letters", "weights_path": path, "format": format, "weight_version": version,
        });
        server.post("/update_weights", &body)
    };
    let body = update("full", "/weights/v1", 1).json();
    assert_eq!((&body["checksum"], &body["weight_version"]), (&json!("whole"), &json!("1")));
    // The hash of the files is not that of the weights any more.
    assert_eq!(server.get("/v1/models/letters").json()["model_hash"], "");
    assert_eq!(update("delta", "/weights/v2.delta", 2).json()["checksum"], "changed");
    let missing = update("full", "/missing", 3);
    assert_eq!((missing.status, &missing.json()["error"]["param"]), (400, &json!("weights_path")));
    let info = server.get("/weight_info?model=letters").json();
    assert_eq!((&info["weight_version"], &info["checksum"]), (&json!("2"), &json!("changed")));
    let relabel = |version: &str| {
        server.post("/update_weight_version", &json!({ "model": "letters", "new_version": version }))
    };
    assert_eq!(relabel("7").json()["weight_version"], "7");
    assert_eq!(relabel("seven").status, 400);
    assert_eq!(server.get("/weight_info?model=letters").json()["weight_version"], "7");
}

#[test]
fn a_server_is_paused_and_sleeps() {
    let server = Server::with_adapters();
    let post = |path: &str| server.post(path, &json!({})).status;
    assert_eq!(server.get("/is_paused").json()["is_paused"], false);
    for mode in ["abort", "wait", "keep"] {
        assert_eq!(post(&format!("/pause?mode={mode}&clear_cache=true")), 200, "{mode}");
        assert_eq!(server.get("/is_paused").json()["is_paused"], true);
        assert_eq!(post("/resume"), 200);
    }
    assert_eq!(post("/pause?mode=now"), 400);
    assert_eq!(post("/sleep?level=1"), 200);
    assert_eq!(server.get("/is_sleeping").json()["is_sleeping"], true);
    assert_eq!(post("/wake_up"), 200);
    assert_eq!(server.get("/is_sleeping").json()["is_sleeping"], false);
    assert_eq!(post("/sleep?level=2"), 400);
}

#[test]
fn commands_need_their_flag() {
    let closed = Server::start();
    for path in ["/pause", "/resume", "/sleep", "/wake_up", "/update_weights", "/update_weight_version"] {
        let answered = closed.post(path, &json!({}));
        assert_eq!(answered.status, 404, "{path}");
        assert!(answered.text.contains("--allow-runtime-weights"), "{}", answered.text);
    }
    for path in ["/is_paused", "/is_sleeping", "/weight_info"] {
        assert_eq!(closed.get(path).status, 404, "{path}");
    }
}
