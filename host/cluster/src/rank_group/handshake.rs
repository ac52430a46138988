//! Proof of both sides of a new connection that they know the secret of a group, by a keyed hash of a number that the other
//! side has chosen.

use std::io;
use std::net::TcpStream;
use std::time::Instant;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::wire::{ReadUntil, read_message_of, set_up, write_message};
use super::{LONGEST_HANDSHAKE, RankSettings};

/// Version of what ranks send each other.
const VERSION: u32 = 1;

/// Domain of the key of proofs.
const KEY: &str = "pl-host 2026 ranks of a learner";

/// Longest message of a handshake, in bytes.
const LONGEST: u64 = 4096;

/// Introduction of a rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Hello {
    /// The run and the learner; between ranks other than 0, the digits of their group.
    pub name: String,
    pub ranks: usize,
    pub rank: usize,
    /// Port that it listens at.
    pub port: u16,
}

#[derive(Serialize, Deserialize)]
struct Challenge {
    version: u32,
    number: [u8; 32],
}

#[derive(Serialize, Deserialize)]
struct Answer {
    hello: Hello,
    proof: [u8; 32],
    number: [u8; 32],
}

#[derive(Serialize, Deserialize)]
enum Verdict {
    Accepted { proof: [u8; 32] },
    Refused { reason: String },
}

/// Proves to the side that accepted a connection that this is a rank, and lets it prove itself.
pub(super) fn prove(stream: &TcpStream, hello: &Hello, secret: &[u8]) -> io::Result<()> {
    let mut reader = begin(stream)?;
    let Challenge { version, number } = receive(&mut reader)?;
    if version != VERSION {
        let problem = format!("it speaks version {version} of the protocol of ranks, this pl-host {VERSION}");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
    }
    let own = random_number();
    let proof = proof(secret, "rank", &number, hello);
    send(stream, &Answer { hello: hello.clone(), proof, number: own })?;
    match receive(&mut reader)? {
        Verdict::Accepted { proof: theirs } if is_proof(secret, "accepted", &own, hello, theirs) => {
            stream.set_read_timeout(None)
        }
        Verdict::Accepted { .. } => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "it has other credentials; give all ranks the same file by --nats-credentials",
        )),
        Verdict::Refused { reason } => Err(io::Error::new(io::ErrorKind::InvalidInput, reason)),
    }
}

/// Lets the other side of a connection prove that it is a rank of the group that `settings` names, and proves to it that
/// this one is.
pub(super) fn accept(stream: &TcpStream, settings: &RankSettings) -> io::Result<Hello> {
    let RankSettings { ranks, name, secret } = settings;
    let mut reader = begin(stream)?;
    let number = random_number();
    send(stream, &Challenge { version: VERSION, number })?;
    let Answer { hello, proof: theirs, number: own } = receive(&mut reader)?;
    let reason = if !is_proof(secret, "rank", &number, &hello, theirs) {
        Some("it has other credentials; give all ranks the same file by --nats-credentials".to_owned())
    } else if hello.name != *name {
        Some(format!("it belongs to {}, this one to {name}", hello.name))
    } else if hello.ranks != *ranks || hello.rank >= *ranks {
        Some(format!("it is rank {} of {}, but this learner has {ranks} ranks", hello.rank, hello.ranks))
    } else {
        None
    };
    if let Some(reason) = reason {
        send(stream, &Verdict::Refused { reason: reason.clone() })?;
        return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
    }
    send(stream, &Verdict::Accepted { proof: proof(secret, "accepted", &own, &hello) })?;
    stream.set_read_timeout(None)?;
    Ok(hello)
}

/// Sets a new connection up. Returns its reading side for the time of the handshake.
fn begin(stream: &TcpStream) -> io::Result<ReadUntil<'_>> {
    set_up(stream)?;
    Ok(ReadUntil { stream, deadline: Instant::now() + LONGEST_HANDSHAKE })
}

fn proof(secret: &[u8], side: &str, number: &[u8; 32], hello: &Hello) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_keyed(&blake3::derive_key(KEY, secret));
    hasher.update(side.as_bytes()).update(number);
    hasher.update(&postcard::to_allocvec(hello).unwrap_or_default());
    *hasher.finalize().as_bytes()
}

fn is_proof(secret: &[u8], side: &str, number: &[u8; 32], hello: &Hello, theirs: [u8; 32]) -> bool {
    // Hashes compare in constant time.
    blake3::Hash::from_bytes(proof(secret, side, number, hello)) == blake3::Hash::from_bytes(theirs)
}

fn random_number() -> [u8; 32] {
    *blake3::hash(crate::random_digits(64).as_bytes()).as_bytes()
}

fn send<T: Serialize>(stream: &TcpStream, message: &T) -> io::Result<()> {
    write_message(stream, &postcard::to_allocvec(message).map_err(io::Error::other)?)
}

fn receive<T: DeserializeOwned>(reader: &mut ReadUntil<'_>) -> io::Result<T> {
    let message = read_message_of(reader, LONGEST)?;
    postcard::from_bytes(&message).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}
