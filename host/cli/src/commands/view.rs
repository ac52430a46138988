//! `pl-host view`: run folders in a browser.

use std::io::Write;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::Arc;

use pl_run::Host;
use pl_viewer::{AccessToken, Viewer};
use tempfile::NamedTempFile;
use tokio::net::TcpListener;

use crate::app::App;
use crate::arguments::view::ViewArgs;
use crate::exit::{CommandError, CommandResult};
use crate::interrupt::first_signal;
use crate::stored_workflows::StoredWorkflows;

pub fn run(app: &App, options: &ViewArgs) -> CommandResult {
    let workflows = StoredWorkflows::new(options.trust);
    let viewer = Viewer::new(options.folders.clone(), Arc::new(workflows));
    viewer.check_folders().map_err(CommandError::input)?;
    app.host.block_on(listen(&app.host, options, viewer))
}

async fn listen(host: &Host, options: &ViewArgs, viewer: Viewer) -> CommandResult {
    let address = options.listen;
    let failed = |error: std::io::Error| CommandError::failed(format!("cannot listen on {address}: {error}"));
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let token = AccessToken::random();
    let url = page_url(address, &token);
    eprintln!("viewing runs on {url} (Ctrl-C stops)");
    if !address.ip().is_loopback() {
        eprintln!("warning: the connection is not encrypted; anyone who sees the address can read the runs");
    }
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
            eprintln!("no browser can be started ({error}); open the address above");
            None
        }
    }
}
