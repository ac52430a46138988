//! Kinds of access beyond the folder of a workflow.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::network::{covers, host_and_port};
use super::path::resolve;

/// Kind of access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AccessKind {
    /// Reading files and folders.
    Read,
    /// Connections to hosts.
    Net,
    /// Environment variables.
    Env,
}

impl AccessKind {
    /// Returns the flag that allows access of the kind.
    pub fn flag(self) -> &'static str {
        match self {
            AccessKind::Read => "--allow-read",
            AccessKind::Net => "--allow-net",
            AccessKind::Env => "--allow-env",
        }
    }
}

/// Access beyond the folder of a workflow.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// A file, or a folder with all below it. The path is absolute, without links.
    Read(PathBuf),
    /// `HOST:PORT`, `HOST` for all of its ports, or the address of a Unix socket (`unix:///…`).
    Net(String),
    /// Name of an environment variable.
    Env(String),
}

impl Access {
    /// Returns the access to a path, which may be missing. A relative one is of the working folder.
    pub fn read(path: &Path) -> Access {
        Access::Read(resolve(path))
    }

    /// Returns the access to an address: a URL, `HOST:PORT`, or `HOST` for all of its ports.
    pub fn net(address: &str) -> Access {
        Access::Net(host_and_port(address))
    }

    pub fn kind(&self) -> AccessKind {
        match self {
            Access::Read(_) => AccessKind::Read,
            Access::Net(_) => AccessKind::Net,
            Access::Env(_) => AccessKind::Env,
        }
    }

    /// Returns the value of the flag that allows the access.
    pub fn value(&self) -> String {
        match self {
            Access::Read(path) => path.display().to_string(),
            Access::Net(text) | Access::Env(text) => text.clone(),
        }
    }

    /// Returns true if a permission for this access is one for `wanted`.
    pub(super) fn covers(&self, wanted: &Access) -> bool {
        match (self, wanted) {
            (Access::Read(allowed), Access::Read(wanted)) => wanted.starts_with(allowed),
            (Access::Net(allowed), Access::Net(wanted)) => covers(allowed, wanted),
            (Access::Env(allowed), Access::Env(wanted)) => allowed == wanted,
            _ => false,
        }
    }
}

/// Form of `lock.json`: `read PATH`, `net HOST:PORT`, `env NAME`.
impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind() {
            AccessKind::Read => "read",
            AccessKind::Net => "net",
            AccessKind::Env => "env",
        };
        write!(f, "{kind} {}", self.value())
    }
}

/// Text that is not the form of an access in `lock.json`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a permission")]
pub struct InvalidAccess(String);

impl FromStr for Access {
    type Err = InvalidAccess;

    fn from_str(text: &str) -> Result<Access, InvalidAccess> {
        match text.split_once(' ') {
            Some(("read", path)) if Path::new(path).is_absolute() => Ok(Access::Read(path.into())),
            Some(("net", address)) => Ok(Access::Net(address.to_owned())),
            Some(("env", name)) => Ok(Access::Env(name.to_owned())),
            _ => Err(InvalidAccess(text.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_access_is_read_as_it_was_written() {
        let all =
            [Access::Read("/data/a b".into()), Access::net("https://a.org"), Access::Env("KEY".to_owned())];
        for access in all {
            assert_eq!(access.to_string().parse::<Access>().unwrap(), access);
        }
        for wrong in ["", "read", "read relative", "write /x"] {
            assert!(wrong.parse::<Access>().is_err(), "{wrong}");
        }
    }
}
