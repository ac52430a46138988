//! `wasi:http` in a linker: the interface itself for guests with a grant, and functions that end the call for all others.
//!
//! The interface keeps whatever a guest puts into a request on the host's heap, and some of its waits never end. So
//! guests without a grant don't get it at all, and for the others the size of every part has a limit. Texts cost fuel
//! even if they are refused, because they were copied by then.

use wasmtime::StoreContextMut;
use wasmtime::component::types::ComponentItem;
use wasmtime::component::{Linker, Resource, ResourceType};
use wasmtime_wasi_http::p2::HeaderResult;
use wasmtime_wasi_http::p2::bindings::http::types::{
    HeaderError, HostFields as _, HostOutgoingRequest as _, Method, Scheme,
};
use wasmtime_wasi_http::p2::types::HostOutgoingRequest;
use wasmtime_wasi_http::{FieldMap, WasiHttpView};

use crate::guest::{Guest, MAX_HEADERS};
use crate::{Component, Error, HostError};

/// Maximum length of a method or scheme in bytes: all registered ones have fewer.
const MAX_TOKEN: usize = 32;

/// Maximum length of a host with its port, in bytes: a name has 253.
const MAX_AUTHORITY: usize = 512;

/// Maximum length of a path with its query, in bytes, as with common servers.
const MAX_PATH: usize = 8 << 10;

/// Fuel of a call on headers, beyond that of every host call, not counting the texts that the guest passes: the host may
/// read or copy all of the headers (a change of shared headers copies them).
const HEADERS_FUEL: u64 = MAX_HEADERS as u64;

/// Fuel for each text of a list, not counting its bytes: the host allocates it.
const TEXT_FUEL: u64 = 300;

/// Version of the interface that the engine provides.
const TYPES: &str = "wasi:http/types@0.2.12";

/// Adds `wasi:http` to a linker. The guest may call the hosts of [`Guest::allow_hosts`].
///
/// # Errors
/// [`Error::Engine`]; not seen in practice.
pub fn link_http<T: Send + 'static>(linker: &mut Linker<Guest<T>>) -> Result<(), Error> {
    wasmtime_wasi_http::p2::add_only_http_to_linker_async(linker)
        .and_then(|()| limit_requests(linker))
        .and_then(|()| price_headers(linker))
        .map_err(|error| Error::Engine(format!("{error:#}")))
}

/// Replaces the functions that store texts in a request by ones that refuse long texts.
fn limit_requests<T: Send + 'static>(linker: &mut Linker<Guest<T>>) -> wasmtime::Result<()> {
    type Request = Resource<HostOutgoingRequest>;
    type Set = Result<(), ()>;
    let mut types = linker.instance(TYPES)?;
    types.func_wrap(
        "[method]outgoing-request.set-method",
        |mut store: StoreContextMut<'_, Guest<T>>, (request, method): (Request, Method)| {
            let length = if let Method::Other(name) = &method { name.len() } else { 0 };
            store.data_mut().charge(length as u64);
            let long = length > MAX_TOKEN;
            let set: Set =
                if long { Err(()) } else { store.data_mut().http().set_method(request, method)? };
            Ok((set,))
        },
    )?;
    types.func_wrap(
        "[method]outgoing-request.set-scheme",
        |mut store: StoreContextMut<'_, Guest<T>>, (request, scheme): (Request, Option<Scheme>)| {
            let length = if let Some(Scheme::Other(name)) = &scheme { name.len() } else { 0 };
            store.data_mut().charge(length as u64);
            let long = length > MAX_TOKEN;
            let set: Set =
                if long { Err(()) } else { store.data_mut().http().set_scheme(request, scheme)? };
            Ok((set,))
        },
    )?;
    types.func_wrap(
        "[method]outgoing-request.set-authority",
        |mut store: StoreContextMut<'_, Guest<T>>, (request, authority): (Request, Option<String>)| {
            let length = authority.as_ref().map_or(0, String::len);
            store.data_mut().charge(length as u64);
            let long = length > MAX_AUTHORITY;
            let set: Set =
                if long { Err(()) } else { store.data_mut().http().set_authority(request, authority)? };
            Ok((set,))
        },
    )?;
    types.func_wrap(
        "[method]outgoing-request.set-path-with-query",
        |mut store: StoreContextMut<'_, Guest<T>>, (request, path): (Request, Option<String>)| {
            let length = path.as_ref().map_or(0, String::len);
            store.data_mut().charge(length as u64);
            let long = length > MAX_PATH;
            let set: Set =
                if long { Err(()) } else { store.data_mut().http().set_path_with_query(request, path)? };
            Ok((set,))
        },
    )?;
    Ok(())
}

