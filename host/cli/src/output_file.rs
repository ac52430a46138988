//! Files of results.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, ErrorKind, IntoInnerError, Write};
use std::path::{Path, PathBuf};

use pl_record::{RunFolder, create_partial};
use tempfile::NamedTempFile;

use crate::exit::{CommandError, CommandResult};

/// File of a command's results. It is written beside its path and renamed when it is complete, so that a command that
/// fails leaves an older file as it was.
pub struct OutputFile {
    /// Path for messages, as the user wrote it.
    path: PathBuf,
    target: Target,
}

enum Target {
    /// A file, and what replaces it.
    File { path: PathBuf, partial: BufWriter<NamedTempFile> },
    /// A device, a pipe, or a place where no other file can be made: only its content can be written.
    Stream(BufWriter<File>),
}

impl OutputFile {
    /// Starts to write the results to `path`.
    ///
    /// # Errors
    /// [`CommandError::Input`] if that is impossible, or would replace a file that a run writes and reads itself.
    pub fn create(path: &Path) -> Result<OutputFile, CommandError> {
        if let Some((run, entry)) = RunFolder::entry_of(path) {
            return Err(CommandError::input(format!(
                "cannot write {}: {entry} in {} is the run's own; choose another name",
                path.display(),
                run.display()
            )));
        }
        let target = Target::open(path)
            .map_err(|error| CommandError::input(format!("cannot write {}: {error}", path.display())))?;
        Ok(OutputFile { path: path.to_path_buf(), target })
    }

    /// Replaces an older file by the results.
    ///
    /// # Errors
    /// [`CommandError::Failed`] if they can't be written.
    pub fn finish(self) -> CommandResult {
        let OutputFile { path, target } = self;
        target.finish().map_err(|error| failure(&path, &error))
    }

    /// Returns the error of a command that could not write to this file.
    pub fn failure(&self, error: &io::Error) -> CommandError {
        failure(&self.path, error)
    }
}

fn failure(path: &Path, error: &io::Error) -> CommandError {
    CommandError::failed(format!("cannot write {}: {error}", path.display()))
}

impl Write for OutputFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.target {
            Target::File { partial, .. } => partial.write(bytes),
            Target::Stream(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.target {
            Target::File { partial, .. } => partial.flush(),
            Target::Stream(stream) => stream.flush(),
        }
    }
}

impl Target {
    fn open(path: &Path) -> io::Result<Target> {
        let stream = || Ok(Target::Stream(BufWriter::new(File::create(path)?)));
        // `/dev/stdout` may be a file that others write to, too.
        if path.starts_with("/dev") || path.starts_with("/proc") {
            return stream();
        }
        match fs::metadata(path) {
            Ok(older) if older.is_file() => {}
            Ok(_) => return stream(),
            // A link that leads to no file yet.
            Err(error) if error.kind() == ErrorKind::NotFound && path.is_symlink() => return stream(),
            Err(error) if error.kind() == ErrorKind::NotFound => return Target::beside(path.to_path_buf()),
            Err(error) => return Err(error),
        }
        // A file that is protected against writing is not replaced either.
        OpenOptions::new().write(true).open(path)?;
        // A symbolic link stays one.
        Target::beside(fs::canonicalize(path)?).or_else(|_| stream())
    }

    /// Creates the file that will replace `path`.
    fn beside(path: PathBuf) -> io::Result<Target> {
        let partial = BufWriter::new(create_partial(&path)?);
        Ok(Target::File { path, partial })
    }

    fn finish(self) -> io::Result<()> {
        match self {
            Target::File { path, partial } => {
                let partial = partial.into_inner().map_err(IntoInnerError::into_error)?;
                // The new content is on the disk before the old one goes.
                partial.as_file().sync_all()?;
                // A file that is mounted alone, or another user's in a folder for all, can be written but not replaced.
                partial.persist(&path).map(drop).or_else(|kept| fs::copy(kept.file.path(), &path).map(drop))
            }
            Target::Stream(mut stream) => stream.flush(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn an_older_file_stays_until_the_results_are_complete() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results.jsonl");
        fs::write(&path, "old").unwrap();
        let mut abandoned = OutputFile::create(&path).unwrap();
        abandoned.write_all(b"half of").unwrap();
        abandoned.flush().unwrap();
        drop(abandoned);
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(names(folder.path()), ["results.jsonl"]);
        let mut complete = OutputFile::create(&path).unwrap();
        complete.write_all(b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"old");
        complete.finish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(names(folder.path()), ["results.jsonl"]);
    }

    #[test]
    fn permissions_and_links_stay() {
        let folder = tempfile::tempdir().unwrap();
        let [old, link, plain, new] = ["old", "link", "plain", "new"].map(|name| folder.path().join(name));
        fs::write(&old, "old").unwrap();
        fs::set_permissions(&old, Permissions::from_mode(0o606)).unwrap();
        symlink(&old, &link).unwrap();
        OutputFile::create(&link).unwrap().finish().unwrap();
        assert!(link.is_symlink());
        assert_eq!((fs::read(&old).unwrap().as_slice(), mode(&old)), (&b""[..], 0o606));
        fs::write(&plain, "").unwrap();
        OutputFile::create(&new).unwrap().finish().unwrap();
        assert_eq!(mode(&new), mode(&plain));
    }

    #[test]
    fn files_of_a_run_are_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().canonicalize().unwrap().join("run");
        fs::create_dir_all(run.join("steps")).unwrap();
        for name in ["workflow.json", "lock.json", "metrics.jsonl"] {
            fs::write(run.join(name), "recorded").unwrap();
        }
        let [link, dangling, linked] = ["link", "dangling", "linked"].map(|name| folder.path().join(name));
        symlink(run.join("metrics.jsonl"), &link).unwrap();
        symlink("run/designs.jsonl", &dangling).unwrap();
        symlink("run", &linked).unwrap();
        for (path, entry) in [
            (run.join("metrics.jsonl"), "metrics.jsonl"),
            (run.join("steps/../workflow.json"), "workflow.json"),
            (run.join("steps/completions.jsonl"), "steps"),
            (run.join("run.lock"), "run.lock"),
            (link, "metrics.jsonl"),
            (dangling, "designs.jsonl"),
            (linked.join("lock.json"), "lock.json"),
        ] {
            let refused = OutputFile::create(&path).err();
            let Some(CommandError::Input(why)) = refused else { panic!("{} is replaced", path.display()) };
            assert!(why.contains(&format!("{entry} in {} is the run's own", run.display())), "{why}");
        }
        assert_eq!(fs::read(run.join("metrics.jsonl")).unwrap(), b"recorded");
        // Others are written, and so is a file of such a name elsewhere.
        for path in [run.join("completions.jsonl"), folder.path().join("metrics.jsonl")] {
            OutputFile::create(&path).unwrap().finish().unwrap();
        }
    }

    #[test]
    fn devices_are_written_to_and_impossible_paths_are_refused() {
        let mut null = OutputFile::create(Path::new("/dev/null")).unwrap();
        null.write_all(b"x").unwrap();
        null.finish().unwrap();
        assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());
        let folder = tempfile::tempdir().unwrap();
        let [link, place] = ["link", "place"].map(|name| folder.path().join(name));
        symlink(&place, &link).unwrap();
        OutputFile::create(&link).unwrap().finish().unwrap();
        assert!(link.is_symlink() && place.is_file());
        for path in [folder.path().to_path_buf(), folder.path().join("missing/file"), PathBuf::new()] {
            let refused = OutputFile::create(&path).err();
            assert!(matches!(&refused, Some(CommandError::Input(why)) if why.starts_with("cannot write")));
        }
    }
}
