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

/// A sandbox machine takes jobs and answers them. It reads no weights and no results, and writes nothing that is kept.
#[test]
fn a_sandbox_machine_takes_jobs_and_nothing_else() {
    test(async |server| {
        let coordinator = server.coordinator_with(Some(serde_json::json!({}))).await;
        coordinator.announce(&WeightsRef { learner: 0, update: 1, hash: "1".into() }).await.unwrap();
        coordinator.put_blob(b"weights").await.unwrap();
        let run = server.stranger(Role::Coordinator).await;
        let context = async_nats::jetstream::new(run.clone());
        let state = context.get_key_value("pl-run-1-state").await.unwrap();
        let before = state.entry("learner.0").await.unwrap().unwrap();
        let machine = server.stranger(Role::Sandbox).await;
        let ask = "{\"seq\": 1, \"batch\": 1, \"stream_name\": \"pl-run-1-results\", \"config\": {\"ack_policy\": \"none\"}}";
        for subject in [
            "$KV.pl-run-1-state.learner.0",
            "$KV.pl-runs.run-1",
            "$O.pl-run-1-blobs.M.x",
            "pl.run-1.task",
            "pl.run-1.update.0",
            "pl.run-1.result.1",
            "pl.run-1.updated.1",
            "pl.run-1.job",
            "pl.run-1.input.x.0",
            "pl.run-1.aside.other",
            "pl.run-1.status",
            "$JS.API.CONSUMER.MSG.NEXT.pl-run-1-tasks.workers",
            "$JS.API.CONSUMER.MSG.NEXT.pl-run-1-tasks.learner-0",
            "$JS.API.STREAM.MSG.GET.KV_pl-run-1-state",
            "$JS.API.STREAM.MSG.GET.OBJ_pl-run-1-blobs",
            "$JS.API.DIRECT.GET.OBJ_pl-run-1-blobs",
            "$JS.API.DIRECT.GET.KV_pl-run-1-state.$KV.pl-run-1-state.learner.0",
            "$JS.API.STREAM.PURGE.pl-run-1-jobs",
            "$JS.API.STREAM.DELETE.pl-run-1-jobs",
            "$JS.API.CONSUMER.DELETE.pl-run-1-jobs.sandboxes",
            "$JS.API.CONSUMER.CREATE.pl-run-1-results.x",
        ] {
            let answer = tokio::time::timeout(LEASE / 4, machine.request(subject, ask.into())).await;
            assert!(!matches!(answer, Ok(Ok(_))), "{subject} was answered");
        }
        // What it may ask for is answered to itself alone: not as a version, and not as a result.
        for answer in ["$KV.pl-run-1-state.learner.0", "pl.run-1.result.1"] {
            let listed = "$JS.API.STREAM.INFO.KV_pl-runs";
            machine.publish_with_reply(listed, answer.to_owned(), "".into()).await.unwrap();
            machine.publish_with_reply("pl.run-1.verdict.x", answer.to_owned(), "".into()).await.unwrap();
        }
        machine.flush().await.unwrap();
        tokio::time::sleep(LEASE / 2).await;
        let after = state.entry("learner.0").await.unwrap().unwrap();
        assert_eq!((before.revision, before.value), (after.revision, after.value));
        for stream in ["pl-run-1-results", "pl-run-1-tasks", "pl-run-1-jobs", "pl-run-1-inputs"] {
            assert_eq!(context.get_stream(stream).await.unwrap().cached_info().state.messages, 0, "{stream}");
        }
        // The control: the list of runs is one of the subjects that it may ask for.
        let listed = machine.request("$JS.API.STREAM.INFO.KV_pl-runs", "".into()).await.unwrap();
        assert!(listed.payload.starts_with(b"{\"type\":\"io.nats.jetstream.api.v1.stream_info_response\""));
    });
}

/// A worker sends jobs, and takes none.
#[test]
fn a_worker_takes_no_jobs() {
    test(async |server| {
        let _coordinator = server.coordinator_with(Some(serde_json::json!({}))).await;
        let worker = server.stranger(Role::Worker).await;
        for subject in [
            "$JS.API.CONSUMER.MSG.NEXT.pl-run-1-jobs.sandboxes",
            "$JS.API.STREAM.PURGE.pl-run-1-jobs",
            "pl.run-1.verdict.x",
        ] {
            let answer = tokio::time::timeout(LEASE / 4, worker.request(subject, "1".into())).await;
            assert!(!matches!(answer, Ok(Ok(_))), "{subject} was answered");
        }
        let stored = worker.request("pl.run-1.job", "x".into()).await.unwrap();
        assert!(stored.payload.starts_with(b"{\"stream\":\"pl-run-1-jobs\""), "{stored:?}");
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
