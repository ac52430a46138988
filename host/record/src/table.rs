//! Transitions as Parquet: one file per step, one row per transition, columns named after the fields of
//! [`Transition`] (keys and groups flattened, token ids and log-probs as lists).
//!
//! Written and read by column and by record, without Arrow: its crates would be a tenth of a cold build.

use std::path::Path;

use parquet::data_type::{BoolType, DoubleType, FloatType, Int32Type, Int64Type};
use parquet::errors::Result;
use parquet::file::reader::FileReader;
use parquet::record::{Field, Row};
use pl_parquet::{Limit, guarded};
use pl_types::{Group, Key, Transition};

use crate::Error;
use crate::column_writer::{Columns, write_file};
use crate::step_table::version_changes;
use crate::table_file::{LARGEST_TABLE, open_table, unreadable};

/// Columns in the order in which [`write_columns`] writes them.
const SCHEMA: &str = "message transitions {
    required int64 step (INTEGER(64, false));
    required int32 task (INTEGER(32, false));
    required int32 sample (INTEGER(32, false));
    required int32 node_visit (INTEGER(32, false));
    required int32 agent_index (INTEGER(32, false));
    required int32 branch (INTEGER(32, false));
    optional int32 group_node_visit (INTEGER(32, false));
    required binary task_id (STRING);
    required binary agent (STRING);
    required int32 policy (INTEGER(32, false));
    required int32 turn (INTEGER(32, false));
    required group prompt (LIST) { repeated group list { required int32 element (INTEGER(32, false)); } }
    required group completion (LIST) { repeated group list { required int32 element (INTEGER(32, false)); } }
    required group logprobs (LIST) { repeated group list { required float element; } }
    optional group support (LIST) {
        repeated group list {
            required group element (LIST) {
                repeated group list { required int32 element (INTEGER(32, false)); }
            }
        }
    }
    required double temperature;
    required group versions (LIST) { repeated group list { required int64 element (INTEGER(64, false)); } }
    required int64 version (INTEGER(64, false));
    required double team_reward;
    required double local_reward;
    required double reward;
    required boolean success;
    required boolean chosen;
    required binary action (STRING);
    required binary state (STRING);
    required int32 max_tokens (INTEGER(32, false));
    required boolean cut_off;
    optional group next_prompt (LIST) { repeated group list { required int32 element (INTEGER(32, false)); } }
    optional group values (LIST) { repeated group list { required float element; } }
    required int32 call (INTEGER(32, false));
    required boolean final_call;
    required group change_tokens (LIST) { repeated group list { required int32 element (INTEGER(32, false)); } }
    required group change_versions (LIST) { repeated group list { required int64 element (INTEGER(64, false)); } }
}";

/// Writes the file whole or not at all. Equal transitions give equal bytes.
pub fn write_transitions(path: &Path, transitions: &[Transition]) -> std::result::Result<(), Error> {
    write_file(path, SCHEMA, |columns| write_columns(columns, transitions))
}

fn write_columns(mut columns: Columns<'_>, rows: &[Transition]) -> Result<()> {
    columns.u64s(rows, |t| t.key.step)?;
    columns.u32s(rows, |t| t.key.task)?;
    columns.u32s(rows, |t| t.key.sample)?;
    columns.u32s(rows, |t| t.key.node_visit)?;
    columns.u32s(rows, |t| t.key.agent)?;
    columns.u32s(rows, |t| t.key.branch)?;
    columns.optional_u32s(rows, |t| t.group.node_visit)?;
    columns.texts(rows, |t| &t.task_id)?;
    columns.texts(rows, |t| &t.agent)?;
    columns.u32s(rows, |t| t.policy)?;
    columns.u32s(rows, |t| t.turn)?;
    columns.lists::<Int32Type, _, _>(rows, |t| t.prompt.iter().map(|id| *id as i32))?;
    columns.lists::<Int32Type, _, _>(rows, |t| t.completion.iter().map(|id| *id as i32))?;
    columns.lists::<FloatType, _, _>(rows, |t| t.logprobs.iter().copied())?;
    columns.optional_nested_lists(rows, |t| t.support.as_deref())?;
    columns.values::<DoubleType, _>(rows, |t| t.temperature)?;
    columns.lists::<Int64Type, _, _>(rows, |t| t.versions.iter().map(|version| *version as i64))?;
    columns.u64s(rows, |t| t.version)?;
    columns.values::<DoubleType, _>(rows, |t| t.team_reward)?;
    columns.values::<DoubleType, _>(rows, |t| t.local_reward)?;
    columns.values::<DoubleType, _>(rows, |t| t.reward)?;
    columns.values::<BoolType, _>(rows, |t| t.success)?;
    columns.values::<BoolType, _>(rows, |t| t.chosen)?;
    columns.texts(rows, |t| &t.action)?;
    columns.texts(rows, |t| &t.state)?;
    columns.u32s(rows, |t| t.max_tokens)?;
    columns.values::<BoolType, _>(rows, |t| t.cut_off)?;
    columns.optional_lists::<Int32Type, _, _>(rows, |t| t.next_prompt.as_deref(), |id| *id as i32)?;
    columns.optional_lists::<FloatType, _, _>(rows, |t| t.values.as_deref(), |value| *value)?;
    columns.u32s(rows, |t| t.key.call)?;
    columns.values::<BoolType, _>(rows, |t| t.final_call)?;
    columns.lists::<Int32Type, _, _>(rows, |t| t.version_changes.iter().map(|change| change.token as i32))?;
    columns
        .lists::<Int64Type, _, _>(rows, |t| t.version_changes.iter().map(|change| change.version as i64))?;
    columns.close()
}

