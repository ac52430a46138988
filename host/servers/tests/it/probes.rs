//! Servers that a probe must refuse.

use pl_servers::ServerError;

use crate::scripted::{Fault, Script, Server, config, connect, generate_all, probe};

async fn refusal(fault: Fault) -> String {
    let server = Server::start(Script { fault: Some(fault), every: 1, ..Script::default() }).await;
    let (fleet, _) = connect(config(&[&server]), probe()).await;
    let error = fleet.unwrap_err();
    assert!(matches!(error, ServerError::Unfit { .. }), "{error}");
    assert!(error.to_string().contains(&server.address), "{error}");
    error.to_string()
}

#[tokio::test]
async fn probes_name_the_flag_to_set() {
    for (fault, part) in [
        (Fault::RawLogprobs, "--logprobs-mode processed_logprobs"),
        (Fault::Status(404, None), "--enable-scale-out"),
        (Fault::MissingLogprob, "log-probabilities for 2 tokens"),
        (Fault::OutsideVocabulary, "its model is that of the policy"),
        (Fault::Unstable, "when its prompt is computed anew"),
    ] {
        let message = refusal(fault).await;
        assert!(message.contains(part), "{fault:?}: {message}");
    }
}

#[tokio::test]
async fn a_wrong_key_names_the_setting() {
    let server = Server::start(Script { key: Some("secret"), ..Script::default() }).await;
    let (fleet, _) = connect(config(&[&server]), probe()).await;
    let message = fleet.unwrap_err().to_string();
    assert!(message.contains("key_variable"), "{message}");
    let mut config = config(&[&server]);
    config.key = Some("secret".into());
    assert!(!format!("{config:?}").contains("secret"));
    let (fleet, _) = connect(config, probe()).await;
    generate_all(&fleet.unwrap(), 0..5).await;
}
