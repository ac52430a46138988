//! Messages of a connection: their length (u64, little-endian), then their bytes.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use socket2::{SockRef, TcpKeepalive};

/// Time after which a connection on which nothing is sent is checked, and between checks.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// Time after which a connection whose other side acknowledges nothing is given up.
const LONGEST_SILENCE: Duration = Duration::from_secs(60);

/// Longest message. A longer one would be a broken process's.
const LONGEST: u64 = 1 << 36;

/// Sets up a connection that tolerates long idle periods and detects dead peers.
pub(super) fn set_up(stream: &TcpStream) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE))?;
    socket.set_tcp_user_timeout(Some(LONGEST_SILENCE))
}

/// Sends a message.
pub(super) fn write_message(mut stream: &TcpStream, message: &[u8]) -> io::Result<()> {
    stream.write_all(&(message.len() as u64).to_le_bytes())?;
    stream.write_all(message)
}

/// Receives a message.
pub(super) fn read_message(stream: &TcpStream) -> io::Result<Vec<u8>> {
    read_message_of(stream, LONGEST)
}

/// Receives a message of at most some bytes.
pub(super) fn read_message_of(mut stream: impl Read, longest: u64) -> io::Result<Vec<u8>> {
    let mut length = [0; 8];
    stream.read_exact(&mut length)?;
    let length = u64::from_le_bytes(length);
    if length > longest {
        let problem = format!("a message of {length} bytes is longer than any of pl-host");
        return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
    }
    let mut message = Vec::new();
    // Memory grows with what arrives, not with what was announced.
    let read = stream.take(length).read_to_end(&mut message)?;
    if (read as u64) < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(message)
}

/// Reading side of a connection until a time, however often something arrives before it.
pub(super) struct ReadUntil<'s> {
    pub stream: &'s TcpStream,
    pub deadline: Instant,
}

impl Read for ReadUntil<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        self.stream.read(buffer)
    }
}

/// Waits a while for something to be received. The end of the connection is an error.
pub(super) fn has_data(stream: &TcpStream, wait: Duration) -> io::Result<bool> {
    stream.set_read_timeout(Some(wait))?;
    let result = stream.peek(&mut [0]);
    stream.set_read_timeout(None)?;
    match result {
        Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(_) => Ok(true),
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}
