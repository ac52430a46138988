//! Arguments of `serve`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use clap::builder::RangedU64ValueParser;

use super::common::{DeviceChoice, OverrideArgs};
use super::permissions::PermissionArgs;

#[derive(Args)]
pub struct ServeArgs {
    /// The workflow (.mas), or a run folder, of which the newest checkpoint is served
    #[arg(value_name = "FILE|RUN")]
    pub file: PathBuf,
    #[command(flatten)]
    pub given: OverrideArgs,
    /// Device of all tensors
    #[arg(long, value_enum, default_value_t = DeviceChoice::Auto)]
    pub device: DeviceChoice,
    /// A run folder (its newest checkpoint) or one of its checkpoints
    #[arg(long, value_name = "DIR")]
    pub checkpoint: Option<PathBuf>,
    /// Allow a run folder that somebody else wrote to use the plugins, folders and hosts that it names
    #[arg(long)]
    pub trust: bool,
    /// Address and port to listen on; port 0 takes any that is free
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8000")]
    pub listen: SocketAddr,
    /// Environment variable with the key that requests must carry. Needed unless the address is loopback
    #[arg(long, value_name = "VARIABLE")]
    pub key_variable: Option<String>,
    /// Requests in progress; further ones are refused with status 429
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 256,
        value_parser = RangedU64ValueParser::<usize>::new().range(1..)
    )]
    pub max_requests: usize,
    /// Let clients load adapters (POST /v1/load_lora_adapter): they may then name any folder of this machine
    #[arg(long)]
    pub allow_runtime_adapters: bool,
    /// Let clients replace the weights of policies without `lora` (POST /update_weights), pause the engine and let it
    /// sleep: they may then name any folder of this machine
    #[arg(long)]
    pub allow_runtime_weights: bool,
    /// Scenario to serve as the team [default: the first of the file]
    #[arg(long, value_name = "NAME")]
    pub scenario: Option<String>,
    /// Name of the team as a model
    #[arg(long, value_name = "NAME", default_value = "team")]
    pub team: String,
    #[command(flatten)]
    pub permissions: PermissionArgs,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_takes_no_request_is_refused() {
        let parse = |requests: &str| {
            let command = ServeArgs::augment_args(clap::Command::new("serve"));
            command.try_get_matches_from(["serve", "team.mas", "--max-requests", requests])
        };
        assert!(parse("1").is_ok());
        assert!(parse("0").unwrap_err().to_string().contains("--max-requests"));
    }
}
