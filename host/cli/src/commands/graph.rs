//! `pl-host graph`: a drawing of a workflow.

use std::io::{IsTerminal, Write};

use pl_dsl::graph::{Graph, TerminalOptions};

use crate::App;
use crate::arguments::{Graph as Options, GraphFormat};
use crate::exit::{CommandError, CommandResult};

/// Columns if stdout is not a terminal.
const DEFAULT_WIDTH: usize = 100;

pub fn run(app: &App, options: &Options) -> CommandResult {
    let checked = app.open(&options.source)?;
    let graph = Graph::new(&checked.workflow);
    let drawing = match options.format {
        GraphFormat::Terminal => graph.terminal(&terminal_options(options)).map_err(CommandError::failed)?,
        GraphFormat::Mermaid => graph.mermaid(),
        GraphFormat::Dot => graph.dot(),
        GraphFormat::Json => format!("{:#}\n", graph.json().map_err(CommandError::failed)?),
        GraphFormat::Svg => graph.svg().map_err(CommandError::failed)?,
    };
    match &options.out {
        Some(out) => std::fs::write(out, drawing)
            .map_err(|e| CommandError::input(format!("cannot write {}: {e}", out.display()))),
        None => Ok(std::io::stdout().lock().write_all(drawing.as_bytes())?),
    }
}

/// Returns the options of the terminal form. Only a terminal has colours and a width of its own.
fn terminal_options(options: &Options) -> TerminalOptions {
    let terminal = options.out.is_none() && std::io::stdout().is_terminal();
    let size = || terminal.then(|| console::Term::stdout().size_checked()).flatten();
    TerminalOptions {
        width: options.width.or_else(|| size().map(|(_, columns)| columns.into())).unwrap_or(DEFAULT_WIDTH),
        colour: terminal && console::colors_enabled(),
        ascii: options.ascii,
    }
}
