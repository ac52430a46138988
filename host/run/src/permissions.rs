//! Permissions: the files, addresses and environment variables beyond its own folder that a workflow may use.
//!
//! A workflow may come from anywhere. It reads its own folder freely; [`PermissionRequest`]s are everything else that it
//! names. The user allows them by flags, at the terminal, or by naming them on the command line.

mod access;
mod granted_access;
mod network;
mod path;
mod permission_request;
mod read_policy;

pub use access::{Access, AccessKind, InvalidHost, InvalidVariable};
pub use permission_request::{ListedValue, PermissionRequest, flags, one_line, split_list};

pub(crate) use granted_access::GrantedAccess;
pub(crate) use path::lexical;
pub(crate) use permission_request::flags_of;
pub(crate) use read_policy::{OpenError, ReadPolicy};

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;

/// Access that the user has allowed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Permissions {
    /// Kinds of which everything is allowed.
    all: BTreeSet<AccessKind>,
    listed: BTreeSet<Access>,
}

impl Permissions {
    /// Returns permissions for everything, for workflows that the user has written.
    pub fn all() -> Permissions {
        let all = [AccessKind::Read, AccessKind::Net, AccessKind::Env].into();
        Permissions { all, listed: BTreeSet::new() }
    }

    /// Allows all access of a kind.
    pub fn allow_all(&mut self, kind: AccessKind) {
        self.all.insert(kind);
    }

    /// Allows an access: of a folder, to all below it; of a host without a port, to all of its ports.
    pub fn allow(&mut self, access: Access) {
        self.listed.insert(access);
    }

    /// Returns true if an access is allowed.
    pub fn allows(&self, wanted: &Access) -> bool {
        self.all.contains(&wanted.kind()) || self.listed.iter().any(|allowed| allowed.covers(wanted))
    }
}

/// Permissions that several owners share, and that grow when the user answers a question.
#[derive(Debug, Clone, Default)]
pub struct SharedPermissions(Arc<Mutex<Permissions>>);

impl SharedPermissions {
    /// Allows further access.
    pub fn allow(&self, more: impl IntoIterator<Item = Access>) {
        let mut own = self.0.lock();
        more.into_iter().for_each(|access| own.allow(access));
    }

    /// Returns true if an access is allowed.
    pub fn allows(&self, wanted: &Access) -> bool {
        self.0.lock().allows(wanted)
    }
}

impl From<Permissions> for SharedPermissions {
    fn from(permissions: Permissions) -> SharedPermissions {
        SharedPermissions(Arc::new(Mutex::new(permissions)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_listed_is_allowed() {
        let folder = tempfile::tempdir().unwrap();
        let mut permissions = Permissions::default();
        permissions.allow(Access::read(folder.path()));
        permissions.allow(Access::net("api.example.org"));
        permissions.allow(Access::net("localhost:8000"));
        permissions.allow(Access::Env("KEY".to_owned()));
        let read = |name: &str| permissions.allows(&Access::read(&folder.path().join(name)));
        assert!(read("") && read("a/b"));
        assert!(!read("..") && !read("../other") && !read("a/../../b"));
        let net = |address: &str| permissions.allows(&Access::net(address));
        assert!(
            net("https://api.example.org/v1") && net("api.example.org:8443") && net("http://localhost:8000")
        );
        assert!(
            !net("http://localhost:8001") && !net("https://example.org") && !net("https://xapi.example.org")
        );
        let env = |name: &str| permissions.allows(&Access::Env(name.to_owned()));
        assert!(env("KEY") && !env("KEY2") && !env("key"));
        permissions.allow_all(AccessKind::Net);
        assert!(permissions.allows(&Access::net("http://10.0.0.1")));
        assert!(!permissions.allows(&Access::read(folder.path().parent().unwrap())));
    }

    #[test]
    fn a_folder_of_a_similar_name_is_another_one() {
        let folder = tempfile::tempdir().unwrap();
        let mut permissions = Permissions::default();
        permissions.allow(Access::read(&folder.path().join("data")));
        assert!(!permissions.allows(&Access::read(&folder.path().join("data-private/x"))));
    }
}
