//! Ranks of a learner in processes of their own: how they find each other and sum their gradients.

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use pl_cluster::{RankError, RankGroup, RankSettings, ServerAddress};
use pl_kernels::cuda::nccl::{self, Communicator};
use pl_kernels::cuda::opened;
use pl_trainer::CollectiveError;
use pl_trainer::data_parallel::Collective;
use serde::{Deserialize, Serialize};
use tch::{Device, Tensor};

use crate::error::Error;
use crate::error::cluster::ClusterError;
use crate::host::Host;
use crate::progress::Notice;

use super::message;
use super::update_task::{History, LARGEST};

/// Pause before a rank looks for a new group.
const PAUSE: Duration = Duration::from_millis(200);

/// Place of a process among the ranks of a learner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankPlace {
    pub rank: usize,
    /// Address that rank 0 listens at, `HOST:PORT`.
    pub leader: String,
}

/// Work that rank 0 has all ranks do.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum RankTask {
    /// The updates of a history that the state lacks; all of them if `anew`.
    CatchUp { history: History, anew: bool },
    /// To leave: the run has ended.
    Leave,
}

/// The ranks of a learner, as one of them sees them.
pub(super) struct Ranks {
    pub place: RankPlace,
    settings: RankSettings,
    device: Device,
    /// Rank 0's.
    listener: Option<TcpListener>,
    /// `None` before it is formed, and after a rank has gone.
    group: Option<Arc<RankGroup>>,
}

impl Ranks {
    /// Takes a place among the ranks of a learner, `name`, of which there are `count`.
    ///
    /// # Errors
    /// If there is no such place, or rank 0 can't listen.
    pub fn new(
        place: &RankPlace,
        (name, count): (String, u32),
        address: &ServerAddress,
        device: Device,
    ) -> Result<Ranks, Error> {
        let (rank, ranks) = (place.rank, count as usize);
        if ranks < 2 || rank >= ranks {
            return Err(Error::cluster(ClusterError::NoSuchRank { rank, ranks }));
        }
        let listener =
            (rank == 0).then(|| pl_cluster::listen(&place.leader)).transpose().map_err(Error::cluster)?;
        let settings = RankSettings { ranks, name, secret: secret(address)? };
        Ok(Ranks { place: place.clone(), settings, device, listener, group: None })
    }

    /// Returns true if all ranks are connected.
    pub fn are_connected(&self) -> bool {
        self.group.is_some()
    }

    /// Waits for all ranks. Returns how this one sums with the others, or `None` once `is_over`.
    ///
    /// # Errors
    /// If rank 0 refuses this one.
    pub fn connect(
        &mut self,
        host: &Host,
        is_over: &dyn Fn() -> bool,
    ) -> Result<Option<Arc<dyn Collective>>, Error> {
        self.group = None;
        let mut waiting = |missing: &[usize]| {
            if !missing.is_empty() {
                host.notify(Notice::WaitingForRanks { missing: missing.to_vec() });
            }
        };
        while !is_over() {
            let group = match &self.listener {
                Some(listener) => RankGroup::lead(listener, &self.settings, &mut waiting, is_over),
                None => RankGroup::join(&self.place.leader, self.place.rank, &self.settings, is_over),
            };
            let connected = match group {
                Ok(Some(group)) => self.collective(group, host),
                Ok(None) => return Ok(None),
                Err(error) => Err(error),
            };
            match connected {
                Ok(collective) => return Ok(Some(collective)),
                Err(error @ RankError::Away { .. }) => {
                    tracing::debug!(%error, "the ranks are not all there");
                    std::thread::sleep(PAUSE);
                }
                Err(error) => return Err(Error::cluster(error)),
            }
        }
        Ok(None)
    }

