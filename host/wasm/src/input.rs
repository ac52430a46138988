//! A guest's stdin.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use wasmtime_wasi::cli::{IsTerminal, StdinStream};
use wasmtime_wasi::p2::{InputStream, Pollable, StreamError, StreamResult};

use crate::stream_work::StreamWork;

/// Fuel of a read, also of one at the end, not counting its bytes.
const READ_FUEL: u64 = 3_000;

/// Input of a guest. Clones share what is left of it.
#[derive(Debug, Clone)]
pub(crate) struct Input {
    left: Arc<Mutex<Bytes>>,
    work: StreamWork,
}

impl Input {
    pub(crate) fn new(bytes: Bytes, work: StreamWork) -> Self {
        Self { left: Arc::new(Mutex::new(bytes)), work }
    }
}

impl IsTerminal for Input {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdinStream for Input {
    fn p2_stream(&self) -> Box<dyn InputStream> {
        Box::new(self.clone())
    }

    // Only for WASI 0.3, which is not linked.
    fn async_stream(&self) -> Box<dyn tokio::io::AsyncRead + Send + Sync> {
        Box::new(tokio::io::empty())
    }
}

#[wasmtime_wasi::async_trait]
impl InputStream for Input {
    fn read(&mut self, size: usize) -> StreamResult<Bytes> {
        let mut left = self.left.lock();
        let length = size.min(left.len());
        let read = left.split_to(length);
        self.work.charge(READ_FUEL + read.len() as u64);
        if read.is_empty() && left.is_empty() { Err(StreamError::Closed) } else { Ok(read) }
    }
}

#[wasmtime_wasi::async_trait]
impl Pollable for Input {
    async fn ready(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_share_the_input_and_every_read_is_paid_for() {
        let work = StreamWork::default();
        let input = Input::new(Bytes::from_static(b"text"), work.clone());
        let (mut first, mut second) = (input.p2_stream(), input.p2_stream());
        assert_eq!(first.read(3).unwrap(), "tex");
        assert_eq!(work.take(), READ_FUEL + 3);
        assert_eq!(second.read(10).unwrap(), "t");
        work.take();
        assert!(matches!(first.read(1), Err(StreamError::Closed)));
        assert_eq!(work.take(), READ_FUEL);
    }
}
