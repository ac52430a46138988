//! Buffers with a limit for a guest's stdout and stderr.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamError, StreamResult};

use crate::HostError;
use crate::stream_work::StreamWork;

/// An output stream of a guest, buffered up to a limit. Cheap to clone; clones share the buffer.
#[derive(Debug, Clone)]
pub struct Output {
    shared: Arc<Mutex<Captured>>,
    limit: usize,
    /// Writing past the limit ends the guest's call.
    strict: bool,
    /// Pays for the bytes of an output without an end.
    work: StreamWork,
}

/// Output of a guest so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Captured {
    /// The first bytes, at most as many as the limit.
    pub bytes: Vec<u8>,
    /// True if the guest wrote more than the limit.
    pub overflowed: bool,
}

/// Maximum size of one write, in bytes.
const MAX_WRITE: usize = 64 << 10;

impl Output {
    /// Creates a buffer of at most `limit` bytes. Writing more ends the guest's call.
    pub fn new(limit: u64) -> Self {
        Self { strict: true, ..Self::first(limit, StreamWork::default()) }
    }

    /// Creates a buffer of the first `limit` bytes. Further output is discarded. Every byte costs a unit of fuel.
    pub(crate) fn first(limit: u64, work: StreamWork) -> Self {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        Self { shared: Arc::default(), limit, strict: false, work }
    }

    /// Takes the buffered output.
    pub fn take(&self) -> Captured {
        std::mem::take(&mut *self.shared.lock())
    }
}

impl IsTerminal for Output {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for Output {
    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }

    // Only for WASI 0.3, which is not linked.
    fn async_stream(&self) -> Box<dyn tokio::io::AsyncWrite + Send + Sync> {
        Box::new(tokio::io::sink())
    }
}

#[wasmtime_wasi::async_trait]
impl OutputStream for Output {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        if !self.strict {
            self.work.charge(bytes.len() as u64);
        }
        let mut captured = self.shared.lock();
        let room = self.limit - captured.bytes.len();
        captured.bytes.extend_from_slice(&bytes[..bytes.len().min(room)]);
        if bytes.len() > room {
            captured.overflowed = true;
            if !self.strict {
                return Ok(());
            }
            return Err(StreamError::Trap(HostError("it exceeded the limit on output".to_owned()).into()));
        }
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(MAX_WRITE)
    }
}

#[wasmtime_wasi::async_trait]
impl Pollable for Output {
    async fn ready(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_that_is_discarded_costs_as_much_as_other() {
        let work = StreamWork::default();
        let mut output = Output::first(10, work.clone());
        for _ in 0..3 {
            output.write(Bytes::from_static(&[b'x'; 100])).unwrap();
            assert_eq!(work.take(), 100);
        }
        let Captured { bytes, overflowed } = output.take();
        assert_eq!((bytes.len(), overflowed), (10, true));
    }
}
