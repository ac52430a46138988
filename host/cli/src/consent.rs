//! The question whether a workflow may use what it needs of the machine.

use std::io::{BufRead, IsTerminal};

use pl_run::{PermissionRequest, flags};

use crate::exit::CommandError;
use crate::stderr;
use crate::visible::visible;

/// Asks once for all that a workflow requests. Returns false without a terminal, where flags are the only answer.
pub fn ask(workflow: &str, requests: &[PermissionRequest]) -> Result<bool, CommandError> {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() || !std::io::stderr().is_terminal() {
        return Ok(false);
    }
    stderr::text(&visible(&question(workflow, requests)));
    let mut line = String::new();
    stdin.lock().read_line(&mut line).map_err(CommandError::failed)?;
    Ok(is_yes(&line))
}

fn question(workflow: &str, requests: &[PermissionRequest]) -> String {
    let lines: Vec<String> = requests.iter().map(|request| format!("  {request}\n")).collect();
    format!(
        "{workflow} needs more than its own folder:\n{}({})\nAllow it? [y/N] ",
        lines.concat(),
        flags(requests)
    )
}

fn is_yes(line: &str) -> bool {
    matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}

#[cfg(test)]
mod tests {
    use pl_run::Access;

    use super::*;

    #[test]
    fn the_question_lists_each_request_and_only_yes_is_consent() {
        let requests = [
            PermissionRequest {
                access: Access::Env("KEY".to_owned()),
                purpose: "the key is in KEY".to_owned(),
                place: None,
            },
            PermissionRequest {
                access: Access::net("https://a.org"),
                purpose: "plugin p sends to a.org".to_owned(),
                place: None,
            },
        ];
        assert_eq!(
            question("math", &requests),
            "math needs more than its own folder:\n  the key is in KEY\n  plugin p sends to a.org\n\
             (--allow-net=a.org:443 --allow-env=KEY)\nAllow it? [y/N] "
        );
        assert!(is_yes("y\n") && is_yes(" YES "));
        assert!(!is_yes("\n") && !is_yes("") && !is_yes("no") && !is_yes("yy"));
    }
}
