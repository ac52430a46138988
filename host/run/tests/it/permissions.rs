//! Files, addresses and variables beyond its own folder that a workflow uses.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use pl_run::{
    Access, CheckedWorkflow, DevicePreference, Error, Host, ResumeOptions, RunOptions, StopRequest,
    TrainingRun, select_device,
};
use serde_json::Value;
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

use crate::support::{Workflow, host_with, parse, repository};

fn components() -> Access {
    Access::read(&repository().join("target/release/plugins"))
}

fn model() -> Access {
    Access::read(&repository().join("tests/data/tiny"))
}

fn requests(host: &Host, workflow: &Workflow, overrides: &[&str]) -> Vec<String> {
    let checked = CheckedWorkflow::open(host, &workflow.file, &parse(overrides)).unwrap();
    let folder = workflow.folder.path().display().to_string();
    checked.required_permissions().iter().map(|request| request.to_string().replace(&folder, "")).collect()
}

#[test]
fn everything_beyond_the_folder_is_listed_with_its_line() {
    let more = "server fleet = [\"http://10.0.0.1:8000\", \"https://gpu.example.org\"] { key_variable = \"FLEET_KEY\" }\n\
                policy far { model = base; train = false; server = fleet }\n\
                evaluate roles { roles { alto = far }; tasks = \"/data/x.jsonl\" }\n\
                sandbox { backend = docker; endpoints = [\"tcp://other:2376\"]; certificates = \"/certs\" }\n";
    let workflow = Workflow::new("tree-l2.mas", more);
    let text = fs::read_to_string(&workflow.file).unwrap();
    let grant = "letters.wasm\" { grant { read = [\"../tables\", \"own\"]\nhttp = [\"api.example.org\", \"localhost:81\"] } }";
    fs::create_dir(workflow.path("own")).unwrap();
    let outside = tempfile::tempdir().unwrap();
    let grant = grant.replace("../tables", &outside.path().display().to_string());
    fs::write(&workflow.file, text.replace("letters.wasm\"", &grant)).unwrap();
    let listed = requests(&host_with(&[components()]), &workflow, &[]);
    let has = |text: &str| listed.iter().any(|request| request.contains(text));
    for expected in [
        "plugin letters is loaded from",
        &format!("plugin letters reads {}", outside.path().canonicalize().unwrap().display()),
        "plugin letters sends requests to api.example.org",
        "plugin letters sends requests to localhost:81",
        "model base is read from",
        "the prompts of server fleet are sent to http://10.0.0.1:8000",
        "the prompts of server fleet are sent to https://gpu.example.org",
        "the key of server fleet is in FLEET_KEY",
        "the sandbox uses the Docker engine tcp://other:2376",
        "the sandbox reads certificates in /certs",
    ] {
        assert!(has(expected), "{expected}: {listed:#?}");
    }
    assert!(!has("own"), "{listed:#?}");
    for request in &listed {
        let line = request.strip_prefix("/workflow.mas:").and_then(|rest| rest.split(':').next());
        assert!(line.is_some_and(|line| line.parse::<u32>().is_ok()), "{request}");
    }
}

#[test]
fn a_cluster_needs_a_permission_where_it_is_used() {
    let more = "cluster { nats = [\"nats://10.0.0.2\", \"tls://other:4223\"]; credentials = \"/run.nk\"\n\
                authorities = \"/ca.pem\" }\n";
    let workflow = Workflow::new("tree-l2.mas", more);
    let host = host_with(&[components(), model()]);
    let refused = |host: &Host| {
        let checked = CheckedWorkflow::open(host, &workflow.file, &[]).unwrap();
        let Err(Error::NotAllowed { requests, .. }) = checked.require_permissions() else {
            panic!("it is allowed")
        };
        checked.without_cluster().require_permissions().unwrap();
        requests.into_iter().map(|request| request.purpose).collect::<Vec<_>>()
    };
    assert_eq!(
        refused(&host),
        [
            "the run and its tasks are sent to nats://10.0.0.2",
            "the run and its tasks are sent to tls://other:4223",
            "the cluster's credentials are read from /run.nk",
            "the cluster's authorities are read from /ca.pem",
        ]
    );
    let allowed = [
        components(),
        model(),
        Access::net("10.0.0.2:4222"),
        Access::net("other"),
        Access::read(Path::new("/run.nk")),
    ];
    assert_eq!(refused(&host_with(&allowed)), ["the cluster's authorities are read from /ca.pem"]);
}

#[test]
fn what_stands_on_the_command_line_needs_no_permission() {
    let workflow = Workflow::new("tree-l2.mas", "");
    let model = repository().join("tests/data/tiny");
    let host = host_with(&[components()]);
    assert!(requests(&host, &workflow, &[]).iter().any(|request| request.contains("model base")));
    let given = format!("base.source={}", model.display());
    assert!(!requests(&host, &workflow, &[&given]).iter().any(|request| request.contains("model base")));
}

