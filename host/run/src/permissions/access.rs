//! Kinds of access beyond the folder of a workflow.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::network::{covers, host_and_port, is_host};
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

    /// Parses a host that the user allows: `HOST`, `HOST:PORT`, a URL, or `unix:///PATH`.
    ///
    /// # Errors
    /// If the text has another form, which no address of a workflow would match.
    pub fn parse_host(text: &str) -> Result<Access, InvalidHost> {
        let address = host_and_port(text);
        if is_host(&address) { Ok(Access::Net(address)) } else { Err(InvalidHost(text.to_owned())) }
    }

    /// Parses the name of an environment variable that the user allows.
    ///
    /// # Errors
    /// If it is not one that a workflow can name.
    pub fn parse_variable(text: &str) -> Result<Access, InvalidVariable> {
        if pl_dsl::is_variable(text) {
            Ok(Access::Env(text.to_owned()))
        } else {
            Err(InvalidVariable(text.to_owned()))
        }
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

/// Text that is not a host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a host: write HOST, HOST:PORT or unix:///PATH")]
pub struct InvalidHost(String);

/// Text that is not the name of an environment variable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not the name of an environment variable: it has letters, digits and `_`")]
pub struct InvalidVariable(String);

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
    fn what_no_address_would_match_is_no_host() {
        for host in [
            "a.org",
            "A.org:443",
            "https://a.org/v1",
            "[::1]",
            "[::1]:80",
            "10.0.0.1:1",
            "unix:///run/d.sock",
        ] {
            assert!(Access::parse_host(host).is_ok(), "{host}");
        }
        for wrong in [
            "a.org/v1",
            "a.org:",
            "a.org:http",
            "a.org:99999",
            "a,b",
            "*.org",
            "::1",
            "http://",
            "a b",
            "a?x",
        ] {
            assert!(Access::parse_host(wrong).is_err(), "{wrong}");
        }
        assert!(Access::parse_variable("MY_KEY2").is_ok());
        for wrong in ["", "2KEY", "A,B", "A=B", "A\nB"] {
            assert!(Access::parse_variable(wrong).is_err(), "{wrong}");
        }
    }

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
