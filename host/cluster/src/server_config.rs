//! Configuration of a `nats-server` in which each role may do what it has to, and no more.
//!
//! Each role has an account of its own, between which the server passes on requests and their answers alone. Permissions
//! within one account would not be enough: a server publishes an answer wherever the request
//! wants it, that is to say also to the subjects of the versions.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use nkeys::KeyPair;

use crate::error::Error;
use crate::lease::LeaseQueue;
use crate::names::{MOST_LEARNERS, Names, REGISTRY, SANDBOXES};
use crate::roles::Role;

/// Name of the configuration's file.
const CONFIGURATION: &str = "nats.conf";

/// Subjects on which workers and learners read streams, message by message.
const READING: [&str; 4] =
    ["$JS.API.INFO", "$JS.API.STREAM.INFO.*", "$JS.API.STREAM.MSG.GET.*", "$JS.API.DIRECT.GET.>"];

/// Subjects on which workers and learners are told that they were excluded.
const ASIDE: &str = "pl.*.aside.*";

/// Subjects of verdicts, from sandbox machines to workers.
const VERDICTS: &str = "pl.*.verdict.*";

/// Roles besides coordinators.
const OTHERS: [Role; 3] = [Role::Worker, Role::Learner, Role::Sandbox];

/// Roles that take leases.
const LEASING: [Role; 2] = [Role::Worker, Role::Learner];

/// Returns the subject on which a role is asked for its status.
fn status(role: Role) -> &'static str {
    match role {
        Role::Coordinator | Role::Worker => "pl.*.status",
        Role::Learner => "pl.*.learners",
        Role::Sandbox => "pl.*.sandboxes",
    }
}

/// Returns the subjects that a role may send requests to. One that takes leases reads streams, takes leases, acknowledges them
/// and appends results; workers send jobs. A sandbox machine reads the list of runs and the parts of jobs, takes jobs and
/// acknowledges them.
fn requests(role: Role) -> Vec<String> {
    let learners = || (0..MOST_LEARNERS).map(LeaseQueue::Learner).map(Names::consumer).collect();
    let reading = || READING.map(str::to_owned).into();
    let (reading, consumers, writing): (Vec<String>, Vec<String>, &[&str]) = match role {
        Role::Coordinator => return Vec::new(),
        Role::Worker => (
            reading(),
            vec![Names::consumer(LeaseQueue::Workers)],
            &["pl.*.result.*", "pl.*.job", "pl.*.input.*.*"],
        ),
        Role::Learner => (reading(), learners(), &["pl.*.updated.*"]),
        Role::Sandbox => (runs_and_inputs(), vec![SANDBOXES.to_owned()], &[]),
    };
    let mut subjects = reading;
    for consumer in consumers {
        subjects.push(format!("$JS.API.CONSUMER.INFO.*.{consumer}"));
        subjects.push(format!("$JS.API.CONSUMER.MSG.NEXT.*.{consumer}"));
        subjects.push(format!("$JS.ACK.*.{consumer}.>"));
    }
    subjects.extend(writing.iter().map(|subject| (*subject).to_owned()));
    subjects
}

/// Returns the subjects on which a sandbox machine reads the list of runs and the parts of jobs, and nothing else: no weights
/// and no results.
fn runs_and_inputs() -> Vec<String> {
    vec![
        "$JS.API.INFO".to_owned(),
        format!("$JS.API.STREAM.INFO.KV_{REGISTRY}"),
        format!("$JS.API.STREAM.MSG.GET.KV_{REGISTRY}"),
        format!("$JS.API.DIRECT.GET.KV_{REGISTRY}.>"),
        "$JS.API.DIRECT.GET.*.pl.*.input.*.*".to_owned(),
    ]
}

/// Settings of a server.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Address to listen on: `HOST:PORT`.
    pub listen: String,
    /// Folder of its streams.
    pub store: PathBuf,
    /// Certificate and key (PEM), if connections are encrypted.
    pub tls: Option<(PathBuf, PathBuf)>,
}

impl ServerConfig {
    /// Writes the configuration and a new key for each role into a folder, readable by this user alone. Returns the path of
    /// the configuration.
    ///
    /// # Errors
    /// If one of the files is there already, or can't be written.
    pub fn write(&self, folder: &Path) -> Result<PathBuf, Error> {
        let failed = |path: &Path| {
            let path = path.to_path_buf();
            move |source| Error::Configuration { path, source }
        };
        fs::create_dir_all(folder).map_err(failed(folder))?;
        let mut accounts = String::new();
        for role in Role::ALL {
            let key = KeyPair::new_user();
            let path = folder.join(role.credentials_file());
            let seed = key.seed().map_err(|error| failed(&path)(std::io::Error::other(error)))?;
            write_private(&path, &format!("{seed}\n")).map_err(failed(&path))?;
            accounts.push_str(&account(role, &key.public_key()));
        }
        let path = folder.join(CONFIGURATION);
        write_private(&path, &self.text(&accounts)).map_err(failed(&path))?;
        Ok(path)
    }

