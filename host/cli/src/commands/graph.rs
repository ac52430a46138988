//! `pl-host graph`: a workflow as a picture.

use std::io::{IsTerminal, Write};

use pl_dsl::graph::{Graph, Screen};

use crate::arguments::{Graph as Options, Picture};
use crate::exit::{Outcome, Stop};
use crate::session::Loaded;

/// Columns where there is no terminal to ask.
const USUAL_WIDTH: usize = 100;

pub fn run(options: &Options) -> Outcome {
    let runtime = tokio::runtime::Runtime::new().map_err(Stop::failed)?;
    let loaded = Loaded::open(&runtime, &options.source.file, &options.source.given.all()?)?;
    let graph = Graph::of(&loaded.workflow);
    let picture = match options.format {
        Picture::Terminal => graph.terminal(&screen(options)),
        Picture::Mermaid => graph.mermaid(),
        Picture::Dot => graph.dot(),
        Picture::Json => format!("{:#}\n", graph.json()),
        Picture::Svg => graph.svg(),
    };
    match &options.out {
        Some(out) => std::fs::write(out, picture)
            .map_err(|e| Stop::input(format!("cannot write {}: {e}", out.display()))),
        None => Ok(std::io::stdout().lock().write_all(picture.as_bytes())?),
    }
}

/// Colours and the terminal's width are for a terminal alone.
fn screen(options: &Options) -> Screen {
    let terminal = options.out.is_none() && std::io::stdout().is_terminal();
    let own = || terminal.then(|| console::Term::stdout().size_checked()).flatten();
    Screen {
        width: options.width.or_else(|| own().map(|(_, columns)| columns.into())).unwrap_or(USUAL_WIDTH),
        colour: terminal && console::colors_enabled(),
        ascii: options.ascii,
    }
}
