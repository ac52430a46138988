//! `pl-host fmt`: formats workflow files.

use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::path::{Path, PathBuf};

use pl_dsl::Source;
use pl_run::Diagnostics;
use similar::TextDiff;

use crate::arguments::workflow::FmtArgs;
use crate::diagnostics;
use crate::diagnostics::DiagnosticFormat;
use crate::exit::{CommandError, CommandResult};
use crate::stderr;
use crate::visible;

/// Lines of context around a difference.
const CONTEXT: usize = 1;

/// Largest number of lines of a diff that is shown.
const LONGEST_DIFF: usize = 60;

/// Formats all files except those with unmatched brackets, for which the command fails at the end.
pub fn run(options: &FmtArgs) -> CommandResult {
    let mut refused = false;
    let mut differing = 0;
    for file in expand_folders(&options.files)? {
        let source = read(&file)?;
        let formatted = match pl_dsl::format(&source.text) {
            Ok(formatted) => formatted,
            Err(diagnostics) => {
                diagnostics::show(&Diagnostics::new(diagnostics, source.into()), DiagnosticFormat::Human)?;
                refused = true;
                continue;
            }
        };
        let differs = formatted != source.text;
        if options.check {
            if differs {
                differing += 1;
                print(&diff(&source, &formatted))?;
            }
        } else if is_stdin(&file) {
            print(&formatted)?;
        } else if differs {
            replace(&file, &formatted)?;
            stderr::line(&visible::visible(&source.name));
        }
    }
    match differing {
        _ if refused => Err(CommandError::Diagnosed),
        0 => Ok(()),
        1 => Err(CommandError::Failed("1 file is not formatted; run `pl-host fmt`".to_owned())),
        many => Err(CommandError::Failed(format!("{many} files are not formatted; run `pl-host fmt`"))),
    }
}

/// Formats a workflow that was made from a template: names of another length need other alignment.
pub fn format_generated(file: &Path) -> CommandResult {
    match pl_dsl::format(&read(file)?.text) {
        Ok(formatted) => replace(file, &formatted),
        Err(_) => Err(CommandError::failed(format!("{} can't be formatted", file.display()))),
    }
}

fn is_stdin(file: &Path) -> bool {
    file.as_os_str() == "-"
}

/// Returns the files, and for each folder the workflows directly in it. Those in subfolders may belong to
/// runs, whose text must not change.
fn expand_folders(given: &[PathBuf]) -> Result<Vec<PathBuf>, CommandError> {
    let mut files = Vec::new();
    for path in given {
        if is_stdin(path) || !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let cannot = |e: std::io::Error| CommandError::input(format!("cannot read {}: {e}", path.display()));
        let mut inside = Vec::new();
        for entry in std::fs::read_dir(path).map_err(cannot)? {
            let file = entry.map_err(cannot)?.path();
            if file.is_file() && file.extension().is_some_and(|extension| extension == "mas") {
                inside.push(file);
            }
        }
        inside.sort();
        files.extend(inside);
    }
    Ok(files)
}

fn read(file: &Path) -> Result<Source, CommandError> {
    let (name, text) = if is_stdin(file) {
        let mut text = String::new();
        ("<stdin>".to_owned(), std::io::stdin().read_to_string(&mut text).map(|_| text))
    } else {
        (file.display().to_string(), pl_dsl::read_text(file).map_err(std::io::Error::from))
    };
    match text {
        Ok(text) => Ok(Source { name, text }),
        Err(e) => Err(CommandError::input(format!("cannot read {name}: {e}"))),
    }
}

/// Replaces the text of a file as a whole. A symbolic link stays one, and the file keeps its permissions.
fn replace(file: &Path, text: &str) -> CommandResult {
    let cannot = |e: std::io::Error| CommandError::failed(format!("cannot write {}: {e}", file.display()));
    let file = std::fs::canonicalize(file).map_err(cannot)?;
    pl_record::write_atomically(&file, text.as_bytes()).map_err(CommandError::failed)
}

