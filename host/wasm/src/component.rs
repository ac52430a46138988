//! A compiled component, and a check of the header of its bytes.

use pl_types::erased::Erased;

use crate::Error;

/// A compiled component. Cheap to clone.
#[derive(Clone)]
pub struct Component {
    inner: Erased<wasmtime::component::Component>,
    hash: blake3::Hash,
}

impl Component {
    pub(crate) fn new(inner: wasmtime::component::Component, hash: blake3::Hash) -> Self {
        Self { inner: Erased::new(inner), hash }
    }

    /// The wasmtime component.
    pub fn inner(&self) -> &wasmtime::component::Component {
        &self.inner
    }

    pub(crate) fn raw_hash(&self) -> blake3::Hash {
        self.hash
    }

    /// BLAKE3 of the component's bytes, in hexadecimal: its version, for lock files and messages.
    pub fn hash(&self) -> String {
        self.hash.to_hex().to_string()
    }
}

const MAGIC: &[u8] = b"\0asm";
/// Components are version 13 of layer 1; core modules are version 1 of layer 0.
const COMPONENT: &[u8] = &[0x0d, 0x00, 0x01, 0x00];
const CORE: &[u8] = &[0x01, 0x00, 0x00, 0x00];

/// Reports in plain words why `bytes` can't be a component, before the compiler would in its own.
pub(crate) fn check_header(name: &str, bytes: &[u8]) -> Result<(), Error> {
    let fail = |what, advice| Err(Error::NotAComponent { name: name.to_owned(), what, advice });
    if bytes.is_empty() {
        return fail("the file is empty", "build it again");
    }
    if !bytes.starts_with(MAGIC) {
        let text = std::str::from_utf8(bytes).is_ok();
        return match bytes.iter().find(|byte| !byte.is_ascii_whitespace()) {
            Some(b'(') if text => fail(
                "it is the text form of WebAssembly",
                "give the binary (`wasm-tools parse FILE -o FILE.wasm`)",
            ),
            _ if text => fail("it is a text file", "give the path of a `.wasm` component"),
            _ => fail("it is some other kind of file", "give the path of a `.wasm` component"),
        };
    }
    match bytes.get(4..8) {
        Some(COMPONENT) => Ok(()),
        Some(CORE) => fail(
            "it is a core module",
            "turn it into a component (`wasm-tools component new`, or the build of the plugin's SDK)",
        ),
        Some(_) => fail("its version is unknown", "build it with a current toolchain"),
        None => fail("it is cut short", "build or fetch it again"),
    }
}
