//! Events of fleets.

use std::sync::Arc;

/// Receiver of a fleet's events.
pub(crate) type Observer = Arc<dyn Fn(FleetEvent) + Send + Sync>;

/// Change of a fleet that a person should know of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FleetEvent {
    /// A server failed several times in a row. It gets single requests until one succeeds.
    ServerDown {
        /// Address of the server.
        server: String,
        reason: String,
    },
    /// A server that was down works again.
    ServerBack {
        /// Address of the server.
        server: String,
    },
    /// No server works: requests wait.
    Paused {
        /// Name of the fleet.
        fleet: String,
        /// Latest failure.
        reason: String,
    },
    /// A server of a paused fleet works again.
    Resumed {
        /// Name of the fleet.
        fleet: String,
    },
}
