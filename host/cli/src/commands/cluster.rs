//! `pl-host cluster`: the runs of a NATS server, and processes of a local cluster.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use pl_run::{
    AttachedCommands, ClusterOptions, ClusterRunStatus, ClusterServer, MissingProcess, Role, SandboxStatus,
    Sandboxes, ServerAddress, ServerConfig, TOKEN_VARIABLE, WorkerStatus, cluster_status, one_line,
};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use serde_json::json;

use crate::app::App;
use crate::arguments::cluster::{
    AccessArgs, ClusterCommand, ClusterConfigArgs, ClusterRunArgs, ClusterStatusArgs,
};
use crate::exit::{CommandError, CommandResult};
use crate::visible;

pub fn run(app: impl FnOnce() -> Result<App, CommandError>, command: &ClusterCommand) -> CommandResult {
    match command {
        ClusterCommand::Status(options) => status(&app()?, options),
        ClusterCommand::Config(options) => config(options),
        ClusterCommand::Attached { parent, command } => attached(*parent, command),
    }
}

/// Returns the address of a server with what it asks for.
pub fn address(url: &str, access: &AccessArgs) -> ServerAddress {
    let AccessArgs { nats_credentials: credentials, nats_ca: authorities } = access.clone();
    let token = std::env::var(TOKEN_VARIABLE).ok().filter(|token| !token.is_empty());
    ServerAddress { url: url.to_owned(), credentials, authorities, token }
}

/// Returns the cluster that the arguments of a run name.
///
/// # Errors
/// If the path of this program is not known.
pub fn options(arguments: &ClusterRunArgs, device: &[&str]) -> Result<ClusterOptions, CommandError> {
    let server = match (&arguments.nats, arguments.local_cluster) {
        _ if arguments.no_cluster => ClusterServer::None,
        (Some(url), _) => ClusterServer::Address(address(url, &arguments.access)),
        (None, Some(workers)) => ClusterServer::Local { workers, commands: attached_commands(device)? },
        (None, None) => {
            let AccessArgs { nats_credentials: credentials, nats_ca: authorities } = arguments.access.clone();
            ClusterServer::Workflow { credentials, authorities }
        }
    };
    let lease = arguments.lease.map(Duration::from_secs);
    let (learners, sandboxes) = (arguments.learners.clone(), arguments.sandboxes);
    let weights_folder = arguments.weights_folder.clone();
    Ok(ClusterOptions { server, lease, learners, weights_folder, sandboxes })
}

fn attached_commands(device: &[&str]) -> Result<AttachedCommands, CommandError> {
    let unknown = |error| CommandError::failed(format!("the path of this program is not known: {error}"));
    let program: OsString = std::env::current_exe().map_err(unknown)?.into();
    let parent = std::process::id().to_string();
    let attached = ["cluster", "attached", &parent, "--"].map(OsString::from);
    // The start of the run has asked for what the workflow needs of this machine.
    let command = |name: &'static str| {
        let arguments = [name, "--trust"].into_iter().chain(device.iter().copied()).map(OsString::from);
        std::iter::once(program.clone()).chain(arguments).collect()
    };
    Ok(AttachedCommands {
        attached: std::iter::once(program.clone()).chain(attached).collect(),
        worker: command("worker"),
        learner: command("learner"),
        sandbox: [program].into_iter().chain(["sandbox", "serve"].map(OsString::from)).collect(),
    })
}

/// Becomes another program, which the system ends when the parent has ended.
fn attached(parent: u32, command: &[OsString]) -> CommandResult {
    let failed = |error: std::io::Error| CommandError::failed(format!("cannot start: {error}"));
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|error| failed(error.into()))?;
    // The parent may have ended before the signal was set.
    if getppid().map(|own| own.as_raw_nonzero().get().unsigned_abs()) != Some(parent) {
        return Err(CommandError::failed("the process that started this one has ended"));
    }
    let Some((program, arguments)) = command.split_first() else { return Ok(()) };
    let error = Command::new(program).args(arguments).exec();
    let name = program.to_string_lossy();
    Err(CommandError::failed(format!("cannot start {name}: {error}; is it installed and on the PATH?")))
}

/// Writes the configuration of a server, and says what to do with its files.
fn config(arguments: &ClusterConfigArgs) -> CommandResult {
    let absolute = |path: &PathBuf| {
        let failed = |error| CommandError::failed(format!("{}: {error}", path.display()));
        std::path::absolute(path).map_err(failed)
    };
    let ClusterConfigArgs { folder, listen, store, certificate, key } = arguments;
    let tls = certificate.as_ref().zip(key.as_ref());
    let tls = tls.map(|(certificate, key)| Ok::<_, CommandError>((absolute(certificate)?, absolute(key)?)));
    let config = ServerConfig { listen: listen.clone(), store: absolute(store)?, tls: tls.transpose()? };
    let path = config.write(folder).map_err(|error| CommandError::failed(error.to_string()))?;
    let key = |role: Role| folder.join(role.credentials_file());
    let mut out = std::io::stdout();
    writeln!(out, "nats-server -c {}", path.display())?;
    writeln!(out, "{}  for `pl-host run` and `cluster status`", key(Role::Coordinator).display())?;
    writeln!(
        out,
        "{}  for `pl-host worker`; it does not allow to write weights",
        key(Role::Worker).display()
    )?;
    writeln!(out, "{}  for `pl-host learner`", key(Role::Learner).display())?;
    Ok(writeln!(out, "{}  for `pl-host sandbox serve`; it takes jobs alone", key(Role::Sandbox).display())?)
}

