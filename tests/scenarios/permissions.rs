//! Workflows of somebody else: what they need beyond their own folder is refused until it is allowed.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use pl_testing::{Requirement, skip_or_fail};
use serde_json::{Value, json};

use crate::support::{pl_host_without_permissions, repository, scenario, stderr, stdout, succeed};

/// A workflow in a folder of its own, whose model is outside.
struct Foreign {
    folder: tempfile::TempDir,
    file: PathBuf,
}

impl Foreign {
    fn new(more: &str) -> Foreign {
        let text = fs::read_to_string(scenario("letters/tree-l2.mas")).unwrap();
        let model = repository().join("tests/data/tiny").display().to_string();
        let text =
            text.replace("../../data/tiny", &model).replace("tasks_per_step = 3", "tasks_per_step = 2");
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("foreign.mas");
        fs::write(&file, format!("{text}\n{more}")).unwrap();
        Foreign { folder, file }
    }

    fn command(&self, command: &str) -> Command {
        let mut started = pl_host_without_permissions();
        started.current_dir(self.folder.path()).arg(command).arg("foreign.mas");
        started
    }

    fn run(&self) -> Command {
        let mut run = self.command("run");
        run.args(["--device", "cpu", "--out", "run", "--set", "train.steps=1"]);
        run
    }
}

fn model() -> String {
    repository().join("tests/data/tiny").canonicalize().unwrap().display().to_string()
}

#[test]
fn a_run_is_refused_with_the_flags_that_allow_it_and_its_resume_needs_none() {
    let foreign = Foreign::new("");
    let refused = foreign.run().output().unwrap();
    let message = stderr(&refused);
    assert_eq!(refused.status.code(), Some(2), "{message}");
    assert!(!foreign.folder.path().join("run").exists());
    let flag = format!("--allow-read={}", model());
    assert!(message.contains(&format!("foreign.mas:4: model base is read from {}", model())), "{message}");
    assert!(message.contains(&format!("hint: `{flag}` allows it")), "{message}");
    // As the message says.
    succeed(foreign.run().arg(&flag));
    let mut resume = pl_host_without_permissions();
    resume.current_dir(foreign.folder.path()).args(["run", "--resume", "run", "--device", "cpu"]);
    succeed(resume.args(["--set", "train.steps=2"]));
}

#[test]
fn the_environment_allows_as_flags_do() {
    let foreign = Foreign::new("");
    for command in ["evaluate", "play"] {
        let refused = foreign.command(command).args(["--device", "cpu"]).output().unwrap();
        assert_eq!(refused.status.code(), Some(2), "{command}: {}", stderr(&refused));
        assert!(stderr(&refused).contains("--allow-read="), "{command}: {}", stderr(&refused));
    }
    succeed(foreign.command("play").args(["--device", "cpu"]).env("PL_HOST_ALLOW_READ", model()));
}

#[test]
fn a_plan_lists_what_is_needed_and_sends_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let foreign = Foreign::new(&format!(
        "server fleet = \"http://{address}\" {{ key_variable = \"SECRET_KEY\" }}\n\
         policy far {{ model = base; train = false; server = fleet }}\n\
         evaluate roles {{ roles {{ alto = far }}; tasks = \"/etc/passwd\" }}\n"
    ));
    let plan = || {
        let mut plan = foreign.command("plan");
        plan.args(["--device", "cpu"]).env("SECRET_KEY", "hunter2");
        plan
    };
    let shown = stdout(&succeed(&mut plan()));
    for expected in [
        format!("model base is read from {0}, NOT ALLOWED yet (--allow-read={0})", model()),
        format!(
            "the prompts of server fleet are sent to http://{address}, NOT ALLOWED yet (--allow-net={address})"
        ),
        "the key of server fleet is in SECRET_KEY, NOT ALLOWED yet (--allow-env=SECRET_KEY)".to_owned(),
        "the tasks of roles are read from /etc/passwd, NOT ALLOWED yet (--allow-read=/etc/passwd)".to_owned(),
    ] {
        assert!(shown.contains(&expected), "{expected}\n{shown}");
    }
    assert!(!shown.contains("hunter2"), "{shown}");
    let json = succeed(plan().args(["--json", "--allow-env=SECRET_KEY"]));
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    let allowed = |flag: &str| {
        let found = json["permissions"].as_array().unwrap().iter().find(|one| one["flag"] == flag);
        found.unwrap_or_else(|| panic!("{flag}: {json:#}"))["allowed"].clone()
    };
    assert_eq!(allowed("--allow-env=SECRET_KEY"), true);
    assert_eq!(allowed(&format!("--allow-net={address}")), false);
    // The task file was not read, nor the model.
    let tasks = json["evaluations"].as_array().unwrap().last().unwrap()["tasks"].clone();
    assert_eq!(tasks["records"], Value::Null);
    assert!(tasks["problem"].as_str().unwrap().contains("--allow-read=/etc/passwd"), "{tasks}");
    assert_eq!(json["memory"], Value::Null);
    for command in ["check", "graph"] {
        succeed(&mut foreign.command(command));
    }
    let refused = foreign.run().output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        stderr(&refused).contains(&format!("--allow-net={address} --allow-env=SECRET_KEY")),
        "{}",
        stderr(&refused)
    );
    assert!(listener.accept().is_err(), "a connection was made");
}

