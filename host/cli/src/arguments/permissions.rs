//! Arguments that let a workflow use more of the machine than its own folder.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use clap::Args;
use pl_run::{Access, AccessKind, Permissions};

/// Value that stands for everything.
const ALL: &str = "*";

/// Access beyond the workflow's folder. Environment variables allow more: `PL_HOST_ALLOW_READ`, `PL_HOST_ALLOW_NET`,
/// `PL_HOST_ALLOW_ENV`.
#[derive(Args, Clone, Default)]
#[command(next_help_heading = "Permissions")]
pub struct PermissionArgs {
    /// Allow the workflow to read these files and folders outside of its own folder; any without a value.
    /// PL_HOST_ALLOW_READ has more
    #[arg(long, value_name = "PATH,…", num_args = 0..=1, require_equals = true, value_delimiter = ',')]
    pub allow_read: Option<Vec<OsString>>,
    /// Allow the workflow to connect to these hosts, as HOST or HOST:PORT; any without a value. PL_HOST_ALLOW_NET has
    /// more
    #[arg(long, value_name = "HOST,…", num_args = 0..=1, require_equals = true, value_delimiter = ',')]
    pub allow_net: Option<Vec<OsString>>,
    /// Allow the workflow to use the keys in these environment variables; in any without a value. PL_HOST_ALLOW_ENV has
    /// more
    #[arg(long, value_name = "NAME,…", num_args = 0..=1, require_equals = true, value_delimiter = ',')]
    pub allow_env: Option<Vec<OsString>>,
}

impl PermissionArgs {
    /// Returns what the flags and the environment allow.
    pub fn permissions(&self) -> Permissions {
        let mut permissions = Permissions::default();
        for (kind, flag, variable) in [
            (AccessKind::Read, &self.allow_read, "PL_HOST_ALLOW_READ"),
            (AccessKind::Net, &self.allow_net, "PL_HOST_ALLOW_NET"),
            (AccessKind::Env, &self.allow_env, "PL_HOST_ALLOW_ENV"),
        ] {
            if flag.as_ref().is_some_and(Vec::is_empty) {
                permissions.allow_all(kind);
            }
            let of_environment = std::env::var_os(variable).unwrap_or_default();
            let of_environment = of_environment.as_bytes().split(|byte| *byte == b',');
            // Paths need not be UTF-8.
            let of_environment = of_environment.map(OsStr::from_bytes);
            let values = flag.iter().flatten().map(OsString::as_os_str).chain(of_environment);
            values.for_each(|value| allow(&mut permissions, kind, value));
        }
        permissions
    }
}

fn allow(permissions: &mut Permissions, kind: AccessKind, value: &OsStr) {
    let text = value.to_string_lossy();
    match (kind, text.trim()) {
        (_, "") => {}
        (_, ALL) => permissions.allow_all(kind),
        (AccessKind::Read, _) => permissions.allow(Access::read(Path::new(value))),
        (AccessKind::Net, address) => permissions.allow(Access::net(address)),
        (AccessKind::Env, name) => permissions.allow(Access::Env(name.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        own: PermissionArgs,
        file: Option<String>,
    }

    fn parse(arguments: &[&str]) -> (Permissions, Option<String>) {
        let flags = Flags::parse_from(std::iter::once(&"pl-host").chain(arguments));
        (flags.own.permissions(), flags.file)
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
}
