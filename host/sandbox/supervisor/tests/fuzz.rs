//! Frames of the supervisor's protocol, mutated. Programs in the container may write to its pipe, so that the host reads
//! them as what anybody could have sent.

#![allow(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

use std::io::{Cursor, ErrorKind};

use pl_supervisor::{
    FileEntry, RunReport, SupervisorMessage, SupervisorTask, Termination, encode_frame, read_frame,
};
use pl_testing::fuzz::fuzz;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Longest frame that the reader accepts.
const LONGEST: usize = 1 << 20;

fn file() -> FileEntry {
    FileEntry { path: "folder/name".into(), bytes: vec![0, 1, 255], executable: true }
}

/// Reads a frame, which is an error or a value that is written and read again as it is.
fn read<T: Serialize + DeserializeOwned>(bytes: &[u8]) {
    match read_frame::<T>(&mut Cursor::new(bytes), LONGEST) {
        Ok(value) => {
            let frame = encode_frame(&value).unwrap();
            let again: T = read_frame(&mut Cursor::new(&frame), LONGEST).unwrap();
            assert_eq!(encode_frame(&again).unwrap(), frame);
        }
        Err(error) => {
            assert!(matches!(error.kind(), ErrorKind::InvalidData | ErrorKind::UnexpectedEof), "{error}");
        }
    }
}

#[test]
fn messages() {
    let ran = RunReport { stdout: b"out".to_vec(), output_files: vec![file()], ..RunReport::default() };
    let reports = [
        Termination::Exited(-1),
        Termination::Signalled(9),
        Termination::OutputLimit,
        Termination::NotStarted("no".to_owned()),
    ];
    let ran = reports.map(|termination| {
        SupervisorMessage::Ran(Box::new(RunReport { termination, is_compiler: true, ..ran.clone() }))
    });
    let others = [None, Some("because".to_owned())];
    let others = others
        .into_iter()
        .flat_map(|text| [SupervisorMessage::Ready(text.clone()), SupervisorMessage::Clean(text)]);
    let seeds: Vec<Vec<u8>> = ran.into_iter().chain(others).map(|one| encode_frame(&one).unwrap()).collect();
    fuzz("messages of the supervisor", &seeds, &[], read::<SupervisorMessage>);
}

#[test]
fn tasks() {
    let task = SupervisorTask { files: vec![file(), file()], ..SupervisorTask::default() };
    fuzz("tasks of the supervisor", &[encode_frame(&task).unwrap()], &[], read::<SupervisorTask>);
}