/// The control of the texts that are refused: a run of the same workflow has them once they are allowed.
#[test]
fn a_text_that_is_allowed_is_read() {
    let outside = tempfile::tempdir().unwrap();
    let text = outside.path().canonicalize().unwrap().join("text.txt");
    fs::write(&text, "words of another folder").unwrap();
    let foreign = Foreign::new(&format!("param secret: string = file(\"{}\")\n", text.display()));
    let run = foreign.folder.path().join("run");
    let refused = foreign.run().arg(format!("--allow-read={}", model())).output().unwrap();
    assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
    assert!(!run.exists(), "{}", stderr(&refused));
    succeed(foreign.run().arg(format!("--allow-read={},{}", model(), text.display())));
    let stored = fs::read_to_string(run.join("workflow.json")).unwrap();
    assert!(stored.contains("words of another folder"), "{stored}");
}

/// The control of the requests that are refused: a run of the same workflow sends them once they are allowed.
#[test]
fn a_server_that_is_allowed_is_reached() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let foreign = Foreign::new(&format!(
        "server fleet = \"http://{address}\"\npolicy far {{ model = base; train = false; server = fleet }}\n\
         evaluate roles {{ roles {{ alto = far }} }}\n"
    ));
    let read = format!("--allow-read={}", model());
    let refused = foreign.run().arg(&read).output().unwrap();
    assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
    assert!(listener.accept().is_err(), "a connection was made");
    let mut allowed = foreign.run();
    allowed.arg(&read).arg(format!("--allow-net={address}"));
    let messages = foreign.folder.path().join("messages");
    let log = fs::File::create(&messages).unwrap();
    let mut run = allowed.stdout(Stdio::null()).stderr(log).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut is_reached = false;
    while !is_reached && run.try_wait().unwrap().is_none() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
        is_reached = listener.accept().is_ok();
    }
    // Also one that was made just before the run ended.
    is_reached |= listener.accept().is_ok();
    run.kill().unwrap();
    run.wait().unwrap();
    assert!(is_reached, "no connection was made: {}", fs::read_to_string(&messages).unwrap());
}

#[test]
fn commands_read_no_text_outside_of_the_folder() {
    let foreign = Foreign::new("param secret: string = file(\"/etc/passwd\")\n");
    for command in ["check", "plan", "graph", "run", "evaluate"] {
        let refused = foreign.command(command).output().unwrap();
        let message = stderr(&refused);
        assert_eq!(refused.status.code(), Some(2), "{command}: {message}");
        assert!(message.contains("`--allow-read=/etc/passwd`"), "{command}: {message}");
        assert!(!message.contains("root:") && !stdout(&refused).contains("root:"), "{command}");
    }
    let allowed = succeed(foreign.command("check").arg("--allow-read=/etc/passwd"));
    assert!(stdout(&allowed).contains("is valid"));
}

#[test]
fn special_files_and_folders_of_the_system_end_a_check_soon() {
    for path in ["/dev/zero", "/dev/stdin", "/proc/self/environ", "/"] {
        let foreign = Foreign::new(&format!(
            "plugin other = \"{path}\"\ncorpus c = \"{path}\"\nevaluate more {{ tasks = \"{path}\" }}\n"
        ));
        let started = Instant::now();
        let refused = foreign.command("check").output().unwrap();
        assert_eq!(refused.status.code(), Some(2), "{path}: {}", stdout(&refused));
        assert!(started.elapsed() < Duration::from_secs(10), "{path}");
    }
}

#[test]
fn huge_files_do_not_hold_up_a_plan() {
    let foreign = Foreign::new("evaluate more { tasks = \"huge.jsonl\" }\n");
    fs::File::create(foreign.folder.path().join("huge.jsonl")).unwrap().set_len(100 << 30).unwrap();
    let started = Instant::now();
    let shown = stdout(&succeed(&mut foreign.command("plan")));
    assert!(shown.contains("is larger than 4 GiB"), "{shown}");
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
}

