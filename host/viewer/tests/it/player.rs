//! A player whose episodes wait for the test.

use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pl_viewer::{LiveEpisode, PlayEvent, PlayMessage, PlayRequest, Player, Unavailable};

use crate::recorded::flat;

/// Player of one turn, which ends when the test says so, or when it is cancelled.
pub struct ScriptedPlayer {
    pub requests: Mutex<Vec<PlayRequest>>,
    sender: Sender<()>,
    receiver: Arc<Mutex<Receiver<()>>>,
}

impl Default for ScriptedPlayer {
    fn default() -> ScriptedPlayer {
        let (sender, receiver) = channel();
        ScriptedPlayer { requests: Mutex::default(), sender, receiver: Arc::new(Mutex::new(receiver)) }
    }
}

impl ScriptedPlayer {
    /// Lets an episode come to its end.
    pub fn go_on(&self) {
        self.sender.send(()).unwrap();
    }
}

impl Player for ScriptedPlayer {
    fn checkpoints(&self, _: &Path) -> Result<Vec<String>, Unavailable> {
        Ok(vec!["step-00000002".into()])
    }

    fn start(&self, _: &Path, request: PlayRequest, episode: LiveEpisode) -> Result<(), Unavailable> {
        self.requests.lock().unwrap().push(request);
        let receiver = Arc::clone(&self.receiver);
        std::thread::spawn(move || {
            episode.push(PlayEvent::Loading);
            let messages = vec![PlayMessage { role: "user".into(), text: "Two and four?".into() }];
            episode.push(PlayEvent::Prompted { turn: 0, agent: "tool".into(), visit: 0, messages });
            episode.push(PlayEvent::Text { turn: 0, text: "half of".into() });
            while receiver.lock().unwrap().recv_timeout(Duration::from_millis(10)).is_err() {
                if episode.is_cancelled() {
                    return episode.failed("cancelled".into());
                }
            }
            episode.push(PlayEvent::Text { turn: 0, text: " twelve".into() });
            let action = "{}".to_owned();
            episode.push(PlayEvent::Acted {
                agent: "tool".into(),
                action,
                reward: 1.5,
                success: true,
                tokens: 2,
            });
            episode.played(flat("train", 0, 0, 0, "half of twelve", 1.0));
        });
        Ok(())
    }
}
