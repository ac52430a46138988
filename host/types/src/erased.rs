//! Values and futures whose types are hidden from the compiler's proofs. For each future that holds a value, the compiler proves
//! anew that threads may send and share all of its parts. Those of WebAssembly engines, tokenizers and HTTP clients are
//! thousands: functions that held them took seconds each to compile.

use std::fmt::{Debug, Formatter};
use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;

/// A shared value of which the compiler knows at once that threads may send and share it.
pub struct Erased<T>(Arc<dyn Deref<Target = T> + Send + Sync>);

impl<T: Send + Sync + 'static> Erased<T> {
    /// Hides the parts of a value.
    pub fn new(value: T) -> Self {
        Self(Arc::new(Box::new(value)))
    }
}

impl<T> Clone for Erased<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Deref for Erased<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Debug> Debug for Erased<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        T::fmt(self, f)
    }
}

/// Does the same as [`Erased`] for a future, such as one that awaits a guest or a response. A function that awaits a closure of any
/// type can't hide that future, as nothing says that it may be sent: its callers do.
pub fn erased<'f, R>(
    future: impl Future<Output = R> + Send + 'f,
) -> Pin<Box<dyn Future<Output = R> + Send + 'f>> {
    Box::pin(future)
}