    fn text(&self, accounts: &str) -> String {
        let Self { listen, store, tls } = self;
        let store = store.display().to_string();
        let mut text = format!(
            "# A server of pl-host: coordinators may do everything, workers and learners take leases and store results, sandbox\n\
             # machines take jobs.\n\
             listen: {listen:?}\nmax_payload: 8MB\n\
             # What is acknowledged is on the disk.\n\
             jetstream {{ store_dir: {store:?}, sync_interval: always }}\n"
        );
        if let Some((certificate, key)) = tls {
            let [certificate, key] = [certificate, key].map(|path| path.display().to_string());
            let _ = writeln!(text, "tls {{ cert_file: {certificate:?}, key_file: {key:?} }}");
        }
        let _ = write!(text, "accounts {{\n{accounts}}}\n");
        text
    }
}

/// Returns the account of a role, whose user has this public key.
fn account(role: Role, key: &str) -> String {
    let mut text = format!("  {} {{\n", role.account());
    match role {
        Role::Coordinator => {
            let _ = writeln!(text, "    jetstream: enabled\n    users: [{{ nkey: {key} }}]\n    exports: [");
            // An export names all accounts that may import it.
            let accounts = LEASING.map(Role::account).join(", ");
            let mut subjects: Vec<String> = OTHERS.into_iter().flat_map(requests).collect();
            subjects.sort();
            subjects.dedup();
            for subject in subjects {
                let own = OTHERS.into_iter().filter(|role| requests(*role).contains(&subject));
                let own = own.map(Role::account).collect::<Vec<_>>().join(", ");
                let _ = writeln!(text, "      {{ service: {subject:?}, accounts: [{own}] }}");
            }
            let _ = writeln!(text, "      {{ stream: {ASIDE:?}, accounts: [{accounts}] }}\n    ]");
            let _ = writeln!(text, "    imports: [");
            for role in OTHERS {
                let _ = writeln!(text, "      {{ service: {} }}", of(role, status(role)));
            }
            let _ = writeln!(text, "    ]");
        }
        Role::Worker | Role::Learner | Role::Sandbox => {
            let requests = requests(role);
            let mut publish = requests.clone();
            let inbox = format!("{}.>", role.inbox());
            let mut subscribe = vec![inbox.as_str(), status(role)];
            let mut exports = String::new();
            let mut imports: Vec<String> = requests
                .iter()
                .map(|subject| format!("service: {}", of(Role::Coordinator, subject)))
                .collect();
            if LEASING.contains(&role) {
                subscribe.push(ASIDE);
                imports.push(format!("stream: {}", of(Role::Coordinator, ASIDE)));
            }
            match role {
                Role::Worker => {
                    subscribe.push(VERDICTS);
                    imports.push(format!("stream: {}", of(Role::Sandbox, VERDICTS)));
                }
                Role::Sandbox => {
                    publish.push(VERDICTS.to_owned());
                    exports = format!(", {{ stream: {VERDICTS:?}, accounts: [{}] }}", Role::Worker.account());
                }
                Role::Coordinator | Role::Learner => {}
            }
            let _ = writeln!(
                text,
                "    users: [{{\n      nkey: {key}\n      permissions: {{\n        publish: {{ allow: {publish:?} }}\n        \
                 subscribe: {{ allow: {subscribe:?} }}\n        allow_responses: true\n      }}\n    }}]"
            );
            let _ = writeln!(
                text,
                "    exports: [{{ service: {:?}, response_type: stream, accounts: [{}] }}{exports}]\n    imports: [",
                status(role),
                Role::Coordinator.account()
            );
            for import in imports {
                let _ = writeln!(text, "      {{ {import} }}");
            }
            text.push_str("    ]\n");
        }
    }
    text + "  }\n"
}

/// Returns a subject of a role's account, as an import names it.
fn of(role: Role, subject: &str) -> String {
    format!("{{ account: {}, subject: {subject:?} }}", role.account())
}

/// Writes a new file that other users can't read.
fn write_private(path: &Path, text: &str) -> std::io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}