#[test]
fn a_shipped_plugin_needs_a_permission_if_it_is_named_by_its_path() {
    let workflow = Workflow::new("tree-l2.mas", "");
    let plugins = std::env::current_exe().unwrap().parent().unwrap().join("plugins");
    fs::create_dir_all(&plugins).unwrap();
    let shipped = tempfile::Builder::new().suffix(".wasm").tempfile_in(&plugins).unwrap();
    let built = repository().join("target/release/plugins/letters.wasm");
    fs::copy(&built, shipped.path()).unwrap();
    let text = fs::read_to_string(&workflow.file).unwrap();
    let text = text.replace(&built.display().to_string(), &shipped.path().display().to_string());
    fs::write(&workflow.file, text).unwrap();
    let listed = requests(&host_with(&[Access::read(&plugins)]), &workflow, &[]);
    let is_listed = listed.iter().any(|request| request.contains("plugin letters is loaded from"));
    assert!(is_listed, "{listed:#?}");
}

#[test]
fn a_check_reads_no_text_outside_of_the_folder() {
    let workflow = Workflow::new("tree-l2.mas", "");
    let outside = tempfile::tempdir().unwrap();
    let secret = outside.path().canonicalize().unwrap().join("secret.txt");
    fs::write(&secret, "param a: int = 1\n").unwrap();
    std::os::unix::fs::symlink(&secret, workflow.path("link.mas")).unwrap();
    let text = fs::read_to_string(&workflow.file).unwrap();
    let path = secret.display().to_string();
    for more in [
        format!("include \"{path}\""),
        "include \"link.mas\"".to_owned(),
        format!("use \"{path}\" as other"),
        format!("param p: string = file(\"{path}\")"),
        "param p: string = file(\"../../../../../../../../../../etc/passwd\")".to_owned(),
    ] {
        fs::write(&workflow.file, format!("{text}\n{more}\n")).unwrap();
        let Err(Error::Workflow(diagnostics)) =
            CheckedWorkflow::open(&host_with(&[components()]), &workflow.file, &[])
        else {
            panic!("{more}")
        };
        let message = diagnostics.to_string();
        assert!(message.contains("outside of the workflow's folder"), "{more}: {message}");
        assert!(message.contains("--allow-read="), "{more}: {message}");
        assert!(!message.contains("root:"), "{message}");
    }
    fs::write(&workflow.file, format!("{text}\ninclude \"link.mas\"\n")).unwrap();
    let host = host_with(&[components(), Access::read(&secret)]);
    assert!(requests(&host, &workflow, &[]).iter().any(|request| request.contains("the workflow includes")));
}

#[test]
fn a_check_loads_no_component_outside_of_the_folder() {
    let workflow = Workflow::new("tree-l2.mas", "");
    let Err(error) = CheckedWorkflow::open(&host_with(&[]), &workflow.file, &[]) else { panic!() };
    let message = error.to_string();
    assert!(message.contains("letters.wasm` ") || message.contains("letters"), "{message}");
    assert!(message.contains("outside of the workflow's folder"), "{message}");
}

#[test]
fn a_check_reads_no_model_outside_of_the_folder() {
    let workflow = Workflow::new("tree-l2.mas", "");
    let device = select_device(&host_with(&[]), DevicePreference::Cpu).unwrap();
    let estimate = |allowed: &[Access]| {
        let host = host_with(allowed);
        let checked = CheckedWorkflow::open(&host, &workflow.file, &[]).unwrap();
        checked.estimate_memory(device).map(|_| ()).map_err(|error| error.to_string())
    };
    let error = estimate(&[components()]).unwrap_err();
    assert!(error.contains("--allow-read="), "{error}");
    estimate(&[components(), model()]).unwrap();
}

/// Returns a component that loops when it is asked for its items, which it has no section of.
fn endless_component() -> Vec<u8> {
    let guest = fs::read_to_string(repository().join("host/plugin/tests/guests/hostile.wat")).unwrap();
    // The first attack, a loop, on the first entry point.
    let text = guest.replace("WHERE", "0").replace("WHAT", "1");
    let mut module = wat::parse_str(text).unwrap();
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_dir(repository().join("wit/v0.1")).unwrap();
    let world = resolve.select_world(&[package], Some("domain")).unwrap();
    embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8, false).unwrap();
    ComponentEncoder::default().module(&module).unwrap().encode().unwrap()
}

