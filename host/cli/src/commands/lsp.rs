//! `pl-host lsp`: the language server of workflow files, over standard input and output.

use std::path::Path;

use pl_dsl::Catalog;
use pl_lsp::{Ended, Host, serve};
use tokio::runtime::Handle;

use crate::catalog::Plugins;
use crate::exit::{Outcome, Stop};

pub fn run() -> Outcome {
    let runtime = tokio::runtime::Runtime::new().map_err(Stop::failed)?;
    let handle = runtime.handle().clone();
    let host = Host {
        catalog: Box::new(move |folder| open(folder, &handle)),
        format: |text| pl_dsl::format(text).ok(),
    };
    match serve(std::io::stdin(), std::io::stdout().lock(), host) {
        Ok(Ended::InOrder) => Ok(()),
        Ok(Ended::Abruptly) => Err(Stop::failed("the editor left without a word")),
        Err(error) => Err(Stop::failed(error)),
    }
}

fn open(folder: &Path, runtime: &Handle) -> Result<Box<dyn Catalog>, String> {
    let plugins = Plugins::new(folder, runtime).map_err(|stop| match stop {
        Stop::Input(why) | Stop::Failed(why) | Stop::Interrupted(why) => why,
        Stop::Diagnosed | Stop::PipeClosed => "the cache of compiled plugins can't be opened".to_owned(),
    })?;
    Ok(Box::new(plugins))
}
