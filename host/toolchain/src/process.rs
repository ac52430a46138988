//! Running tools.

use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::{Error, Result};

/// The file that `name` stands for on the `PATH`.
pub(crate) fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// Runs a command and gives back what it prints. The error is the last line of its complaints.
pub(crate) fn capture(command: &mut Command) -> std::result::Result<String, String> {
    let output = command.stdin(Stdio::null()).output().map_err(|e| e.to_string())?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    let last = complaint.lines().rev().find(|line| !line.trim().is_empty());
    Err(last.map_or_else(|| output.status.to_string(), str::to_owned))
}

/// Runs a command quietly; what it said becomes part of the error `what`.
pub(crate) fn run(command: &mut Command, what: &str) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let start = |e: std::io::Error| Error::failed(format!("{program} does not start: {e}"));
    // One pipe for both streams, so that the lines keep their order.
    let (mut reader, writer) = std::io::pipe().map_err(start)?;
    let errors = writer.try_clone().map_err(start)?;
    let spawned = command.stdin(Stdio::null()).stdout(writer).stderr(errors).spawn();
    // The command holds the writing ends too: reading would never end.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = spawned.map_err(start)?;
    let mut log = Vec::new();
    reader.read_to_end(&mut log).map_err(start)?;
    if child.wait().map_err(start)?.success() {
        return Ok(());
    }
    Err(Error::Failed { what: what.to_owned(), log: String::from_utf8_lossy(&log).into_owned() })
}

/// Runs a command, its output hidden, and ends it when it takes too long.
pub(crate) fn run_for(command: &mut Command, limit: Duration) -> std::result::Result<(), String> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|e| e.to_string())?;
    let start = Instant::now();
    loop {
        match child.try_wait().map_err(|e| e.to_string())? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(status.to_string()),
            None if start.elapsed() > limit => {
                child.kill().and_then(|()| child.wait()).map_err(|e| e.to_string())?;
                return Err(format!("no answer within {} s", limit.as_secs()));
            }
            None => thread::sleep(Duration::from_millis(50)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_failing_tool_said_is_in_the_error_in_its_order() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo one; echo two >&2; echo three; exit 3"]);
        let error = run(&mut command, "the tool failed").unwrap_err();
        assert_eq!(error.to_string(), "the tool failed:\none\ntwo\nthree");
    }

    #[test]
    fn a_tool_that_hangs_is_ended() {
        let error = run_for(Command::new("sleep").arg("60"), Duration::from_millis(100)).unwrap_err();
        assert!(error.starts_with("no answer within"), "{error}");
    }
}