fn print(text: &str) -> CommandResult {
    let mut out = visible::stdout();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// Returns the difference between a file and its formatted text, in the form of `diff -u`.
fn diff(source: &Source, formatted: &str) -> String {
    let diff = TextDiff::from_lines(source.text.as_str(), formatted);
    let name = source.name.as_str();
    let unified = diff.unified_diff().context_radius(CONTEXT).header(name, "formatted").to_string();
    let mut shown = String::new();
    let mut lines = unified.lines();
    for line in lines.by_ref().take(LONGEST_DIFF) {
        // Writing to a string never fails.
        let _ = writeln!(shown, "{line}");
    }
    let more = lines.count();
    if more > 0 {
        let _ = writeln!(shown, "… and {more} more lines");
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNTIDY: &str = "workflow  x\ntrain{steps=3}\n";
    const TIDY: &str = "workflow x\ntrain { steps = 3 }\n";

    fn fmt(files: &[&Path], check: bool) -> CommandResult {
        run(&FmtArgs { files: files.iter().map(|file| file.to_path_buf()).collect(), check })
    }

    #[test]
    fn files_and_folders_are_rewritten_if_they_differ() {
        let folder = tempfile::tempdir().unwrap();
        let [a, b, other, below] =
            ["a.mas", "b.mas", "c.txt", "runs/d.mas"].map(|name| folder.path().join(name));
        std::fs::create_dir(folder.path().join("runs")).unwrap();
        for file in [&a, &b, &other, &below] {
            std::fs::write(file, UNTIDY).unwrap();
        }
        assert!(
            matches!(fmt(&[folder.path()], true), Err(CommandError::Failed(why)) if why.starts_with("2 files"))
        );
        assert_eq!(std::fs::read_to_string(&a).unwrap(), UNTIDY, "a check writes nothing");
        fmt(&[folder.path()], false).unwrap();
        let read = |file: &Path| std::fs::read_to_string(file).unwrap();
        assert_eq!([read(&a), read(&b)], [TIDY, TIDY]);
        assert_eq!([read(&other), read(&below)], [UNTIDY, UNTIDY]);
        fmt(&[folder.path()], true).unwrap();
    }

    #[test]
    fn a_file_that_can_not_be_formatted_stays_and_the_others_are_formatted() {
        let folder = tempfile::tempdir().unwrap();
        let [broken, fine] = ["a.mas", "b.mas"].map(|name| folder.path().join(name));
        std::fs::write(&broken, "train {").unwrap();
        std::fs::write(&fine, UNTIDY).unwrap();
        assert!(matches!(fmt(&[&broken, &fine], false), Err(CommandError::Diagnosed)));
        assert_eq!(std::fs::read_to_string(&broken).unwrap(), "train {");
        assert_eq!(std::fs::read_to_string(&fine).unwrap(), TIDY);
        let missing = folder.path().join("c.mas");
        assert!(matches!(fmt(&[&missing], false), Err(CommandError::Input(_))));
        let endless = fmt(&[Path::new("/dev/zero")], false);
        assert!(matches!(endless, Err(CommandError::Input(why)) if why.contains("it is not a file")));
    }

    /// Permissions of a file, and a link to it, are the same afterwards.
    #[cfg(unix)]
    #[test]
    fn permissions_and_links_stay() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let folder = tempfile::tempdir().unwrap();
        let [file, link] = ["a.mas", "link.mas"].map(|name| folder.path().join(name));
        std::fs::write(&file, UNTIDY).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o664)).unwrap();
        symlink(&file, &link).unwrap();
        fmt(&[&link], false).unwrap();
        assert!(link.is_symlink());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), TIDY);
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o664);
    }

    #[test]
    fn a_long_difference_is_cut() {
        let source = Source { name: "x.mas".to_owned(), text: UNTIDY.to_owned() };
        let shown = diff(&source, TIDY);
        assert_eq!(
            shown,
            "--- x.mas\n+++ formatted\n@@ -1,2 +1,2 @@\n-workflow  x\n-train{steps=3}\n+workflow x\n+train { steps = 3 }\n"
        );
        let source = Source { text: UNTIDY.repeat(100), ..source };
        let long = diff(&source, &TIDY.repeat(100));
        assert_eq!(long.lines().count(), LONGEST_DIFF + 1);
        assert!(long.ends_with("more lines\n"), "{long}");
    }
}
