//! `cargo xtask bench cluster`: simulated workers on a NATS server, with Ray beside them.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use pl_toolchain::cache;

use super::engine::succeed;
use crate::cargo::cargo;

/// Requirements of the peer, from the Python package index: 80 MB.
const PEER: [&str; 2] = ["ray==2.60.0", "psutil"];

/// Workers of the peer: a process each.
const PEER_WORKERS: [&str; 2] = ["10", "40"];

pub fn run(root: &Path) -> Result<()> {
    let mut ours = cargo(root);
    ours.args(["bench", "--quiet", "--workspace", "--bench", "leases"]);
    let status = ours.status().context("cannot start cargo")?;
    anyhow::ensure!(status.success(), "the benchmark failed: see above");
    let home = cache::root()?.join("peer-ray");
    let python = home.join("bin/python");
    if !home.join("complete").exists() {
        eprintln!("fetching Ray into {}: 80 MB, once", home.display());
        succeed(Command::new("python3").args(["-I", "-m", "venv", "--clear"]).arg(&home))?;
        succeed(Command::new(&python).args(["-I", "-m", "pip", "install", "--quiet"]).args(PEER))?;
        std::fs::write(home.join("complete"), "")?;
    }
    println!(
        "\n| Ray | workers | tasks/s | joined s | CPU ms per task | MB of all processes |\n|---|---|---|---|---|---|"
    );
    for workers in PEER_WORKERS {
        let mut peer = Command::new(&python);
        peer.arg(root.join("bench/peers/cluster_ray.py")).args(["--workers", workers]);
        let status = peer.status().with_context(|| format!("cannot start {}", python.display()))?;
        anyhow::ensure!(status.success(), "Ray failed with {workers} workers: see above");
    }
    Ok(())
}