/// Reads the file of a step.
pub fn read_transitions(path: &Path) -> std::result::Result<Vec<Transition>, Error> {
    guarded(|| read_within(path, LARGEST_TABLE)).map_err(|e| unreadable(path, e))?
}

fn read_within(path: &Path, limit: Limit) -> std::result::Result<Vec<Transition>, Error> {
    let reader = open_table(path, limit)?;
    let rows = reader.get_row_iter(None).map_err(|e| unreadable(path, e))?;
    let (mut transitions, mut bytes) = (Vec::new(), 0);
    for row in rows {
        let row = row.map_err(|e| unreadable(path, e))?;
        bytes += row.get_column_iter().map(|(_, field)| size(field)).sum::<u64>();
        limit.check(transitions.len() as u64 + 1, bytes).map_err(|e| unreadable(path, e))?;
        let transition = decode(&row);
        transitions
            .push(transition.ok_or_else(|| unreadable(path, "a column is missing or has another type"))?);
    }
    Ok(transitions)
}

/// Returns the bytes of a field's values.
fn size(field: &Field) -> u64 {
    match field {
        Field::Str(text) => text.len() as u64,
        Field::ListInternal(list) => list.elements().iter().map(size).sum(),
        _ => 8,
    }
}

/// Returns `None` if a column is missing or has another type.
fn decode(row: &Row) -> Option<Transition> {
    let field =
        |name: &str| row.get_column_iter().find(|(column, _)| *column == name).map(|(_, field)| field);
    let u32_of = |name| as_u32(field(name)?);
    let f64_of = |name| as_f64(field(name)?);
    let text_of = |name| as_text(field(name)?);
    let flag_of = |name| as_flag(field(name)?);
    let key = Key {
        step: as_u64(field("step")?)?,
        task: u32_of("task")?,
        sample: u32_of("sample")?,
        node_visit: u32_of("node_visit")?,
        agent: u32_of("agent_index")?,
        branch: u32_of("branch")?,
        // Not in files written before a turn could have several completions.
        call: field("call").map_or(Some(0), as_u32)?,
    };
    let turn = u32_of("turn")?;
    let group = Group {
        step: key.step,
        task: key.task,
        agent: key.agent,
        turn,
        node_visit: as_option(field("group_node_visit")?, as_u32)?,
    };
    Some(Transition {
        key,
        group,
        task_id: text_of("task_id")?,
        agent: text_of("agent")?,
        policy: u32_of("policy")?,
        turn,
        prompt: as_list(field("prompt")?, as_u32)?,
        completion: as_list(field("completion")?, as_u32)?,
        logprobs: as_list(field("logprobs")?, as_f32)?,
        support: as_option(field("support")?, |field| as_list(field, |inner| as_list(inner, as_u32)))?,
        temperature: f64_of("temperature")?,
        versions: as_list(field("versions")?, as_u64)?,
        version: as_u64(field("version")?)?,
        // Not in files written before new weights could take over within a completion.
        version_changes: match (field("change_tokens"), field("change_versions")) {
            (Some(tokens), Some(versions)) => {
                version_changes(as_list(tokens, as_u32)?, as_list(versions, as_u64)?)
            }
            _ => Vec::new(),
        },
        team_reward: f64_of("team_reward")?,
        local_reward: f64_of("local_reward")?,
        reward: f64_of("reward")?,
        success: flag_of("success")?,
        chosen: flag_of("chosen")?,
        action: text_of("action")?,
        state: text_of("state")?,
        // Not in files written before completions could be masked or penalised by their length.
        max_tokens: field("max_tokens").map_or(Some(0), as_u32)?,
        cut_off: field("cut_off").map_or(Some(false), as_flag)?,
        final_call: field("final_call").map_or(Some(true), as_flag)?,
        next_prompt: match field("next_prompt") {
            Some(field) => as_option(field, |field| as_list(field, as_u32))?,
            // Written before there were critics.
            None => None,
        },
        values: match field("values") {
            Some(field) => as_option(field, |field| as_list(field, as_f32))?,
            // Written before values were recorded.
            None => None,
        },
    })
}