    /// Agrees with the other ranks on how gradients are summed: by NCCL if each has a GPU of its own.
    fn collective(&mut self, group: RankGroup, host: &Host) -> Result<Arc<dyn Collective>, RankError> {
        let group = Arc::new(group);
        let own = opened(self.device).filter(|_| nccl::is_loaded()).and_then(|kernels| kernels.uuid().ok());
        let mut uuids = group.gather(own.as_ref().map_or(&[], <[u8; 16]>::as_slice))?;
        uuids.sort_unstable();
        uuids.dedup();
        let by_nccl = uuids.len() == group.ranks() && uuids.iter().all(|uuid| !uuid.is_empty());
        let mut communicator = None;
        if by_nccl {
            let id = if group.rank() == 0 {
                nccl::unique_id().map_or_else(|_| Vec::new(), Vec::from)
            } else {
                Vec::new()
            };
            let ids = group.gather(&id)?;
            if let Ok(id) = <&[u8; nccl::ID_BYTES]>::try_from(ids[0].as_slice()) {
                let joined = Communicator::join(self.device, id, group.rank(), group.ranks());
                communicator = joined.map_err(|error| tracing::warn!(%error, "NCCL is not used")).ok();
            }
            // One that failed alone would leave the others waiting.
            let all = group.gather(&[u8::from(communicator.is_some())])?;
            communicator = communicator.filter(|_| all.iter().all(|own| own == &[1]));
        }
        if self.device.is_cuda() && communicator.is_none() {
            tracing::warn!("gradients are summed by the processors: NCCL needs a GPU for each rank");
        }
        host.notify(Notice::RanksConnected { ranks: group.ranks(), nccl: communicator.is_some() });
        self.group = Some(Arc::clone(&group));
        Ok(Arc::new(ConnectedRank { group, communicator }))
    }

    /// Gives the group up, so that the other ranks look for a new one.
    pub fn disconnect(&mut self) {
        self.group = None;
    }

    /// Has all other ranks do something, as rank 0.
    ///
    /// # Errors
    /// If one is away.
    pub fn announce(&self, task: &RankTask) -> Result<(), Error> {
        let Some(group) = &self.group else { return Ok(()) };
        let message = message::pack("a task of ranks", task).map_err(Error::cluster)?;
        group.announce(&message).map_err(Error::cluster)
    }

    /// Waits for the next task from rank 0. Returns `None` if `is_over`.
    ///
    /// # Errors
    /// If it is away.
    pub fn next(&self, is_over: &dyn Fn() -> bool) -> Result<Option<RankTask>, Error> {
        let Some(group) = &self.group else { return Ok(None) };
        let message = group.await_announcement(is_over).map_err(Error::cluster)?;
        let decode = |bytes: Vec<u8>| message::unpack("a task of ranks", &bytes, LARGEST);
        message.map(decode).transpose().map_err(Error::cluster)
    }
}

/// Secret that all processes of a learner know: their credentials for the server.
fn secret(address: &ServerAddress) -> Result<Vec<u8>, Error> {
    let credentials = address.read_credentials().map_err(Error::cluster)?;
    Ok(match credentials {
        Some(bytes) => bytes.trim_ascii().to_vec(),
        None => address.token.clone().unwrap_or_default().into_bytes(),
    })
}

/// A rank that is connected to all others.
#[derive(Debug)]
struct ConnectedRank {
    group: Arc<RankGroup>,
    /// `None` if numbers pass through the processors.
    communicator: Option<Communicator>,
}

impl Collective for ConnectedRank {
    fn rank(&self) -> usize {
        self.group.rank()
    }

    fn ranks(&self) -> usize {
        self.group.ranks()
    }

    fn gather(&self, own: Vec<u8>) -> Result<Vec<Vec<u8>>, CollectiveError> {
        self.group.gather(&own).map_err(lost)
    }

    fn sum(&self, numbers: &mut Tensor) -> Result<(), CollectiveError> {
        if let Some(communicator) = &self.communicator {
            let failed = |error: pl_kernels::cuda::Error| CollectiveError::Nccl { reason: error.to_string() };
            return communicator.sum(numbers).map_err(failed);
        }
        let mut own = Vec::<f32>::try_from(&numbers.f_to_device(Device::Cpu)?)?;
        self.group.sum(&mut own).map_err(lost)?;
        Ok(numbers.f_copy_(&Tensor::f_from_slice(&own)?)?)
    }
}

fn lost(error: RankError) -> CollectiveError {
    match error {
        RankError::Away { rank, source } => CollectiveError::Away { rank, source },
        other => CollectiveError::Away { rank: 0, source: std::io::Error::other(other) },
    }
}
