//! Messages on the wire: a header with the length of the body, and a body of JSON.

use std::io::{BufRead, Read, Write};

use serde_json::{Value, json};

use crate::Error;

/// No message of an editor is longer; a header that says so is broken.
const LONGEST: usize = 256 << 20;

/// Lines of a header, at most, and their length.
const HEADER: u64 = 8 << 10;

/// The errors of JSON-RPC and the protocol that this server gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i64)]
pub enum ErrorCode {
    Parse = -32700,
    InvalidRequest = -32600,
    MethodNotFound = -32601,
    InvalidParams = -32602,
    Internal = -32603,
    NotInitialized = -32002,
    RequestFailed = -32803,
}

/// What an editor sends.
#[derive(Debug, PartialEq)]
pub enum Incoming {
    Request {
        /// A number or a text; goes back with the answer.
        id: Value,
        method: String,
        params: Value,
    },
    Notification {
        method: String,
        params: Value,
    },
    /// The answer to a request of ours.
    Response,
    /// A body that is no message. The next one may be.
    Broken(ErrorCode, String),
}

/// The next message; none at the end of the input.
pub fn read(input: &mut impl BufRead) -> Result<Option<Incoming>, Error> {
    let Some(length) = read_header(input)? else { return Ok(None) };
    let mut body = Vec::new();
    // As much as comes: a header that promises too much costs nothing.
    let got = input.by_ref().take(length as u64).read_to_end(&mut body).map_err(Error::Read)?;
    if got < length {
        return Err(Error::Read(std::io::ErrorKind::UnexpectedEof.into()));
    }
    Ok(Some(match serde_json::from_slice(&body) {
        Ok(message) => understand(message),
        Err(error) => Incoming::Broken(ErrorCode::Parse, error.to_string()),
    }))
}

/// The length of the body.
fn read_header(input: &mut impl BufRead) -> Result<Option<usize>, Error> {
    let mut length = None;
    let mut header = input.take(HEADER);
    let mut line = Vec::new();
    loop {
        line.clear();
        header.read_until(b'\n', &mut line).map_err(Error::Read)?;
        let text = String::from_utf8_lossy(&line);
        if !text.ends_with('\n') {
            return match (text.is_empty(), header.limit()) {
                (_, 0) => Err(Error::Header("a header without an end".to_owned())),
                (true, _) => Ok(None),
                (false, _) => Err(Error::Read(std::io::ErrorKind::UnexpectedEof.into())),
            };
        }
        let text = text.trim();
        if text.is_empty() {
            return length.map(Some).ok_or_else(|| Error::Header("a header without a length".to_owned()));
        }
        if let Some((name, value)) = text.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            let value = value.trim().parse().ok().filter(|length| *length <= LONGEST);
            length = Some(value.ok_or_else(|| Error::Header(format!("`{text}` is no length")))?);
        }
    }
}

fn understand(message: Value) -> Incoming {
    let Value::Object(mut message) = message else {
        return Incoming::Broken(ErrorCode::InvalidRequest, "a message is an object".to_owned());
    };
    let params = message.remove("params").unwrap_or_default();
    match (message.remove("id"), message.remove("method")) {
        (Some(id @ (Value::Number(_) | Value::String(_))), Some(Value::String(method))) => {
            Incoming::Request { id, method, params }
        }
        (None, Some(Value::String(method))) => Incoming::Notification { method, params },
        (Some(_), None) => Incoming::Response,
        _ => Incoming::Broken(ErrorCode::InvalidRequest, "neither a request nor an answer".to_owned()),
    }
}

/// Sends one message, and lets it go at once.
pub fn write(output: &mut impl Write, message: &Value) -> Result<(), Error> {
    let body = message.to_string();
    write!(output, "Content-Length: {}\r\n\r\n{body}", body.len()).map_err(Error::Write)?;
    output.flush().map_err(Error::Write)
}

/// The answer to a request.
pub fn answer(id: &Value, result: Result<Value, (ErrorCode, String)>) -> Value {
    match result {
        Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
        Err((code, message)) => {
            json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code as i64, "message": message } })
        }
    }
}

/// Something that the editor is told.
pub fn notification(method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "method": method, "params": params })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(mut input: &[u8]) -> (Vec<Incoming>, Option<String>) {
        let mut out = Vec::new();
        loop {
            match read(&mut input) {
                Ok(Some(message)) => out.push(message),
                Ok(None) => return (out, None),
                Err(error) => return (out, Some(error.to_string())),
            }
        }
    }

    fn framed(body: &str) -> Vec<u8> {
        format!("Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
    }

    #[test]
    fn a_broken_body_does_not_hide_the_next_message() {
        let next = framed(r#"{"id": "x", "method": "shutdown"}"#);
        for broken in
            ["{", "[]", "{}", "7", r#"{"id": null, "method": "a"}"#, r#"{"id": 1, "method": 2}"#, "\u{7f}"]
        {
            let (messages, error) = all(&[framed(broken), next.clone()].concat());
            assert_eq!(error, None);
            assert!(matches!(messages[0], Incoming::Broken(..)), "{broken}: {messages:?}");
            assert!(matches!(&messages[1], Incoming::Request { id, .. } if id == "x"), "{messages:?}");
        }
    }

    #[test]
    fn headers_are_read_in_any_case_and_with_others_beside() {
        let text = b"content-type: x\r\nCONTENT-LENGTH:15\r\n\r\n{\"method\": \"a\"}";
        assert_eq!(all(text).0, [Incoming::Notification { method: "a".to_owned(), params: Value::Null }]);
    }

    #[test]
    fn a_header_that_says_nothing_ends_the_talk() {
        for (input, why) in [
            (&b"Content-Length: 99999999999999999999\r\n\r\n"[..], "is no length"),
            (b"Content-Length: -1\r\n\r\n", "is no length"),
            (b"Content-Length: 4294967296\r\n\r\n{}", "is no length"),
            (b"Hello: 1\r\n\r\n", "without a length"),
            (b"\r\n", "without a length"),
            (b"Content-Length: 10\r\n\r\n{}", "unexpected end of file"),
            (b"Content-Le", "unexpected end of file"),
            (&[b'x'; 9000], "without an end"),
        ] {
            let error = all(input).1.unwrap();
            assert!(error.contains(why), "{error}");
        }
    }
}
