//! Ranks of a learner, which speak to each other directly: gradients are too large for a server of messages.
//!
//! Rank 0 leads. It listens at an address that the others know, waits for all of them, and tells each where the others listen;
//! then every pair has a connection. Both ends of a connection prove that they know a secret. What they send afterwards is
//! neither signed nor encrypted. A group that has lost a rank is of no use any more: a new one is formed.

mod handshake;
mod wire;

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use self::handshake::Hello;
use self::wire::{read_message, write_message};

/// Pause before a rank looks again for others, or for the end of its wait.
const PAUSE: Duration = Duration::from_millis(100);

/// Longest time that the two sides of a new connection take to prove who they are.
const LONGEST_HANDSHAKE: Duration = Duration::from_secs(10);

/// Handshakes of connections to a rank at a time. More connections wait.
const MOST_HANDSHAKES: usize = 64;

/// Bytes of a number on a connection.
const NUMBER: usize = size_of::<f32>();

/// Failure of a group.
#[derive(Debug, thiserror::Error)]
pub enum RankError {
    /// A rank has gone, or uses another protocol.
    #[error("rank {rank} is away: {source}")]
    Away { rank: usize, source: io::Error },
    /// Rank 0 can't listen.
    #[error("rank 0 cannot listen at {address}: {source}; name an address of this machine")]
    Listen { address: String, source: io::Error },
    /// Rank 0 has refused this rank.
    #[error("rank 0 at {address} refuses this rank: {reason}")]
    Refused { address: String, reason: String },
}

/// Settings that all ranks of a group have in common.
#[derive(Debug, Clone)]
pub struct RankSettings {
    /// Number of ranks.
    pub ranks: usize,
    /// The run and the learner.
    pub name: String,
    /// Secret that all ranks know. Empty without one.
    pub secret: Vec<u8>,
}

/// A rank's connections to the others.
#[derive(Debug)]
pub struct RankGroup {
    rank: usize,
    /// By rank. `None` for this one.
    peers: Vec<Option<TcpStream>>,
}

/// Message of rank 0 to the others when all are there.
#[derive(Debug, Serialize, Deserialize)]
struct Members {
    /// Digits of this group alone, so that a connection to an earlier one is refused.
    group: String,
    /// Address that each rank listens at. Rank 0 is connected already.
    addresses: Vec<SocketAddr>,
}

/// Listens at an address, for [`RankGroup::lead`].
///
/// # Errors
/// If the address belongs to another machine, or is taken.
pub fn listen(address: &str) -> Result<TcpListener, RankError> {
    let listener = TcpListener::bind(address).and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    listener.map_err(|source| RankError::Listen { address: address.to_owned(), source })
}

impl RankGroup {
    /// Waits for all other ranks as rank 0. `waiting` is called with the numbers of those that are missing whenever they change.
    /// `None` once `is_over` says that there is nothing to wait for.
    ///
    /// # Errors
    /// If a rank goes while the group is formed.
    pub fn lead(
        listener: &TcpListener,
        settings: &RankSettings,
        waiting: &mut dyn FnMut(&[usize]),
        is_over: &dyn Fn() -> bool,
    ) -> Result<Option<RankGroup>, RankError> {
        let mut joined: Vec<Option<(TcpStream, SocketAddr)>> = (0..settings.ranks).map(|_| None).collect();
        let missing = |joined: &[Option<(TcpStream, SocketAddr)>]| -> Vec<usize> {
            (1..joined.len()).filter(|&rank| joined[rank].is_none()).collect()
        };
        waiting(&missing(&joined));
        let handshakes = Handshakes::new(listener, settings.clone());
        while !missing(&joined).is_empty() {
            if is_over() {
                return Ok(None);
            }
            match handshakes.next() {
                // The newest process of a rank counts: an earlier one may have gone.
                Some((stream, hello, peer)) if (1..settings.ranks).contains(&hello.rank) => {
                    let address = SocketAddr::new(peer.ip(), hello.port);
                    joined[hello.rank] = Some((stream, address));
                    waiting(&missing(&joined));
                }
                Some(_) | None => {}
            }
        }
        let nowhere = SocketAddr::from(([0, 0, 0, 0], 0));
        let of_rank =
            |own: &Option<(TcpStream, SocketAddr)>| own.as_ref().map_or(nowhere, |(_, address)| *address);
        let addresses = joined.iter().map(of_rank).collect();
        let members = Members { group: crate::random_digits(16), addresses };
        let peers = joined.into_iter().map(|own| own.map(|(stream, _)| stream)).collect();
        let group = RankGroup { rank: 0, peers };
        group.announce(&postcard::to_allocvec(&members).unwrap_or_default())?;
        // All ranks have all connections before the first message is sent.
        group.gather(&[])?;
        Ok(Some(group))
    }

