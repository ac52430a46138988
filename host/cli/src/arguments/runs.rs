//! Arguments of the commands that read run folders: `replay` and `compare`.

use std::path::PathBuf;

use clap::Args;
use pl_types::EpisodeId;

use super::permissions::PermissionArgs;

#[derive(Args)]
pub struct ReplayArgs {
    /// The run folder
    pub run: PathBuf,
    /// The episode: STEP.TASK.SAMPLE, such as 12.3.0; test@10.3.0 in an evaluation; 12.3.0#1 for the second
    /// of several attempts [default: list all episodes]
    #[arg(value_name = "EPISODE", group = "replayed")]
    pub episode: Option<EpisodeId>,
    /// Replay every episode of the run
    #[arg(long, group = "replayed")]
    pub all: bool,
    /// Only attempts that failed or had a failed candidate
    #[arg(long, conflicts_with = "episode")]
    pub failed: bool,
    /// Show the episode as a conversation, with the log messages and output of plugins
    #[arg(long, requires = "episode", conflicts_with = "all")]
    pub show: bool,
    /// Use another build of a plugin
    #[arg(long = "plugin", value_name = "NAME=FILE", value_parser = named_file, requires = "replayed")]
    pub plugins: Vec<(String, PathBuf)>,
    /// Allow a run folder that somebody else wrote to use the plugins and folders that it names
    #[arg(long)]
    pub trust: bool,
    #[command(flatten)]
    pub permissions: PermissionArgs,
}

fn named_file(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((name, file)) if !name.is_empty() && !file.is_empty() => Ok((name.to_owned(), file.into())),
        _ => Err("write NAME=FILE: the plugin's name in the workflow, and a component".to_owned()),
    }
}

#[derive(Args)]
pub struct CompareArgs {
    /// Run folders
    #[arg(required = true, num_args = 2.., value_name = "RUN")]
    pub runs: Vec<PathBuf>,
    /// Print the comparison as JSON
    #[arg(long)]
    pub json: bool,
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        own: ReplayArgs,
    }

    #[test]
    fn options_without_an_effect_are_refused() {
        let is_valid = |flags: &[&str]| Flags::try_parse_from(["pl-host", "run"].iter().chain(flags)).is_ok();
        for flags in [
            &[][..],
            &["--failed"],
            &["1.0.0", "--show", "--plugin", "maths=m.wasm"],
            &["--all", "--failed", "--plugin", "maths=m.wasm"],
        ] {
            assert!(is_valid(flags), "{flags:?}");
        }
        for flags in [
            &["--show"][..],
            &["--all", "--show"],
            &["1.0.0", "--all"],
            &["1.0.0", "--failed"],
            &["--plugin", "maths=m.wasm"],
            &["--failed", "--plugin", "maths=m.wasm"],
        ] {
            assert!(!is_valid(flags), "{flags:?}");
        }
    }
}
