//! Messages on stderr. They are discarded if stderr is closed, where `eprintln!` panics: a run whose log was closed
//! continues, and a command that only writes messages ends as if they had been read.

use std::io::{self, Write};

/// Writes a text.
pub fn text(text: &str) {
    write(&mut io::stderr(), text);
}

/// Writes a text and a line break.
pub fn line(text: &str) {
    write(&mut io::stderr(), &format!("{text}\n"));
}

fn write(out: &mut impl Write, text: &str) {
    // There is no other place for an error.
    let _ = out.write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_reader_that_is_gone_is_no_error() {
        let (mut out, reader) = UnixStream::pair().unwrap();
        drop(reader);
        assert_eq!(out.write_all(b"a").unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        write(&mut out, "a");
    }
}
