//! Proof of both sides of a new connection that they know the secret of a group, by a keyed hash of a number that the other
//! side has chosen.

use std::io;
use std::net::TcpStream;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::LONGEST_HANDSHAKE;
use super::wire::{read_message_of, set_up, write_message};

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

/// Introduction that the accepting side expects.
pub(super) struct Side<'s> {
    pub name: &'s str,
    pub ranks: usize,
    pub secret: &'s [u8],
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
    begin(stream)?;
    let Challenge { version, number } = receive(stream)?;
    if version != VERSION {
        let problem = format!("it speaks version {version} of the protocol of ranks, this pl-host {VERSION}");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
    }
    let own = random_number();
    let proof = proof(secret, "rank", &number, hello);
    send(stream, &Answer { hello: hello.clone(), proof, number: own })?;
    match receive(stream)? {
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

/// Lets the other side of a connection prove that it is a rank of a group, and proves to it that this one is.
pub(super) fn accept(stream: &TcpStream, side: &Side<'_>) -> io::Result<Hello> {
    begin(stream)?;
    let number = random_number();
    send(stream, &Challenge { version: VERSION, number })?;
    let Answer { hello, proof: theirs, number: own } = receive(stream)?;
    let reason = if !is_proof(side.secret, "rank", &number, &hello, theirs) {
        Some("it has other credentials; give all ranks the same file by --nats-credentials".to_owned())
    } else if hello.name != side.name {
        Some(format!("it belongs to {}, this one to {}", hello.name, side.name))
    } else if hello.ranks != side.ranks || hello.rank >= side.ranks {
        Some(format!(
            "it is rank {} of {}, but this learner has {} ranks",
            hello.rank, hello.ranks, side.ranks
        ))
    } else {
        None
    };
    if let Some(reason) = reason {
        send(stream, &Verdict::Refused { reason: reason.clone() })?;
        return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
    }
    send(stream, &Verdict::Accepted { proof: proof(side.secret, "accepted", &own, &hello) })?;
    stream.set_read_timeout(None)?;
    Ok(hello)
}

fn begin(stream: &TcpStream) -> io::Result<()> {
    set_up(stream)?;
    stream.set_read_timeout(Some(LONGEST_HANDSHAKE))
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

fn receive<T: DeserializeOwned>(stream: &TcpStream) -> io::Result<T> {
    let message = read_message_of(stream, LONGEST)?;
    postcard::from_bytes(&message).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}
