//! WASI calls; each function returns its result as one line of text.

use wasip2::cli::{environment, stderr, stdout};
use wasip2::clocks::{monotonic_clock, wall_clock};
use wasip2::filesystem::preopens::get_directories;
use wasip2::filesystem::types::{Descriptor, DescriptorFlags, OpenFlags, PathFlags};
use wasip2::http::outgoing_handler::handle;
use wasip2::http::types::{Fields, OutgoingRequest, Scheme};
use wasip2::random::random::get_random_u64;
use wasip2::sockets::instance_network::instance_network;
use wasip2::sockets::ip_name_lookup::resolve_addresses;
use wasip2::sockets::network::{IpAddressFamily, IpSocketAddress, Ipv4SocketAddress};
use wasip2::sockets::tcp_create_socket::create_tcp_socket;

const MAX_BYTES: u64 = 1 << 16;

fn root() -> Result<Descriptor, String> {
    get_directories().pop().map(|(root, _)| root).ok_or_else(|| "no folder".to_owned())
}

fn or_refused(outcome: Result<String, String>) -> String {
    outcome.unwrap_or_else(|error| format!("refused: {error}"))
}

pub fn read(path: &str) -> String {
    or_refused(root().and_then(|root| {
        let file = root
            .open_at(PathFlags::empty(), path, OpenFlags::empty(), DescriptorFlags::READ)
            .map_err(|code| code.name().to_owned())?;
        let (bytes, _) = file.read(MAX_BYTES, 0).map_err(|code| code.name().to_owned())?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }))
}

pub fn write(path: &str) -> String {
    or_refused(root().and_then(|root| {
        root.open_at(PathFlags::empty(), path, OpenFlags::CREATE, DescriptorFlags::WRITE)
            .map_err(|code| code.name().to_owned())?;
        Ok("created".to_owned())
    }))
}

pub fn http_get(authority: &str, path: &str, encrypted: bool) -> String {
    or_refused(send_request(authority, path, encrypted))
}

fn send_request(authority: &str, path: &str, encrypted: bool) -> Result<String, String> {
    let request = OutgoingRequest::new(Fields::new());
    let scheme = if encrypted { Scheme::Https } else { Scheme::Http };
    let set = request
        .set_scheme(Some(&scheme))
        .and_then(|()| request.set_authority(Some(authority)))
        .and_then(|()| request.set_path_with_query(Some(path)));
    set.map_err(|()| "the request is invalid".to_owned())?;
    let pending = handle(request, None).map_err(|code| format!("{code:?}"))?;
    pending.subscribe().block();
    let result = pending.get().ok_or("no response")?.map_err(|()| "the response was taken already")?;
    let response = result.map_err(|code| format!("{code:?}"))?;
    let body = response.consume().map_err(|()| "no body")?;
    let stream = body.stream().map_err(|()| "no stream")?;
    let mut bytes = Vec::new();
    while let Ok(more) = stream.blocking_read(MAX_BYTES) {
        bytes.extend(more);
    }
    Ok(format!("{} {}", response.status(), String::from_utf8_lossy(&bytes)))
}

pub fn surroundings() -> String {
    let network = instance_network();
    let looked_up = match resolve_addresses(&network, "localhost") {
        Ok(_) => "found".to_owned(),
        Err(code) => code.name().to_owned(),
    };
    let connected = create_tcp_socket(IpAddressFamily::Ipv4).and_then(|socket| {
        let address = IpSocketAddress::Ipv4(Ipv4SocketAddress { port: 80, address: (127, 0, 0, 1) });
        socket.start_connect(&network, address)
    });
    let connected = match connected {
        Ok(()) => "connecting".to_owned(),
        Err(code) => code.name().to_owned(),
    };
    let (environment, arguments) = (environment::get_environment(), environment::get_arguments());
    format!("environment {environment:?}, arguments {arguments:?}, look-up {looked_up}, tcp {connected}")
}

pub fn time() -> String {
    let read_clocks = || (monotonic_clock::now(), wall_clock::now());
    let before = read_clocks();
    monotonic_clock::subscribe_duration(1_000_000).block();
    let after = read_clocks();
    format!("{before:?} {after:?} {} {}", get_random_u64(), get_random_u64())
}

pub fn print(out: &str, err: &str) -> String {
    let wrote = stdout::get_stdout()
        .blocking_write_and_flush(out.as_bytes())
        .and_then(|()| stderr::get_stderr().blocking_write_and_flush(err.as_bytes()));
    match wrote {
        Ok(()) => "printed".to_owned(),
        Err(error) => format!("refused: {error:?}"),
    }
}

/// Bytes of a header, and of a method.
const LARGE: usize = 7 << 10;

/// Creates resources of a kind and drops none of them.
pub fn hoard(kind: &str, count: u32) -> String {
    or_refused((0..count).try_for_each(|_| one(kind)).map(|()| format!("{count} {kind}")))
}

/// Creates a resource that is never dropped.
fn one(kind: &str) -> Result<(), String> {
    let named = |code: wasip2::filesystem::types::ErrorCode| code.name().to_owned();
    let file = |root: &Descriptor| {
        root.open_at(PathFlags::empty(), "tables/table.txt", OpenFlags::empty(), DescriptorFlags::READ)
            .map_err(named)
    };
    match kind {
        "fields" => {
            let fields = Fields::new();
            fields.append("x", &vec![b'x'; LARGE]).map_err(|error| format!("{error:?}"))?;
            std::mem::forget(fields);
        }
        "requests" => {
            let request = OutgoingRequest::new(Fields::new());
            request.set_path_with_query(Some(&format!("/{}", "x".repeat(LARGE)))).map_err(|()| "invalid")?;
            std::mem::forget(request);
        }
        "descriptors" => std::mem::forget(file(&root()?)?),
        "listings" => std::mem::forget(root()?.read_directory().map_err(named)?),
        "streams" => std::mem::forget(file(&root()?)?.read_via_stream(0).map_err(named)?),
        "pollables" => std::mem::forget(monotonic_clock::subscribe_duration(1)),
        _ => return Err(format!("no kind of resource is named {kind}")),
    }
    Ok(())
}
