//! Bytes under their hash in the object store of a run.

use async_nats::jetstream::object_store::{self, InfoErrorKind, ObjectMetadata, ObjectStore};
use tokio::io::AsyncReadExt;

use crate::connection::Connection;
use crate::error::Error;
use crate::lease::hash_of;
use crate::names::Names;

/// Size of the chunks that an object is cut into.
const CHUNK: usize = 256 << 10;

/// Object store of a run.
#[derive(Clone)]
pub(crate) struct Blobs {
    connection: Connection,
    run: String,
    store: ObjectStore,
}

impl Blobs {
    /// Creates the store of a run, or opens it if it is there.
    pub async fn create(connection: &Connection, names: &Names) -> Result<Blobs, Error> {
        let bucket = names.blobs();
        if let Ok(store) = connection.context.get_object_store(&bucket).await {
            return Ok(Blobs { connection: connection.clone(), run: names.run.clone(), store });
        }
        let config = || object_store::Config { bucket: bucket.clone(), ..Default::default() };
        let create = || connection.context.create_object_store(config());
        let store = connection.persist("create an object store", create).await?;
        Ok(Blobs { connection: connection.clone(), run: names.run.clone(), store })
    }

    /// Opens the store of a run.
    pub async fn open(connection: &Connection, names: &Names) -> Result<Blobs, Error> {
        let store = connection.context.get_object_store(names.blobs()).await;
        let store = store.map_err(connection.failed("open the object store of the run"))?;
        Ok(Blobs { connection: connection.clone(), run: names.run.clone(), store })
    }

    /// Stores bytes under their hash, unless they are there. Returns the hash.
    pub async fn put(&self, bytes: &[u8]) -> Result<String, Error> {
        let hash = hash_of(bytes);
        let known = || async {
            match self.store.info(&hash).await {
                Ok(info) => Ok(!info.deleted),
                Err(error) if error.kind() == InfoErrorKind::NotFound => Ok(false),
                Err(error) => Err(error),
            }
        };
        if self.connection.persist("look for an object", known).await? {
            return Ok(hash);
        }
        let write = || async {
            let name = ObjectMetadata { name: hash.clone(), chunk_size: Some(CHUNK), ..Default::default() };
            self.store.put(name, &mut &*bytes).await
        };
        self.connection.persist("store an object", write).await?;
        Ok(hash)
    }

    /// Returns the bytes with this hash.
    pub async fn get(&self, hash: &str) -> Result<Vec<u8>, Error> {
        let failed = |problem: String| Error::Blob { run: self.run.clone(), hash: hash.to_owned(), problem };
        let read = || async {
            let mut object = match self.store.get(hash).await {
                Ok(object) => object,
                Err(error) if error.kind() == object_store::GetErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(std::io::Error::other(error)),
            };
            let mut bytes = Vec::with_capacity(object.info().size);
            object.read_to_end(&mut bytes).await?;
            Ok(Some(bytes))
        };
        let bytes = self.connection.persist("read an object", read).await?;
        let bytes = bytes.ok_or_else(|| failed("is not in the object store".to_owned()))?;
        match hash_of(&bytes) == hash {
            true => Ok(bytes),
            false => Err(failed("differs from its hash".to_owned())),
        }
    }

    /// Removes bytes. That they are gone already is no error, and what can't be removed is left for the end of the run.
    pub async fn remove(&self, hash: &str) {
        if let Err(error) = self.store.delete(hash).await {
            tracing::debug!(hash, %error, "an object was not removed");
        }
    }
}