/// Starts a run at a terminal, gives an answer, and returns what the terminal shows.
fn run_at_a_terminal(foreign: &Foreign, answer: &str) -> String {
    let run = foreign.run();
    let mut terminal = Command::new("python3");
    terminal
        .args(["-c", "import pty, sys; pty.spawn(sys.argv[1:])"])
        .arg(run.get_program())
        .args(run.get_args());
    for (name, value) in run.get_envs() {
        match value {
            Some(value) => terminal.env(name, value),
            None => terminal.env_remove(name),
        };
    }
    terminal.current_dir(foreign.folder.path()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut terminal = terminal.spawn().unwrap();
    writeln!(terminal.stdin.as_mut().unwrap(), "{answer}").unwrap();
    // The end of its input would be typed too: it stays open.
    let input = terminal.stdin.take();
    let mut shown = String::new();
    terminal.stdout.take().unwrap().read_to_string(&mut shown).unwrap();
    drop(input);
    terminal.wait().unwrap();
    shown
}

#[test]
fn an_answer_at_the_terminal_allows_a_run() {
    if !Command::new("python3").arg("--version").output().is_ok_and(|output| output.status.success()) {
        return skip_or_fail(Requirement::Python, "there is no python3");
    }
    let foreign = Foreign::new("");
    let refused = run_at_a_terminal(&foreign, "n");
    assert!(refused.contains("foreign.mas:4: model base is read from"), "{refused}");
    assert!(
        refused.contains("Allow it? [y/N]") && refused.contains("needs what was not allowed"),
        "{refused}"
    );
    assert!(!foreign.folder.path().join("run").exists(), "{refused}");
    let allowed = run_at_a_terminal(&foreign, "y");
    assert_eq!(allowed.matches("Allow it?").count(), 1, "{allowed}");
    assert!(foreign.folder.path().join("run/checkpoints").is_dir(), "{allowed}");
    let lock = fs::read_to_string(foreign.folder.path().join("run/lock.json")).unwrap();
    assert!(lock.contains(&format!("read {}", model())), "{lock}");
}

/// Files that a workflow is written in are asked for as others are.
#[test]
fn an_answer_at_the_terminal_allows_what_a_workflow_includes() {
    if !Command::new("python3").arg("--version").output().is_ok_and(|output| output.status.success()) {
        return skip_or_fail(Requirement::Python, "there is no python3");
    }
    let outside = tempfile::tempdir().unwrap();
    let included = outside.path().canonicalize().unwrap().join("more.mas");
    fs::write(&included, "param unused: int = 1\n").unwrap();
    let foreign = Foreign::new(&format!("include \"{}\"\n", included.display()));
    let allowed = run_at_a_terminal(&foreign, "y\ny");
    let question = format!("the workflow includes or loads {}", included.display());
    assert!(allowed.contains(&question), "{allowed}");
    assert!(foreign.folder.path().join("run/checkpoints").is_dir(), "{allowed}");
    let lock = fs::read_to_string(foreign.folder.path().join("run/lock.json")).unwrap();
    assert!(lock.contains(&format!("read {}", included.display())), "{lock}");
}

/// Opens a file in the language server and returns the messages of its first diagnostics.
fn diagnostics_of_editor(file: &Path, flags: &[&str]) -> Vec<String> {
    let mut server = pl_host_without_permissions();
    server.arg("lsp").args(flags).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut server = server.spawn().unwrap();
    let uri = format!("file://{}", file.display());
    let text = fs::read_to_string(file).unwrap();
    let mut input = server.stdin.take().unwrap();
    for message in [
        json!({ "id": 1, "method": "initialize", "params": { "capabilities": {} } }),
        json!({ "method": "initialized", "params": {} }),
        json!({ "method": "textDocument/didOpen", "params": {
            "textDocument": { "uri": uri, "languageId": "mas", "version": 1, "text": text },
        } }),
    ] {
        let mut message = message;
        message["jsonrpc"] = json!("2.0");
        let body = message.to_string();
        write!(input, "Content-Length: {}\r\n\r\n{body}", body.len()).unwrap();
    }
    let mut output = BufReader::new(server.stdout.take().unwrap());
    let messages = loop {
        let mut header = String::new();
        let mut length = 0;
        while output.read_line(&mut header).unwrap() > 2 {
            if let Some(value) = header.trim().strip_prefix("Content-Length: ") {
                length = value.parse().unwrap();
            }
            header.clear();
        }
        let mut body = vec![0; length];
        output.read_exact(&mut body).unwrap();
        let body: Value = serde_json::from_slice(&body).unwrap();
        if body["method"] == "textDocument/publishDiagnostics" {
            let list = body["params"]["diagnostics"].as_array().unwrap();
            break list.iter().map(|one| one["message"].as_str().unwrap().to_owned()).collect();
        }
    };
    server.kill().unwrap();
    server.wait().unwrap();
    messages
}

#[test]
fn an_editor_reads_no_text_outside_of_the_folder() {
    let foreign = Foreign::new("param secret: string = file(\"/etc/passwd\")\n");
    let refused = diagnostics_of_editor(&foreign.file, &[]);
    assert!(refused.iter().any(|message| message.contains("--allow-read=/etc/passwd")), "{refused:?}");
    let allowed = diagnostics_of_editor(&foreign.file, &["--allow-read=/etc/passwd"]);
    assert!(!allowed.iter().any(|message| message.contains("--allow-read")), "{allowed:?}");
}
