//! Running tools.

use std::ffi::OsStr;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

/// Callback that receives a line about each step that may take long.
pub type ProgressFn<'a> = &'a dyn Fn(&str);

/// Failure of a tool whose output is not shown.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ToolError {
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// Its last line on stderr, or its exit status.
    #[error("{0}")]
    Failed(String),
    #[error("no answer within {} s", .0.as_secs())]
    Timeout(Duration),
}

/// Returns the program that `name` refers to on the `PATH`, of whose folders the relative ones are left out.
pub fn on_path(name: &str) -> Option<PathBuf> {
    find_in(&std::env::var_os("PATH")?, name)
}

/// Relative folders are left out: they are those of whatever project is being built.
fn find_in(path: &OsStr, name: &str) -> Option<PathBuf> {
    let folders = std::env::split_paths(path).filter(|folder| folder.is_absolute());
    folders.map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// Returns a command of a program on the `PATH`. A command of a bare name would look in relative folders too.
///
/// # Errors
/// [`NotFound`](std::io::ErrorKind::NotFound).
pub fn command_on_path(name: &str) -> std::io::Result<Command> {
    let missing = || std::io::Error::new(std::io::ErrorKind::NotFound, format!("{name} is not on the PATH"));
    on_path(name).map(Command::new).ok_or_else(missing)
}

/// Runs a program on the `PATH`, whose command is completed by `with`, and returns its stdout.
pub(crate) fn capture_on_path(
    name: &str,
    with: impl FnOnce(&mut Command) -> &mut Command,
) -> std::result::Result<String, ToolError> {
    capture(with(&mut command_on_path(name)?))
}

/// Runs a command and returns its stdout.
pub(crate) fn capture(command: &mut Command) -> std::result::Result<String, ToolError> {
    let output = command.stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    let last = stderr.lines().rev().find(|line| !line.trim().is_empty());
    Err(ToolError::Failed(last.map_or_else(|| output.status.to_string(), str::to_owned)))
}

/// Runs a command without showing its output. If it fails, the error has `message` and the output.
pub(crate) fn run(command: &mut Command, message: &str) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let start = |e: std::io::Error| Error::failed(format!("{program} does not start: {e}"));
    // One pipe for both streams, so that the lines keep their order.
    let (mut reader, writer) = std::io::pipe().map_err(start)?;
    let errors = writer.try_clone().map_err(start)?;
    let spawned = command.stdin(Stdio::null()).stdout(writer).stderr(errors).spawn();
    // The command owns the writing ends too: reading would never end.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = spawned.map_err(start)?;
    let mut log = Vec::new();
    reader.read_to_end(&mut log).map_err(start)?;
    if child.wait().map_err(start)?.success() {
        return Ok(());
    }
    Err(Error::Failed { message: message.to_owned(), log: String::from_utf8_lossy(&log).into_owned() })
}

/// Runs a command without showing its output, and kills it after `limit`.
pub(crate) fn run_for(command: &mut Command, limit: Duration) -> std::result::Result<(), ToolError> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let start = Instant::now();
    loop {
        match child.try_wait()? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(ToolError::Failed(status.to_string())),
            None if start.elapsed() > limit => {
                child.kill().and_then(|()| child.wait())?;
                return Err(ToolError::Timeout(limit));
            }
            None => thread::sleep(Duration::from_millis(50)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_output_of_a_failing_tool_is_in_the_error_in_its_order() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo one; echo two >&2; echo three; exit 3"]);
        let error = run(&mut command, "the tool failed").unwrap_err();
        assert_eq!(error.to_string(), "the tool failed:\none\ntwo\nthree");
    }

    #[test]
    fn programs_of_the_working_folder_are_not_found() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("zig"), "").unwrap();
        let absolute = folder.path().display().to_string();
        assert_eq!(find_in(OsStr::new(&format!(".:{absolute}")), "zig"), Some(folder.path().join("zig")));
        // The folder of this package has it, under each of these names.
        assert!(Path::new("Cargo.toml").is_file());
        for relative in ["", ".", "src/..", ":"] {
            assert_eq!(find_in(OsStr::new(relative), "Cargo.toml"), None, "{relative:?}");
        }
        let missing = command_on_path("no-such-program").unwrap_err();
        assert_eq!(missing.to_string(), "no-such-program is not on the PATH");
        assert!(Path::new(command_on_path("sh").unwrap().get_program()).is_absolute());
    }

    #[test]
    fn a_tool_that_hangs_is_killed() {
        let error = run_for(Command::new("sleep").arg("60"), Duration::from_millis(100)).unwrap_err();
        assert!(matches!(error, ToolError::Timeout(_)), "{error}");
    }
}
