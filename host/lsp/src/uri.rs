//! URIs of files.

use std::path::PathBuf;

use lsp_types::Uri;

/// Path of a `file:` URI. Returns `None` for other URIs and for files of another host.
pub fn file_path(uri: &Uri) -> Option<PathBuf> {
    let rest = uri.as_str().strip_prefix("file://")?;
    // A host may precede the path; only files of this machine can be read.
    let encoded = rest.strip_prefix("localhost").unwrap_or(rest);
    let mut parts = encoded.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (digits, plain) = part.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend_from_slice(plain.as_bytes());
    }
    String::from_utf8(bytes).ok().map(PathBuf::from).filter(|path| path.is_absolute())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_uris_have_paths() {
        for (uri, expected) in [
            ("file:///a/b%20c/%C3%BC.mas", Some("/a/b c/ü.mas")),
            ("file://localhost/a.mas", Some("/a.mas")),
            ("file://elsewhere/a.mas", None),
            ("untitled:Untitled-1", None),
            ("file:///a%FF.mas", None),
        ] {
            let parsed: Uri = uri.parse().unwrap();
            assert_eq!(file_path(&parsed), expected.map(PathBuf::from), "{uri}");
        }
    }
}