fn status(app: &App, arguments: &ClusterStatusArgs) -> CommandResult {
    let server = &arguments.server;
    let address = address(&server.nats, &server.access);
    let runs = cluster_status(&app.host, &address)?;
    let mut out = visible::stdout();
    if arguments.json {
        let line = |run: &ClusterRunStatus| {
            let entry = &run.entry;
            json!({
                "run": entry.run,
                "program": entry.program,
                "started": entry.started,
                "queued": run.queued,
                "learners": run.entry.learners,
                "workers": run.workers,
                "jobs": run.sandboxes.as_ref().map(|sandboxes| sandboxes.queued),
                "sandboxes": run.sandboxes.as_ref().map(|sandboxes| &sandboxes.machines),
            })
        };
        let all: Vec<_> = runs.iter().map(line).collect();
        return Ok(writeln!(out, "{}", json!(all))?);
    }
    if runs.is_empty() {
        return Ok(writeln!(out, "{} has no runs", server.nats)?);
    }
    for run in runs {
        // Other machines write these texts.
        let (name, program) = (one_line(&run.entry.run), one_line(&run.entry.program));
        writeln!(out, "run {name} (pl-host {program}): {} tasks leased or queued", run.queued)?;
        for worker in &run.workers {
            writeln!(out, "  {}", worker_line(worker))?;
        }
        if let Some(Sandboxes { queued, machines }) = &run.sandboxes {
            writeln!(out, "  {queued} jobs wait or are run")?;
            for SandboxStatus { sandbox, slots, running, done, .. } in machines {
                let sandbox = one_line(sandbox);
                writeln!(out, "  {sandbox}: runs {running} of {slots} jobs, has run {done}")?;
            }
        }
        for line in missing_lines(&run, &server.nats) {
            writeln!(out, "  {line}")?;
        }
    }
    Ok(())
}

/// Returns lines on the processes that a run waits for, with the commands that start them.
fn missing_lines(run: &ClusterRunStatus, nats: &str) -> Vec<String> {
    let mut lines = Vec::new();
    if run.queued > 0 && run.workers.iter().all(|worker| !worker.policies.is_empty()) {
        lines.push(format!("no worker plays them; start one: {}", MissingProcess::Worker.command(nats)));
    }
    for learner in &run.entry.learners {
        let trains = |worker: &WorkerStatus| worker.policies == learner.policies;
        if !run.workers.iter().any(trains) {
            let policies: Vec<String> =
                learner.policies.iter().map(|policy| one_line(policy).into_owned()).collect();
            let names = policies.join(", ");
            let command = MissingProcess::Learner { policies }.command(nats);
            lines.push(format!("no learner trains {names}; start one: {command}"));
        }
    }
    if run.sandboxes.as_ref().is_some_and(|sandboxes| sandboxes.machines.is_empty()) {
        let command = MissingProcess::SandboxMachine.command(nats);
        lines.push(format!("no sandbox machine takes them; start one: {command}"));
    }
    lines
}

/// Returns the line of a worker or a learner, whose texts are its machine's.
fn worker_line(status: &WorkerStatus) -> String {
    let WorkerStatus { worker, cpu, policies, slots, playing, played, .. } = status;
    let (worker, cpu) = (one_line(worker), one_line(cpu));
    if policies.is_empty() {
        return format!("{worker}: plays {playing} of {slots}, has played {played} ({cpu})");
    }
    let (policies, state) = (policies.join(", "), if *playing > 0 { "trains" } else { "waits for" });
    format!("{worker}: {state} {}, has done {played} updates ({cpu})", one_line(&policies))
}

#[cfg(test)]
mod tests {
    use pl_run::{LearnerEntry, RunEntry};

    use super::*;

    fn status(policies: &[&str]) -> WorkerStatus {
        WorkerStatus {
            worker: "w\n  honest".to_owned(),
            program: "0.1.0".to_owned(),
            cpu: "x86\u{1b}[2K".to_owned(),
            policies: policies.iter().map(|policy| (*policy).to_owned()).collect(),
            slots: 2,
            playing: 1,
            played: 3,
        }
    }

    #[test]
    fn texts_of_other_machines_stay_on_their_line() {
        assert_eq!(worker_line(&status(&[])), "w␊  honest: plays 1 of 2, has played 3 (x86␛[2K)");
        let learner = worker_line(&status(&["a\r"]));
        assert_eq!(learner, "w␊  honest: trains a␍, has done 3 updates (x86␛[2K)");
    }

    #[test]
    fn processes_that_a_run_waits_for_are_named_with_their_commands() {
        let learner =
            |learner, policies: &[&str]| LearnerEntry { learner, policies: status(policies).policies };
        let mut run = ClusterRunStatus {
            entry: RunEntry {
                run: "r".to_owned(),
                protocol: 1,
                program: "0.1.0".to_owned(),
                started: 0,
                manifest: String::new(),
                files: Vec::new(),
                learners: vec![learner(0, &["a", "b"]), learner(1, &["c"])],
                jobs: None,
            },
            queued: 2,
            workers: vec![status(&["a", "b"])],
            sandboxes: Some(Sandboxes { queued: 0, machines: Vec::new() }),
        };
        assert_eq!(
            missing_lines(&run, "nats://host"),
            [
                "no worker plays them; start one: pl-host worker --nats nats://host",
                "no learner trains c; start one: pl-host learner --nats nats://host --policy c",
                "no sandbox machine takes them; start one: pl-host sandbox serve --nats nats://host",
            ]
        );
        run.workers.extend([status(&[]), status(&["c"])]);
        run.sandboxes = None;
        assert!(missing_lines(&run, "nats://host").is_empty());
    }
}