/// Replaces the functions that read or write headers by ones that cost fuel for the host's work.
fn price_headers<T: Send + 'static>(linker: &mut Linker<Guest<T>>) -> wasmtime::Result<()> {
    type Fields = Resource<FieldMap>;
    type Entries = Vec<(String, Vec<u8>)>;
    let mut types = linker.instance(TYPES)?;
    types.func_wrap(
        "[static]fields.from-list",
        |mut store: StoreContextMut<'_, Guest<T>>, (entries,): (Entries,)| {
            let guest = store.data_mut();
            let lengths = entries.iter().map(|(name, value)| name.len() + value.len());
            let texts: u64 = lengths.map(|length| length as u64 + 2 * TEXT_FUEL).sum();
            guest.charge(HEADERS_FUEL + texts);
            Ok((header_result(guest.http().from_list(entries))?,))
        },
    )?;
    types.func_wrap(
        "[method]fields.get",
        |mut store: StoreContextMut<'_, Guest<T>>, (fields, name): (Fields, String)| {
            let guest = store.data_mut();
            guest.charge(HEADERS_FUEL + name.len() as u64);
            Ok((guest.http().get(fields, name)?,))
        },
    )?;
    types.func_wrap(
        "[method]fields.has",
        |mut store: StoreContextMut<'_, Guest<T>>, (fields, name): (Fields, String)| {
            let guest = store.data_mut();
            guest.charge(HEADERS_FUEL + name.len() as u64);
            Ok((guest.http().has(fields, name)?,))
        },
    )?;
    types.func_wrap(
        "[method]fields.set",
        |mut store: StoreContextMut<'_, Guest<T>>, (fields, name, values): (Fields, String, Vec<Vec<u8>>)| {
            let guest = store.data_mut();
            let texts: u64 = values.iter().map(|value| value.len() as u64 + TEXT_FUEL).sum();
            guest.charge(HEADERS_FUEL + name.len() as u64 + texts);
            Ok((header_result(guest.http().set(fields, name, values))?,))
        },
    )?;
    types.func_wrap(
        "[method]fields.delete",
        |mut store: StoreContextMut<'_, Guest<T>>, (fields, name): (Fields, String)| {
            let guest = store.data_mut();
            guest.charge(HEADERS_FUEL + name.len() as u64);
            Ok((header_result(guest.http().delete(fields, name))?,))
        },
    )?;
    types.func_wrap(
        "[method]fields.append",
        |mut store: StoreContextMut<'_, Guest<T>>, (fields, name, value): (Fields, String, Vec<u8>)| {
            let guest = store.data_mut();
            guest.charge(HEADERS_FUEL + (name.len() + value.len()) as u64);
            Ok((header_result(guest.http().append(fields, name, value))?,))
        },
    )?;
    types.func_wrap(
        "[method]fields.entries",
        |mut store: StoreContextMut<'_, Guest<T>>, (fields,): (Fields,)| {
            let guest = store.data_mut();
            guest.charge(HEADERS_FUEL);
            Ok((guest.http().entries(fields)?,))
        },
    )
}

/// Separates the errors that the guest may handle from those that end its call.
fn header_result<R>(outcome: HeaderResult<R>) -> wasmtime::Result<Result<R, HeaderError>> {
    match outcome {
        Ok(value) => Ok(Ok(value)),
        Err(error) => Ok(Err(error.downcast()?)),
    }
}

/// Defines the component's imports from `wasi:http` as functions that end the call with an explanation.
///
/// # Errors
/// [`Error::Engine`]; not seen in practice.
pub fn deny_http<T: Send + 'static>(
    linker: &mut Linker<Guest<T>>,
    component: &Component,
) -> Result<(), Error> {
    let engine = linker.engine().clone();
    // Resources of the interfaces so far. Later interfaces may use them, and must not define them again.
    let mut resources: Vec<ResourceType> = Vec::new();
    for (name, import) in component.inner().component_type().imports(&engine) {
        let ComponentItem::ComponentInstance(interface) = import.ty else { continue };
        for (export, item) in interface.exports(&engine) {
            let new = match item.ty {
                ComponentItem::Resource(resource) if resources.contains(&resource) => continue,
                ComponentItem::Resource(resource) => {
                    resources.push(resource);
                    Denied::Resource
                }
                ComponentItem::ComponentFunc(_) => Denied::Function,
                _ => continue,
            };
            if name.starts_with("wasi:http/") {
                deny(linker, name, export, new).map_err(|error| Error::Engine(format!("{error:#}")))?;
            }
        }
    }
    Ok(())
}

/// Kinds of items in an interface that is denied.
enum Denied {
    Function,
    Resource,
}

fn deny<T: Send + 'static>(
    linker: &mut Linker<Guest<T>>,
    interface: &str,
    item: &str,
    kind: Denied,
) -> wasmtime::Result<()> {
    let mut instance = linker.instance(interface)?;
    match kind {
        Denied::Function => {
            let message = format!(
                "it called {interface}#{item}, but no host is granted: add one with `grant {{ http = [\"HOST\"] }}`"
            );
            instance.func_new(item, move |_, _, _, _| Err(HostError(message.clone()).into()))
        }
        // No function creates one.
        Denied::Resource => instance.resource(item, ResourceType::host::<()>(), |_, _| Ok(())),
    }
}
