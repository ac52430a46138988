//! Arguments that let a workflow use more of the machine than its own folder.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use clap::Args;
use pl_run::{Access, AccessKind, ListedValue, Permissions, split_list};

use crate::exit::CommandError;

/// Heading in the help, of these arguments alone: as that of all that follow, it would be above options of commands, too.
const HEADING: &str = "Permissions";

/// Access beyond the workflow's folder. Environment variables allow more: `PL_HOST_ALLOW_READ`, `PL_HOST_ALLOW_NET`,
/// `PL_HOST_ALLOW_ENV`. Values have commas between them; a backslash before a comma or `*` makes it a part of a value.
#[derive(Args, Clone, Default)]
pub struct PermissionArgs {
    /// Allow the workflow to read these files and folders outside of its own folder. Without a value, any file.
    /// Added to `PL_HOST_ALLOW_READ`
    #[arg(long, value_name = "PATH,…", num_args = 0..=1, require_equals = true, help_heading = HEADING)]
    pub allow_read: Option<Vec<OsString>>,
    /// Allow the workflow to connect to these hosts, as HOST or HOST:PORT. Without a value, any host. Added to
    /// `PL_HOST_ALLOW_NET`
    #[arg(long, value_name = "HOST,…", num_args = 0..=1, require_equals = true, help_heading = HEADING)]
    pub allow_net: Option<Vec<OsString>>,
    /// Allow the workflow to use the keys in these environment variables. Without a value, any variable. Added to
    /// `PL_HOST_ALLOW_ENV`
    #[arg(long, value_name = "NAME,…", num_args = 0..=1, require_equals = true, help_heading = HEADING)]
    pub allow_env: Option<Vec<OsString>>,
}

impl PermissionArgs {
    /// Returns what the flags and the environment allow.
    ///
    /// # Errors
    /// If a host or the name of a variable is invalid.
    pub fn permissions(&self) -> Result<Permissions, CommandError> {
        let mut permissions = Permissions::default();
        for (kind, flag, variable) in [
            (AccessKind::Read, &self.allow_read, "PL_HOST_ALLOW_READ"),
            (AccessKind::Net, &self.allow_net, "PL_HOST_ALLOW_NET"),
            (AccessKind::Env, &self.allow_env, "PL_HOST_ALLOW_ENV"),
        ] {
            if flag.as_ref().is_some_and(Vec::is_empty) {
                permissions.allow_all(kind);
            }
            let of_environment = std::env::var_os(variable).map(|list| (variable, list));
            let of_flag = flag.iter().flatten().map(|list| (kind.flag(), list.clone()));
            for (source, list) in of_flag.chain(of_environment) {
                for value in split_list(list.as_bytes()) {
                    allow(&mut permissions, kind, source, &value)?;
                }
            }
        }
        Ok(permissions)
    }
}

fn allow(
    permissions: &mut Permissions,
    kind: AccessKind,
    source: &str,
    value: &ListedValue,
) -> Result<(), CommandError> {
    let ListedValue::One(value) = value else {
        permissions.allow_all(kind);
        return Ok(());
    };
    let text = String::from_utf8_lossy(value);
    let invalid = |problem: String| CommandError::input(format!("{source}: {problem}"));
    permissions.allow(match kind {
        // Paths need not be UTF-8.
        AccessKind::Read => Access::read(Path::new(OsStr::from_bytes(value))),
        AccessKind::Net => Access::parse_host(&text).map_err(|error| invalid(error.to_string()))?,
        AccessKind::Env => Access::parse_variable(&text).map_err(|error| invalid(error.to_string()))?,
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        own: PermissionArgs,
        file: Option<String>,
    }

    fn parse(arguments: &[&str]) -> (Permissions, Option<String>) {
        let flags = Flags::parse_from(std::iter::once(&"pl-host").chain(arguments));
        (flags.own.permissions().unwrap(), flags.file)
    }

    #[test]
    fn flags_allow_what_they_list_or_all() {
        let (listed, _) = parse(&["--allow-read=/a,/b", "--allow-net=a.org", "--allow-net=b.org:8080"]);
        for allowed in ["/a", "/b/c"] {
            assert!(listed.allows(&Access::read(Path::new(allowed))), "{allowed}");
        }
        assert!(!listed.allows(&Access::read(Path::new("/c"))));
        assert!(listed.allows(&Access::net("https://a.org")) && listed.allows(&Access::net("b.org:8080")));
        assert!(!listed.allows(&Access::net("https://b.org")));
        assert!(!listed.allows(&Access::Env("KEY".to_owned())));
        for all in ["--allow-env", "--allow-env=*"] {
            let (permissions, file) = parse(&[all, "a.mas"]);
            assert!(permissions.allows(&Access::Env("KEY".to_owned())), "{all}");
            assert!(!permissions.allows(&Access::net("https://a.org")));
            assert_eq!(file.as_deref(), Some("a.mas"));
        }
    }

    #[test]
    fn only_permissions_stand_under_their_heading() {
        let mut command = crate::arguments::Arguments::command();
        command.build();
        let mut under = std::collections::BTreeSet::new();
        for command in command.get_subcommands() {
            let listed = command.get_arguments().filter(|one| one.get_help_heading() == Some(HEADING));
            under.extend(listed.map(|argument| argument.get_id().to_string()));
        }
        assert_eq!(
            under.iter().map(String::as_str).collect::<Vec<_>>(),
            ["allow_env", "allow_net", "allow_read"]
        );
    }

    #[test]
    fn a_comma_of_a_name_allows_nothing_else() {
        let (listed, _) = parse(&["--allow-read=/a\\,\\*,/b"]);
        assert!(
            listed.allows(&Access::read(Path::new("/a,*"))) && listed.allows(&Access::read(Path::new("/b")))
        );
        assert!(
            !listed.allows(&Access::read(Path::new("/a"))) && !listed.allows(&Access::read(Path::new("/c")))
        );
    }

    #[test]
    fn hosts_and_variables_that_nothing_would_match_are_errors() {
        for wrong in
            ["--allow-net=a.org/v1", "--allow-net=a.org,*.b.org", "--allow-env=A=B", "--allow-env=\\*"]
        {
            let flags = Flags::parse_from(["pl-host", wrong]);
            let error = format!("{:?}", flags.own.permissions().unwrap_err());
            assert!(error.contains("--allow-"), "{error}");
        }
    }
}