fn as_u32(field: &Field) -> Option<u32> {
    if let Field::UInt(value) = field { Some(*value) } else { None }
}

fn as_u64(field: &Field) -> Option<u64> {
    if let Field::ULong(value) = field { Some(*value) } else { None }
}

fn as_f32(field: &Field) -> Option<f32> {
    if let Field::Float(value) = field { Some(*value) } else { None }
}

fn as_f64(field: &Field) -> Option<f64> {
    if let Field::Double(value) = field { Some(*value) } else { None }
}

fn as_flag(field: &Field) -> Option<bool> {
    if let Field::Bool(value) = field { Some(*value) } else { None }
}

fn as_text(field: &Field) -> Option<String> {
    if let Field::Str(text) = field { Some(text.clone()) } else { None }
}

fn as_list<T>(field: &Field, element: impl Fn(&Field) -> Option<T>) -> Option<Vec<T>> {
    let Field::ListInternal(list) = field else { return None };
    list.elements().iter().map(element).collect()
}

/// Returns the inner option, which is empty for a null; the outer one is `None` for another type.
fn as_option<T>(field: &Field, value: impl Fn(&Field) -> Option<T>) -> Option<Option<T>> {
    if let Field::Null = field { Some(None) } else { value(field).map(Some) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::transition;

    #[test]
    fn rows_survive_a_round_trip_and_equal_rows_give_equal_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let rows = vec![transition(0, None), transition(1, Some(0)), transition(2, Some(2))];
        let (a, b) = (folder.path().join("a.parquet"), folder.path().join("b.parquet"));
        write_transitions(&a, &rows).unwrap();
        write_transitions(&b, &rows).unwrap();
        assert_eq!(read_transitions(&a).unwrap(), rows);
        assert_eq!(std::fs::read(a).unwrap(), std::fs::read(b).unwrap());
        let empty = folder.path().join("empty.parquet");
        write_transitions(&empty, &[]).unwrap();
        assert_eq!(read_transitions(&empty).unwrap(), []);
    }

    #[test]
    fn a_table_is_not_read_beyond_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("000001.parquet");
        let rows = vec![transition(0, None), transition(1, Some(0)), transition(2, Some(2))];
        write_transitions(&path, &rows).unwrap();
        let read = |rows, bytes| read_within(&path, Limit { rows, bytes });
        assert_eq!(read(3, LARGEST_TABLE.bytes).unwrap(), rows);
        let message = read(2, LARGEST_TABLE.bytes).unwrap_err().to_string();
        assert!(message.contains("000001.parquet: it has more than 2 rows"), "{message}");
        let message = read(3, 10).unwrap_err().to_string();
        assert!(message.contains("000001.parquet: its values take more than 10 bytes"), "{message}");

        let pipe = folder.path().join("pipe.parquet");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let message = read_transitions(&pipe).unwrap_err().to_string();
        assert!(message.contains("it is not a file"), "{message}");
    }

    #[test]
    fn what_a_table_has_once_is_counted_wherever_it_stands() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("000001.parquet");
        let long = Transition { action: "x".repeat(10_000), ..transition(2, None) };
        write_transitions(&path, &vec![long; 1000]).unwrap();
        let limit = Limit { rows: 1000, bytes: 2 << 20 };
        assert!(open_table(&path, limit).is_ok(), "the file has the text once");
        let message = read_within(&path, limit).unwrap_err().to_string();
        assert!(message.contains("its values take more than"), "{message}");

        let many = Transition { prompt: vec![7; 1_000_000], ..transition(2, None) };
        write_transitions(&path, &[many]).unwrap();
        assert!(std::fs::metadata(&path).unwrap().len() < 100_000, "the file has the token once");
        let message = open_table(&path, limit).map(|_| ()).unwrap_err().to_string();
        assert!(message.contains("its values take more than"), "{message}");
    }

    #[test]
    fn a_damaged_header_of_a_page_is_an_error_that_names_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("000001.parquet");
        write_transitions(&path, &[transition(2, Some(2))]).unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        // The first page, a dictionary, after the four bytes of the format: its type is the first field of its header.
        assert_eq!(bytes[4..6], [0x15, 0x04]);
        bytes[5] = 0x00;
        std::fs::write(&path, &bytes).unwrap();
        let message = read_transitions(&path).unwrap_err().to_string();
        assert!(
            message.ends_with("000001.parquet: it is damaged: a page lacks the header of its type"),
            "{message}"
        );
    }

    #[test]
    fn a_file_cut_in_half_is_an_error_that_names_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("000001.parquet");
        write_transitions(&path, &[transition(2, Some(2))]).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
        let message = read_transitions(&path).unwrap_err().to_string();
        assert!(message.contains("000001.parquet"), "{message}");
    }
}
