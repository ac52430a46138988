//! Subjects that the credentials of a role allow.

use pl_cluster::{Connection, Error, Role, ServerAddress, WeightsRef};

use crate::{LEASE, test};

#[test]
fn a_worker_writes_results_and_nothing_else() {
    test(async |server| {
        let coordinator = server.coordinator().await;
        let weights = WeightsRef { learner: 0, update: 1, hash: "1".into() };
        coordinator.announce(&weights).await.unwrap();
        let blob = coordinator.put_blob(b"weights").await.unwrap();
        let worker = server.stranger(Role::Worker).await;
        let run = server.stranger(Role::Coordinator).await;
        let context = async_nats::jetstream::new(run.clone());
        let state = context.get_key_value("pl-run-1-state").await.unwrap();
        let before = state.entry("learner.0").await.unwrap().unwrap();
        for subject in [
            "$KV.pl-run-1-state.learner.0",
            "$KV.pl-run-1-state.epoch",
            "$KV.pl-runs.run-1",
            "$O.pl-run-1-blobs.M.x",
            "$O.pl-run-1-blobs.C.x",
            "pl.run-1.task",
            "pl.run-1.update.0",
            "pl.run-1.updated.1",
            "$JS.API.CONSUMER.MSG.NEXT.pl-run-1-tasks.learner-0",
            "pl.run-1.aside.other",
            "$JS.API.STREAM.PURGE.KV_pl-run-1-state",
            "$JS.API.STREAM.DELETE.KV_pl-run-1-state",
            "$JS.API.STREAM.UPDATE.pl-run-1-tasks",
            "$JS.API.STREAM.MSG.DELETE.KV_pl-run-1-state",
            "$JS.API.CONSUMER.CREATE.pl-run-1-results.x",
            "$JS.API.CONSUMER.CREATE.pl-run-1-tasks.workers",
            "$JS.API.CONSUMER.DURABLE.CREATE.pl-run-1-results.x",
            "$JS.API.CONSUMER.DELETE.pl-run-1-tasks.workers",
        ] {
            let payload = "{\"stream_name\": \"pl-run-1-results\", \"config\": {\"ack_policy\": \"none\"}}";
            // There is no answer, because the server drops it.
            let answer = tokio::time::timeout(LEASE / 4, worker.request(subject, payload.into())).await;
            assert!(!matches!(answer, Ok(Ok(_))), "{subject} was answered");
        }
        let after = state.entry("learner.0").await.unwrap().unwrap();
        assert_eq!((before.revision, before.value), (after.revision, after.value));
        assert_eq!(server.worker("a").await.blob(&blob).await.unwrap(), b"weights");
        let mut tasks = context.get_stream("pl-run-1-tasks").await.unwrap();
        let tasks = tasks.info().await.unwrap();
        assert_eq!((tasks.state.messages, tasks.state.consumer_count), (0, 1));
        // The answer to a request is a message that the server publishes, whichever role has asked for it.
        let result = worker.request("pl.run-1.result.1", "forged".into()).await.unwrap();
        assert!(!result.payload.is_empty());
        let ask = "{\"last_by_subj\": \"pl.run-1.result.1\"}";
        let answer = "$KV.pl-run-1-state.learner.0".to_owned();
        worker
            .publish_with_reply("$JS.API.STREAM.MSG.GET.pl-run-1-results", answer, ask.into())
            .await
            .unwrap();
        worker.flush().await.unwrap();
        tokio::time::sleep(LEASE / 2).await;
        let entry = state.entry("learner.0").await.unwrap().unwrap();
        assert_eq!(entry.revision, before.revision, "{entry:?}");
    });
}

/// A learner stores the results of updates, and neither those of tasks nor weights by itself.
#[test]
fn a_learner_writes_the_results_of_updates() {
    test(async |server| {
        let coordinator = server.coordinator().await;
        coordinator.announce(&WeightsRef { learner: 0, update: 1, hash: "1".into() }).await.unwrap();
        let learner = server.stranger(Role::Learner).await;
        for subject in [
            "$KV.pl-run-1-state.learner.0",
            "$O.pl-run-1-blobs.M.x",
            "pl.run-1.task",
            "pl.run-1.result.1",
            "$JS.API.CONSUMER.MSG.NEXT.pl-run-1-tasks.workers",
        ] {
            let answer = tokio::time::timeout(LEASE / 4, learner.request(subject, "x".into())).await;
            assert!(!matches!(answer, Ok(Ok(_))), "{subject} was answered");
        }
        let stored = learner.request("pl.run-1.updated.1", "x".into()).await.unwrap();
        assert!(!stored.payload.is_empty());
    });
}

#[test]
fn credentials_of_another_role_are_named() {
    test(async |server| {
        let address = server.server.address(Role::Worker);
        let connection = Connection::open(&address, "test", Role::Coordinator).await;
        let message = connection.err().unwrap().to_string();
        assert!(message.contains("refuses these credentials") && message.contains("run.nk"), "{message}");
        let folder = tempfile::tempdir().unwrap();
        let credentials = folder.path().join("empty.nk");
        std::fs::write(&credentials, "no key\n").unwrap();
        let address = ServerAddress { credentials: Some(credentials), ..address };
        let connection = Connection::open(&address, "test", Role::Worker).await;
        assert!(matches!(connection, Err(Error::NoCredentials { .. })));
        let address = ServerAddress { credentials: None, ..address };
        let message = Connection::open(&address, "test", Role::Worker).await.err().unwrap().to_string();
        assert!(message.contains("authorization violation"), "{message}");
    });
}
