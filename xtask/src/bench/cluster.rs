//! `cargo xtask bench cluster`: simulated workers on a NATS server, with Ray beside them.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::cargo::cargo;
use crate::python_env;

/// Workers of the peer: a process each.
const PEER_WORKERS: [&str; 2] = ["10", "40"];

pub fn run(root: &Path) -> Result<()> {
    let mut ours = cargo(root);
    ours.args(["bench", "--quiet", "--workspace", "--bench", "leases"]);
    let status = ours.status().context("cannot start cargo")?;
    anyhow::ensure!(status.success(), "the benchmark failed: see above");
    let python = python_env::set_up("peer-ray", "Ray, 80 MB,", |_| Ok(()))?;
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
