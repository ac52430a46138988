//! Output that is merged and truncated, and replays that answer from their record.

use pl_sandbox::DeniedSandbox;
use pl_types::Retrieve;

use super::*;

#[test]
fn pieces_of_output_are_merged_even_if_one_ends_within_a_character() {
    let call_log = CallLog::default();
    let crab = "🦀".as_bytes();
    call_log.print(Channel::Stdout, b"a ");
    call_log.print(Channel::Stdout, &crab[..1]);
    call_log.print(Channel::Stdout, &crab[1..]);
    call_log.log(Level::Warn, "");
    call_log.print(Channel::Stderr, b"\xff");
    let output = |stream, text: &str| Event::Output { stream, text: text.to_owned() };
    let expected = [
        output(Channel::Stdout, "a 🦀"),
        Event::Log { level: Level::Warn, message: String::new() },
        output(Channel::Stderr, "\u{fffd}"),
    ];
    assert_eq!(call_log.clone().take(), expected);
    assert_eq!(call_log.take(), []);
}

#[test]
fn endless_output_is_truncated_and_counted() {
    let call_log = CallLog::default();
    (0..5000).for_each(|_| call_log.log(Level::Info, "ten bytes!"));
    let events = call_log.take();
    assert_eq!(events.len(), MAX_EVENTS + 1);
    assert_eq!(events.last(), Some(&Event::Truncated { events: 4000, bytes: 40_000 }));

    call_log.log(Level::Info, &"ö".repeat(MAX_BYTES));
    call_log.print(Channel::Stdout, b"more");
    let events = call_log.take();
    let [Event::Log { message, .. }, cut] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!(message.len(), MAX_BYTES);
    assert_eq!(cut, &Event::Truncated { events: 2, bytes: MAX_BYTES as u64 + 4 });
}

/// A corpus that counts its queries.
#[derive(Default)]
struct Counting(std::sync::atomic::AtomicU32);

#[async_trait::async_trait]
impl Retrieve for Counting {
    async fn retrieve(&self, query: &str, count: usize) -> Result<Vec<Passage>, pl_types::RetrieveError> {
        let number = self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let passage = Passage { id: number.to_string(), text: query.to_owned(), score: 0.1 };
        Ok(vec![passage; count])
    }

    fn is_reproducible(&self) -> bool {
        false
    }
}

#[test]
fn a_replay_answers_queries_in_order_and_searches_nothing() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let corpus = Arc::new(Counting::default());
    let corpora = Corpora::from_iter([("wiki".to_owned(), corpus.clone() as Arc<dyn Retrieve>)]);
    let retrieve = |call_log: &CallLog, query: &str| {
        runtime.block_on(call_log.retrieve(&corpora, None, query.to_owned(), 2))
    };
    let recording = CallLog::default();
    let answers = [retrieve(&recording, "a"), retrieve(&recording, "b")];
    let events = recording.take();
    let written = serde_json::to_string(&events).unwrap();
    let events: Vec<Event> = serde_json::from_str(&written).unwrap();
    let mut recorded = ReplayAnswers::default();
    recorded.extend(&events);
    let replay = CallLog::replaying(recorded);
    assert_eq!([retrieve(&replay, "a"), retrieve(&replay, "b")], answers);
    assert_eq!(replay.take(), events);
    let unknown = retrieve(&replay, "c").passages.unwrap_err();
    assert_eq!(
        (unknown.as_str(), corpus.0.load(std::sync::atomic::Ordering::Relaxed)),
        ("the recording has no answer to this query", 2)
    );
    assert!(answers.iter().all(|answer| !answer.reproducible));
}

#[test]
fn an_environment_without_a_corpus_is_told_what_to_write() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let search = |corpora: Corpora, name: Option<&str>| {
        let name = name.map(str::to_owned);
        let answer = runtime.block_on(CallLog::default().retrieve(&corpora, name, "a".to_owned(), 2));
        assert!(answer.reproducible);
        answer.passages.unwrap_err()
    };
    let reason = search(Corpora::default(), None);
    assert!(reason.contains("`corpus = NAME`"), "{reason}");
    let named = search(Corpora::default(), Some("wiki"));
    assert!(named.contains("`corpus = NAME`"), "{named}");
    let wiki = ("wiki".to_owned(), Arc::new(Counting::default()) as Arc<dyn Retrieve>);
    let other = search(Corpora::from_iter([wiki]), Some("papers"));
    assert_eq!(other, "the environment has no corpus named papers; it has wiki");
}

#[test]
fn cookies_are_recorded_without_their_values_and_sent_back_in_a_replay() {
    // A guest that logs in and sends the cookie of the response with its next request, to `page`.
    let visit = |call_log: &CallLog, page: &str| {
        let mut cookies = Vec::new();
        let mut headers = Vec::new();
        for path in ["login", page] {
            let uri = format!("http://localhost:1/{path}");
            let request =
                HttpRequest { method: "GET".to_owned(), uri, headers: headers.clone(), body: "".into() };
            let number = call_log.begin(&request.method, &request.uri);
            let sent = || {
                let cookie = ("set-cookie".to_owned(), "sid=s3cret; Path=/; HttpOnly".to_owned());
                Ok(HttpResponse { status: 200, headers: vec![cookie], body: "a page".into() })
            };
            let answer = call_log.replay(number, &request).unwrap_or_else(sent);
            call_log.finish(number, &request, &answer);
            let cookie = answer.unwrap().headers[0].1.split(';').next().unwrap().to_owned();
            headers = vec![("cookie".to_owned(), cookie.clone())];
            cookies.push(cookie);
        }
        cookies
    };
    let recording = CallLog::default();
    assert_eq!(visit(&recording, "page"), ["sid=s3cret"; 2], "the guest itself receives the cookie");
    let events = recording.take();
    let written = serde_json::to_string(&events).unwrap();
    assert!(written.contains("sid=REDACTED; Path=/; HttpOnly") && written.contains("a page"), "{written}");
    assert!(!written.contains("s3cret"), "{written}");

    let replay = || {
        let mut recorded = ReplayAnswers::default();
        recorded.extend(&events);
        CallLog::replaying(recorded)
    };
    let same = replay();
    assert_eq!(visit(&same, "page"), ["sid=REDACTED"; 2]);
    assert_eq!(same.take(), events, "the hashes of the requests too");
    // The control: another request is a difference.
    let other = replay();
    visit(&other, "other");
    assert_ne!(other.take(), events);
}

#[test]
fn a_replay_answers_in_order_and_runs_no_code() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let verdict = |stdout: &str| RecordedVerdict {
        ending: Ending::Ok,
        exit: Some(0),
        stdout: stdout.to_owned(),
        stderr: String::new(),
        reproducible: true,
    };
    let jobs = |source: &str| vec![Job { source: source.to_owned(), ..Job::default() }];
    let verdicts = [vec![verdict("1")], vec![verdict("2")]].into();
    let call_log = CallLog::replaying(ReplayAnswers { verdicts, ..ReplayAnswers::default() });
    let verdicts: Vec<Vec<Verdict>> = ["a", "b", "a"]
        .map(|source| runtime.block_on(call_log.execute(&DeniedSandbox(String::new()), jobs(source))))
        .into();
    assert_eq!(verdicts[0][0].stdout, "1");
    assert_eq!(verdicts[1][0].stdout, "2");
    assert!(verdicts[2].is_empty());
    let hashes: Vec<String> = call_log
        .take()
        .into_iter()
        .map(|event| match event {
            Event::Sandbox { jobs, .. } => jobs,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_ne!(hashes[0], hashes[1]);
    assert_eq!(hashes[0], hashes[2]);
}