    /// Joins the group of the rank 0 that listens at `leader`. `None` once `is_over` says that there is nothing to wait for.
    ///
    /// # Errors
    /// If rank 0 refuses this one, or a rank goes while the group is formed.
    pub fn join(
        leader: &str,
        rank: usize,
        settings: &RankSettings,
        is_over: &dyn Fn() -> bool,
    ) -> Result<Option<RankGroup>, RankError> {
        let any = |source| RankError::Listen { address: "any port".to_owned(), source };
        let listener = listen("0.0.0.0:0")?;
        let port = listener.local_addr().map_err(any)?.port();
        let hello = Hello { name: settings.name.clone(), ranks: settings.ranks, rank, port };
        let stream = loop {
            if is_over() {
                return Ok(None);
            }
            match TcpStream::connect(leader) {
                Ok(stream) => break stream,
                Err(_) => std::thread::sleep(PAUSE),
            }
        };
        let away = |rank| move |source| RankError::Away { rank, source };
        handshake::prove(&stream, &hello, &settings.secret).map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput => {
                RankError::Refused { address: leader.to_owned(), reason: error.to_string() }
            }
            _ => RankError::Away { rank: 0, source: error },
        })?;
        let mut group = RankGroup { rank, peers: (0..settings.ranks).map(|_| None).collect() };
        group.peers[0] = Some(stream);
        let Some(members) = group.await_announcement(is_over)? else { return Ok(None) };
        let members: Members = postcard::from_bytes(&members)
            .map_err(|error| away(0)(io::Error::new(io::ErrorKind::InvalidData, error)))?;
        let own = Hello { name: members.group.clone(), ..hello };
        for (earlier, address) in members.addresses.iter().enumerate().take(rank).skip(1) {
            let stream = TcpStream::connect_timeout(address, LONGEST_HANDSHAKE);
            let stream = stream.and_then(|stream| {
                handshake::prove(&stream, &own, &settings.secret)?;
                Ok(stream)
            });
            group.peers[earlier] = Some(stream.map_err(away(earlier))?);
        }
        let handshakes = Handshakes::new(&listener, RankSettings { name: members.group, ..settings.clone() });
        for later in rank + 1..settings.ranks {
            while group.peers[later].is_none() {
                if is_over() {
                    return Ok(None);
                }
                group.check_leader()?;
                match handshakes.next() {
                    Some((stream, hello, _)) if (rank + 1..settings.ranks).contains(&hello.rank) => {
                        group.peers[hello.rank] = Some(stream);
                    }
                    Some(_) | None => {}
                }
            }
        }
        group.gather(&[])?;
        Ok(Some(group))
    }

    /// Index of this rank.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Number of ranks.
    pub fn ranks(&self) -> usize {
        self.peers.len()
    }

    /// Sends a message to every other rank.
    ///
    /// # Errors
    /// If one is away.
    pub fn announce(&self, message: &[u8]) -> Result<(), RankError> {
        self.exchange(|_| message, |_, _| Ok(()))
    }

    /// Waits for a message of rank 0. `None` once `is_over` says that there is nothing to wait for.
    ///
    /// # Errors
    /// If it is away.
    pub fn await_announcement(&self, is_over: &dyn Fn() -> bool) -> Result<Option<Vec<u8>>, RankError> {
        let away = |source| RankError::Away { rank: 0, source };
        let Some(stream) = self.peers.first().and_then(Option::as_ref) else { return Ok(None) };
        while !wire::has_data(stream, PAUSE).map_err(away)? {
            if is_over() {
                return Ok(None);
            }
        }
        read_message(stream).map(Some).map_err(away)
    }

    /// Sends a message to every other rank. Returns those of all ranks, in their order.
    ///
    /// # Errors
    /// If one is away.
    pub fn gather(&self, own: &[u8]) -> Result<Vec<Vec<u8>>, RankError> {
        let mut all = vec![Vec::new(); self.ranks()];
        all[self.rank] = own.to_vec();
        self.exchange(|_| own, |rank, stream| read_message(stream).map(|message| all[rank] = message))?;
        Ok(all)
    }

    /// Replaces numbers by their sums over all ranks, added in the order of ranks. Each rank sums a part of them and sends it
    /// to the others, so that each sends and receives twice the numbers in all, however many ranks there are.
    ///
    /// # Errors
    /// If a rank is away.
    pub fn sum(&self, numbers: &mut [f32]) -> Result<(), RankError> {
        let (ranks, count) = (self.ranks(), numbers.len());
        let part = |rank: usize| count * rank / ranks..count * (rank + 1) / ranks;
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        let bytes_of = |rank: usize| part(rank).start * NUMBER..part(rank).end * NUMBER;
        let own = part(self.rank);
        let mut of_ranks = vec![Vec::new(); ranks];
        of_ranks[self.rank] = bytes[bytes_of(self.rank)].to_vec();
        self.exchange(
            |rank| &bytes[bytes_of(rank)],
            |rank, stream| read_message(stream).map(|message| of_ranks[rank] = message),
        )?;
        for (rank, message) in of_ranks.iter().enumerate() {
            check_length(rank, message, own.len())?;
            for (sum, number) in numbers[own.clone()].iter_mut().zip(floats(message)) {
                *sum = if rank == 0 { number } else { *sum + number };
            }
        }
        let sums: Vec<u8> = numbers[own].iter().flat_map(|number| number.to_le_bytes()).collect();
        for (rank, message) in self.gather(&sums)?.iter().enumerate() {
            check_length(rank, message, part(rank).len())?;
            numbers[part(rank)].iter_mut().zip(floats(message)).for_each(|(sum, number)| *sum = number);
        }
        Ok(())
    }

    /// Sends every other rank what `message` returns for it, and calls `receive` with each connection, in the order of ranks.
    fn exchange<'m>(
        &self,
        message: impl Fn(usize) -> &'m [u8],
        mut receive: impl FnMut(usize, &TcpStream) -> io::Result<()>,
    ) -> Result<(), RankError> {
        let away = |rank| move |source| RankError::Away { rank, source };
        let others = || self.peers.iter().enumerate().filter_map(|(rank, own)| Some((rank, own.as_ref()?)));
        std::thread::scope(|scope| {
            // Two ranks that both sent first would wait for each other to read.
            let sent: Vec<_> = others()
                .map(|(rank, stream)| {
                    let message = message(rank);
                    (rank, scope.spawn(move || write_message(stream, message)))
                })
                .collect();
            let received = others().try_for_each(|(rank, stream)| receive(rank, stream).map_err(away(rank)));
            if received.is_err() {
                // Threads that still send to others end.
                others().for_each(|(_, stream)| drop(stream.shutdown(std::net::Shutdown::Both)));
            }
            let mut result = received;
            for (rank, thread) in sent {
                let sent = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                result = result.and(sent.map_err(away(rank)));
            }
            result
        })
    }

    /// Checks that rank 0 still waits for this one.
    fn check_leader(&self) -> Result<(), RankError> {
        let Some(stream) = self.peers.first().and_then(Option::as_ref) else { return Ok(()) };
        let away = |source| RankError::Away { rank: 0, source };
        wire::has_data(stream, Duration::from_millis(1)).map(drop).map_err(away)
    }
}

