//! Bytes under their hash in the object store of a run.

use async_nats::jetstream::object_store::{self, InfoErrorKind, ObjectMetadata, ObjectStore};
use async_nats::jetstream::stream::{DirectGetErrorKind, Stream};

use crate::connection::Connection;
use crate::error::Error;
use crate::lease::hash_of;
use crate::names::Names;

/// Object store of a run.
#[derive(Clone)]
pub(crate) struct Blobs {
    connection: Connection,
    run: String,
    store: ObjectStore,
    /// The stream below the store.
    chunks: Stream,
}

impl Blobs {
    /// Creates the store of a run, or opens it if it is there.
    pub async fn create(connection: &Connection, names: &Names) -> Result<Blobs, Error> {
        let bucket = names.blobs();
        if connection.context.get_object_store(&bucket).await.is_err() {
            let config = || object_store::Config { bucket: bucket.clone(), ..Default::default() };
            let create = || connection.context.create_object_store(config());
            connection.persist("create an object store", create).await?;
        }
        Blobs::open(connection, names).await
    }

    /// Opens the store of a run.
    pub async fn open(connection: &Connection, names: &Names) -> Result<Blobs, Error> {
        let action = "open the object store of the run";
        let store = connection.context.get_object_store(names.blobs()).await;
        let store = store.map_err(connection.failed(action))?;
        let chunks = connection.context.get_stream(format!("OBJ_{}", names.blobs())).await;
        let chunks = chunks.map_err(connection.failed(action))?;
        Ok(Blobs { connection: connection.clone(), run: names.run.clone(), store, chunks })
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
            let name = ObjectMetadata {
                name: hash.clone(),
                chunk_size: Some(self.connection.largest_message()),
                ..Default::default()
            };
            self.store.put(name, &mut &*bytes).await
        };
        self.connection.persist("store an object", write).await?;
        Ok(hash)
    }

    /// Returns the bytes with this hash. They are read chunk by chunk: `ObjectStore::get` would make a consumer, which workers
    /// may not.
    pub async fn get(&self, hash: &str) -> Result<Vec<u8>, Error> {
        let failed = |problem: &str| Error::Blob {
            run: self.run.clone(),
            hash: hash.to_owned(),
            problem: problem.to_owned(),
        };
        let find = || async {
            match self.store.info(hash).await {
                Ok(info) => Ok(Some(info).filter(|info| !info.deleted)),
                Err(error) if error.kind() == InfoErrorKind::NotFound => Ok(None),
                Err(error) => Err(error),
            }
        };
        let info = self.connection.persist("look for an object", find).await?;
        let info = info.ok_or_else(|| failed("is not in the object store"))?;
        let subject = format!("$O.{}.C.{}", info.bucket, info.nuid);
        let (mut bytes, mut next) = (Vec::new(), 1);
        for _ in 0..info.chunks {
            let read = || async {
                match self.chunks.direct_get_next_for_subject(subject.as_str(), Some(next)).await {
                    Ok(chunk) => Ok(Some(chunk)),
                    Err(error) if error.kind() == DirectGetErrorKind::NotFound => Ok(None),
                    Err(error) => Err(error),
                }
            };
            let chunk = self.connection.persist("read an object", read).await?;
            let chunk = chunk.ok_or_else(|| failed("was removed"))?;
            bytes.extend_from_slice(&chunk.payload);
            next = chunk.sequence + 1;
        }
        match hash_of(&bytes) == hash {
            true => Ok(bytes),
            false => Err(failed("differs from its hash")),
        }
    }

    /// Removes bytes. That they are gone already is no error, and what can't be removed is left for the end of the run.
    pub async fn remove(&self, hash: &str) {
        if let Err(error) = self.store.delete(hash).await {
            tracing::debug!(hash, %error, "an object was not removed");
        }
    }
}
