//! Roles of the connections to a server, and what each may do there.

use std::fmt;

/// Role of a connection. A server may let roles do different things: see [`ServerConfig`](crate::ServerConfig).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Coordinates runs, and asks for their status.
    Coordinator,
    /// Plays tasks.
    Worker,
    /// Trains policies.
    Learner,
    /// Runs jobs: the code that models write.
    Sandbox,
}

impl Role {
    /// All roles, in the order of a configuration.
    pub const ALL: [Role; 4] = [Role::Coordinator, Role::Worker, Role::Learner, Role::Sandbox];

    /// Prefix of the subjects of answers to this role. A worker that listened to the others' could answer for the server.
    pub(crate) fn inbox(self) -> &'static str {
        match self {
            Role::Coordinator => "_INBOX_pl_run",
            Role::Worker => "_INBOX_pl_worker",
            Role::Learner => "_INBOX_pl_learner",
            Role::Sandbox => "_INBOX_pl_sandbox",
        }
    }

    /// Name of the file with its credentials.
    pub fn credentials_file(self) -> &'static str {
        match self {
            Role::Coordinator => "run.nk",
            Role::Worker => "worker.nk",
            Role::Learner => "learner.nk",
            Role::Sandbox => "sandbox.nk",
        }
    }

    /// Name of its account on the server.
    pub(crate) fn account(self) -> &'static str {
        match self {
            Role::Coordinator => "RUNS",
            Role::Worker => "WORKERS",
            Role::Learner => "LEARNERS",
            Role::Sandbox => "SANDBOXES",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Role::Coordinator => "coordinators (run.nk)",
            Role::Worker => "workers (worker.nk)",
            Role::Learner => "learners (learner.nk)",
            Role::Sandbox => "sandbox machines (sandbox.nk)",
        })
    }
}