/// A connection whose other side has proved that it is a rank of the group.
type Joined = (TcpStream, Hello, SocketAddr);

/// Handshakes of the connections to a rank, each on a thread of its own: a connection that is slow or silent
/// keeps no rank waiting.
struct Handshakes<'l> {
    listener: &'l TcpListener,
    /// Settings of the group. Each running handshake has a reference.
    settings: Arc<RankSettings>,
    sender: Sender<Joined>,
    joined: Receiver<Joined>,
}

impl Handshakes<'_> {
    fn new(listener: &TcpListener, settings: RankSettings) -> Handshakes<'_> {
        let (sender, joined) = mpsc::channel();
        Handshakes { listener, settings: Arc::new(settings), sender, joined }
    }

    /// Accepts those that connect now, and waits a while for a rank to prove itself. `None` if none has.
    fn next(&self) -> Option<Joined> {
        while Arc::strong_count(&self.settings) <= MOST_HANDSHAKES
            && let Ok((stream, peer)) = self.listener.accept()
        {
            let (settings, sender) = (Arc::clone(&self.settings), self.sender.clone());
            let handshake = move || match handshake::accept(&stream, &settings) {
                // The group may be complete by now.
                Ok(hello) => drop(sender.send((stream, hello, peer))),
                Err(error) => {
                    tracing::warn!(%peer, %error, "a connection that is not of a rank of this learner was refused");
                }
            };
            if let Err(error) = std::thread::Builder::new().spawn(handshake) {
                tracing::warn!(%peer, %error, "a connection was refused, because no thread could be started for it");
            }
        }
        self.joined.recv_timeout(PAUSE).ok()
    }
}

fn check_length(rank: usize, message: &[u8], numbers: usize) -> Result<(), RankError> {
    if message.len() == numbers * NUMBER {
        return Ok(());
    }
    let problem = format!("it sent {} bytes where {} were due", message.len(), numbers * NUMBER);
    Err(RankError::Away { rank, source: io::Error::new(io::ErrorKind::InvalidData, problem) })
}

fn floats(bytes: &[u8]) -> impl Iterator<Item = f32> + '_ {
    let (numbers, _) = bytes.as_chunks::<NUMBER>();
    numbers.iter().map(|number| f32::from_le_bytes(*number))
}

#[cfg(test)]
mod tests;
