//! `pl-host graph`: a drawing of a workflow.

use std::borrow::Cow;
use std::io::{IsTerminal, Write};

use pl_dsl::graph::{Graph, TerminalOptions};

use crate::app::App;
use crate::arguments::workflow::{GraphArgs, GraphFormat};
use crate::exit::{CommandError, CommandResult};
use crate::output_file::OutputFile;
use crate::visible::{self, visible};

/// Columns if stdout is not a terminal.
const DEFAULT_WIDTH: usize = 100;

pub fn run(app: &App, options: &GraphArgs) -> CommandResult {
    let checked = app.open(&options.source)?;
    let workflow = &checked.workflow;
    let wanted = options.scenario.as_deref().map(|name| checked.scenario(Some(name))).transpose()?;
    let graphs = match wanted {
        Some(scenario) => vec![Graph::new(workflow, scenario)],
        None => Graph::of_scenarios(workflow),
    };
    let drawing = match (options.format, graphs.as_slice()) {
        (GraphFormat::Terminal, graphs) => {
            let drawings = graphs.iter().map(|graph| terminal_drawing(graph, options));
            drawings.collect::<Result<Vec<_>, _>>()?.join("\n")
        }
        (GraphFormat::Json, [graph]) => format!("{:#}\n", graph.json().map_err(CommandError::failed)?),
        (GraphFormat::Json, _) => {
            format!("{:#}\n", Graph::json_of_scenarios(workflow).map_err(CommandError::failed)?)
        }
        (GraphFormat::Mermaid, [graph]) => graph.mermaid(),
        (GraphFormat::Dot, [graph]) => graph.dot(),
        (GraphFormat::Svg, [graph]) => graph.svg().map_err(CommandError::failed)?,
        (GraphFormat::Mermaid | GraphFormat::Dot | GraphFormat::Svg, _) => {
            let message = "a drawing in this format shows one scenario: name it with --scenario";
            return Err(CommandError::input(message));
        }
    };
    match &options.out {
        Some(path) => {
            let mut file = OutputFile::create(path)?;
            file.write_all(drawing.as_bytes()).map_err(|error| file.failure(&error))?;
            file.finish()
        }
        // Its colours are escapes, and those of names were shown.
        None if options.format == GraphFormat::Terminal => {
            Ok(std::io::stdout().lock().write_all(drawing.as_bytes())?)
        }
        None => Ok(visible::stdout().write_all(drawing.as_bytes())?),
    }
}

/// Draws for a terminal. Control characters of names are shown, then without colours.
fn terminal_drawing(graph: &Graph, options: &GraphArgs) -> Result<String, CommandError> {
    let draw = |options| graph.terminal(&options).map_err(CommandError::failed);
    let colourful = terminal_options(options);
    match visible(&draw(TerminalOptions { colour: false, ..terminal_options(options) })?) {
        Cow::Borrowed(_) => draw(colourful),
        Cow::Owned(shown) => Ok(shown),
    }
}

/// Returns the options of the terminal form. Only a terminal has colours and a width of its own.
fn terminal_options(options: &GraphArgs) -> TerminalOptions {
    let terminal = options.out.is_none() && std::io::stdout().is_terminal();
    let size = || terminal.then(|| console::Term::stdout().size_checked()).flatten();
    TerminalOptions {
        width: options.width.or_else(|| size().map(|(_, columns)| columns.into())).unwrap_or(DEFAULT_WIDTH),
        colour: terminal && console::colors_enabled(),
        ascii: options.ascii,
    }
}