#[test]
fn a_component_that_does_not_describe_itself_is_given_up() {
    let workflow = Workflow::new("tree-l2.mas", "");
    fs::write(workflow.path("endless.wasm"), endless_component()).unwrap();
    let text = fs::read_to_string(&workflow.file).unwrap();
    let start = text.find("plugin letters").unwrap();
    let end = start + text[start..].find('\n').unwrap();
    // Limits that would let it go on for hours.
    let plugin = "plugin letters = \"endless.wasm\" { fuel = 1000000000000000; timeout = 3600s }";
    fs::write(&workflow.file, text[..start].to_owned() + plugin + &text[end..]).unwrap();
    let started = Instant::now();
    let host = host_with(&[]);
    let Err(error) = CheckedWorkflow::open(&host, &workflow.file, &[]) else { panic!() };
    let message = error.to_string();
    assert!(message.contains("it could not be described within 10 s"), "{message}");
    drop(host);
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
}

fn start(host: &Host, workflow: &Workflow, run: &Path, overrides: &[&str]) -> Result<(), Error> {
    let device = select_device(host, DevicePreference::Cpu)?;
    let checked = CheckedWorkflow::open(host, &workflow.file, &parse(overrides))?;
    let options = RunOptions { folder: Some(run.to_path_buf()), seed: 1, ..RunOptions::default() };
    TrainingRun::start(host, &checked, device, &options)?.train(&StopRequest::default()).map(|_| ())
}

fn resume(host: &Host, run: &Path, overrides: &[&str]) -> Result<(), Error> {
    let device = select_device(host, DevicePreference::Cpu)?;
    let options = ResumeOptions { overrides: parse(overrides), ..ResumeOptions::default() };
    TrainingRun::resume(host, run, device, &options)?.train(&StopRequest::default()).map(|_| ())
}

#[test]
fn a_run_starts_with_permissions_and_its_resumes_keep_them() {
    let workflow = Workflow::new("tree-l2.mas", "");
    let run = workflow.path("run");
    let Err(Error::NotAllowed { requests, .. }) =
        start(&host_with(&[components()]), &workflow, &run, &["train.steps=1"])
    else {
        panic!("the model was not allowed")
    };
    assert_eq!(requests.iter().map(|request| &request.access).collect::<Vec<_>>(), [&model()]);
    assert!(!run.exists());
    start(&host_with(&[components(), model()]), &workflow, &run, &["train.steps=1"]).unwrap();
    let lock = || -> Value { serde_json::from_slice(&fs::read(run.join("lock.json")).unwrap()).unwrap() };
    let permissions = lock()["permissions"].as_array().unwrap().clone();
    assert!(permissions.iter().any(|one| *one == model().to_string()), "{permissions:?}");
    resume(&host_with(&[]), &run, &["train.steps=2"]).unwrap();
    assert_eq!(*lock()["permissions"].as_array().unwrap(), permissions);
    // Without the record, the run is not as its user left it.
    let mut changed = lock();
    changed["permissions"] = Value::Array(Vec::new());
    fs::write(run.join("lock.json"), changed.to_string()).unwrap();
    let error = resume(&host_with(&[]), &run, &["train.steps=3"]).unwrap_err();
    assert!(matches!(error, Error::ForeignRun { .. }) && error.is_input(), "{error}");
    resume(&host_with(&[components(), model()]), &run, &["train.steps=3"]).unwrap();
    assert_eq!(*lock()["permissions"].as_array().unwrap(), permissions);
}

/// A check says nothing about files that it may not read, not even whether they are there.
#[test]
fn a_check_does_not_tell_which_files_exist_elsewhere() {
    let workflow = Workflow::new("tree-l2.mas", "");
    let outside = tempfile::tempdir().unwrap();
    let outside = outside.path().canonicalize().unwrap();
    fs::create_dir(outside.join("there")).unwrap();
    for file in ["there.wasm", "there.mas", "there.jsonl"] {
        fs::write(outside.join(file), "x").unwrap();
    }
    let text = fs::read_to_string(&workflow.file).unwrap();
    let checked = |name: &str| {
        let path = outside.join(name).display().to_string();
        let own =
            text.replace("letters.wasm\"", &format!("letters.wasm\" {{ grant {{ read = [\"{path}\"] }} }}"));
        let more = format!("include \"{path}.mas\"\nplugin other = \"{path}.wasm\"\n");
        let tasks = format!("evaluate more {{ tasks = \"{path}.jsonl\" }}\n");
        let shown = [own + &tasks, format!("{text}\n{more}")].map(|text| {
            fs::write(&workflow.file, text).unwrap();
            match CheckedWorkflow::open(&host_with(&[components()]), &workflow.file, &[]) {
                Ok(checked) => {
                    checked.required_permissions().iter().map(|request| request.to_string() + "\n").collect()
                }
                Err(error) => error.to_string(),
            }
        });
        assert!(shown[0].contains("the tasks of more are read from"), "{}", shown[0]);
        shown.concat().replace(name, "NAME")
    };
    assert_eq!(checked("there"), checked("missing"));
}
