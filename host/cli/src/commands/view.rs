//! `pl-host view`: run folders in a browser.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use pl_run::Host;
use pl_types::is_loopback;
use pl_viewer::{AccessToken, Viewer};
use tempfile::NamedTempFile;
use tokio::net::TcpListener;

use crate::app::App;
use crate::arguments::view::ViewArgs;
use crate::exit::{CommandError, CommandResult};
use crate::interrupt::first_signal;
use crate::play_worker::play_worker;
use crate::stderr;
use crate::stored_workflows::StoredWorkflows;

/// Address and port unless the user names others.
const DEFAULT_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7575);

pub fn run(app: &App, options: &ViewArgs) -> CommandResult {
    let workflows = StoredWorkflows::new(options.trust);
    let viewer = Viewer::new(options.folders.clone(), Arc::new(workflows));
    viewer.check_folders().map_err(CommandError::input)?;
    if !options.play && !is_loopback(options.listen.ip()) {
        return app.host.block_on(listen(&app.host, options, viewer));
    }
    let (queue, worker) = play_worker(options.device.into(), options.trust);
    let queue = Arc::new(queue);
    let viewer = viewer.with_player(queue.clone());
    std::thread::scope(|scope| {
        scope.spawn(|| worker.run(&app.host));
        let ended = app.host.block_on(listen(&app.host, options, viewer));
        queue.end();
        ended
    })
}

/// Listens for the viewer of a run that this process will train. Without an address, the default one is used if it is free.
pub fn bind_beside_run(host: &Host, address: Option<SocketAddr>) -> Result<Bound, CommandError> {
    host.block_on(async {
        match address {
            Some(address) => bind(address).await,
            None => match bind(DEFAULT_ADDRESS).await {
                Err(_) => bind(SocketAddr::from((DEFAULT_ADDRESS.ip(), 0))).await,
                bound => bound,
            },
        }
    })
}

/// Shows a run that this process trains, until the process ends.
pub fn beside_run(host: &Host, folder: &Path, bound: Bound) {
    let workflows = StoredWorkflows::new(false);
    let viewer = Viewer::new(vec![folder.to_path_buf()], Arc::new(workflows));
    let Bound { listener, token, url } = bound;
    stderr::line(&format!("viewing the run on {url} (until it ends; `pl-host view` shows it later)"));
    host.handle().spawn(async {
        if let Err(error) = pl_viewer::serve(listener, viewer, token, std::future::pending()).await {
            stderr::line(&format!("the viewer stopped, the run goes on: {error}"));
        }
    });
}

/// A listener with the token of its page.
pub struct Bound {
    listener: TcpListener,
    token: AccessToken,
    /// Address that opens the page.
    url: String,
}

/// Listens on an address. Warns if others can reach it.
async fn bind(address: SocketAddr) -> Result<Bound, CommandError> {
    let failed = |error: std::io::Error| CommandError::failed(format!("cannot listen on {address}: {error}"));
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let token = AccessToken::random();
    if !is_loopback(address.ip()) {
        stderr::line(
            "warning: the connection is not encrypted; anyone who sees the address can read the runs",
        );
    }
    Ok(Bound { url: page_url(address, &token), listener, token })
}

async fn listen(host: &Host, options: &ViewArgs, viewer: Viewer) -> CommandResult {
    let Bound { listener, token, url } = bind(options.listen).await?;
    stderr::line(&format!("viewing runs on {url} (Ctrl-C stops)"));
    // Deleted when the server ends.
    let _redirection = if options.open { open_browser(&url) } else { None };
    pl_viewer::serve(listener, viewer, token, first_signal(host))
        .await
        .map_err(|error| CommandError::failed(format!("the server stopped: {error}")))
}

/// Returns the address that opens the page. An address that stands for all of the machine's is shown as loopback.
fn page_url(address: SocketAddr, token: &AccessToken) -> String {
    let mut shown = address;
    if shown.ip().is_unspecified() {
        shown.set_ip(if shown.is_ipv4() {
            [127, 0, 0, 1].into()
        } else {
            std::net::Ipv6Addr::LOCALHOST.into()
        });
    }
    format!("http://{shown}/?token={}", token.as_str())
}

/// Opens the page through a file that leads to it: all users of a machine see the arguments of a process, and the
/// token must not be among them.
fn open_browser(url: &str) -> Option<NamedTempFile> {
    let opened = || -> std::io::Result<NamedTempFile> {
        let mut file = tempfile::Builder::new().prefix("pl-host-view-").suffix(".html").tempfile()?;
        write!(
            file,
            "<!doctype html><meta http-equiv=\"refresh\" content=\"0;url={url}\"><a href=\"{url}\">runs</a>"
        )?;
        let mut browser = Command::new("xdg-open");
        browser.arg(file.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        Ok(file)
    };
    match opened() {
        Ok(file) => Some(file),
        Err(error) => {
            stderr::line(&format!("no browser can be started ({error}); open the address above"));
            None
        }
    }
}
