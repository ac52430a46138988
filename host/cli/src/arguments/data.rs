//! Arguments of the commands `data …`.

use clap::{Args, Subcommand};

#[derive(Subcommand)]
pub enum DataCommand {
    /// List the data sets that `tasks = "NAME:SPLIT"` may name, and which are on this machine
    List(DataListArgs),
    /// Show a data set: its source, its licence, where its files are or belong, a task of each split
    Show(DataShowArgs),
    /// Read the data sets that are on this machine, and count their tasks
    Check(DataCheckArgs),
}

#[derive(Args)]
pub struct DataListArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct DataShowArgs {
    /// Name of the data set, NAME:SPLIT for one split, or the path of a task file or a folder (./FOLDER, ./FOLDER:SPLIT)
    pub name: String,
}

#[derive(Args)]
pub struct DataCheckArgs {
    /// Name of a data set, NAME:SPLIT for one split, or the path of a task file or a folder [default: all]
    pub name: Option<String>,
}
