//! Addresses and cookies without their secrets, for recordings and messages.

/// Text in the place of a secret.
pub const REDACTED: &str = "REDACTED";

/// Names of parameters whose values are secrets, in lower case and without `-` and `_`.
const SECRETS: [&str; 19] = [
    "appid",
    "auth",
    "authorization",
    "code",
    "credential",
    "credentials",
    "jwt",
    "key",
    "pass",
    "passphrase",
    "passwd",
    "password",
    "pwd",
    "secret",
    "session",
    "sid",
    "sig",
    "signature",
    "token",
];

/// Ends of longer names of such parameters: `api_key`, `access_token`, `X-Amz-Signature`.
const SECRET_ENDS: [&str; 15] = [
    "accesskey",
    "accountkey",
    "apikey",
    "appkey",
    "authkey",
    "consumerkey",
    "credential",
    "password",
    "privatekey",
    "secret",
    "secretkey",
    "sessionid",
    "signature",
    "subscriptionkey",
    "token",
];

/// Returns an address, or a method and an address, with `REDACTED` in the place of user information and of the values of
/// parameters that usually are keys, tokens or passwords. Secrets in its path, or under other names, stay. One that was
/// redacted before is returned as it is.
pub fn redact_address(address: &str) -> String {
    let (address, query) = match address.split_once('?') {
        Some((address, query)) => (address, Some(query)),
        None => (address, None),
    };
    let address = redact_user(address);
    match query {
        Some(query) => {
            let parameters: Vec<String> = query.split('&').map(redact_parameter).collect();
            format!("{address}?{}", parameters.join("&"))
        }
        None => address,
    }
}

fn redact_user(address: &str) -> String {
    let Some((scheme, rest)) = address.split_once("://") else { return address.to_owned() };
    // The caller has taken the query off.
    let (authority, path) = rest.split_at(rest.find(['/', '#']).unwrap_or(rest.len()));
    match authority.rsplit_once('@') {
        Some((_, host)) => format!("{scheme}://{REDACTED}@{host}{path}"),
        None => address.to_owned(),
    }
}

fn redact_parameter(parameter: &str) -> String {
    match parameter.split_once('=') {
        Some((name, value)) if !value.is_empty() && is_secret(name) => format!("{name}={REDACTED}"),
        _ => parameter.to_owned(),
    }
}

/// Returns the value of an HTTP header with `REDACTED` in the place of the values of its cookies. Their names and
/// attributes stay, and so do other headers. A value that was redacted before is returned as it is.
pub fn redact_cookies(header: &str, value: &str) -> String {
    if header.eq_ignore_ascii_case("cookie") {
        value.split(';').map(redact_cookie).collect::<Vec<_>>().join(";")
    } else if header.eq_ignore_ascii_case("set-cookie") {
        match value.split_once(';') {
            Some((cookie, attributes)) => format!("{};{attributes}", redact_cookie(cookie)),
            None => redact_cookie(value),
        }
    } else {
        value.to_owned()
    }
}

fn redact_cookie(cookie: &str) -> String {
    match cookie.split_once('=') {
        // An empty value deletes the cookie.
        Some((_, value)) if value.trim().is_empty() => cookie.to_owned(),
        Some((name, _)) => format!("{name}={REDACTED}"),
        None if cookie.trim().is_empty() => cookie.to_owned(),
        None => REDACTED.to_owned(),
    }
}

fn is_secret(name: &str) -> bool {
    let name = decode(name);
    let letters = name.chars().filter(char::is_ascii_alphanumeric);
    let name: String = letters.map(|letter| letter.to_ascii_lowercase()).collect();
    SECRETS.contains(&name.as_str()) || SECRET_ENDS.iter().any(|end| name.ends_with(*end))
}

/// Decodes `%XX` as characters of one byte each, which is right for ASCII.
fn decode(text: &str) -> String {
    let mut parts = text.split('%');
    let mut decoded = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let byte = part.split_at_checked(2).and_then(|(digits, rest)| {
            let byte = u8::from_str_radix(digits, 16).ok()?;
            Some((char::from(byte), rest))
        });
        let (letter, rest) = byte.unwrap_or(('%', part));
        decoded.push(letter);
        decoded.push_str(rest);
    }
    decoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_keys_and_tokens_are_redacted_and_nothing_else() {
        for (address, expected) in [
            ("https://a.org/search?q=keys&key=k1&page=2", "https://a.org/search?q=keys&key=REDACTED&page=2"),
            ("GET https://a.org/?API-Key=k1", "GET https://a.org/?API-Key=REDACTED"),
            (
                "http://a.org?access_token=t&X-Amz-Signature=s=",
                "http://a.org?access_token=REDACTED&X-Amz-Signature=REDACTED",
            ),
            ("POST http://me:pass@a.org:1/x?sig=s", "POST http://REDACTED@a.org:1/x?sig=REDACTED"),
            ("https://me@a.org", "https://REDACTED@a.org"),
            ("https://me@a.org#x@y", "https://REDACTED@a.org#x@y"),
            (
                "https://a.org?pass=p&credentials=c&code=o&private_key=k",
                "https://a.org?pass=REDACTED&credentials=REDACTED&code=REDACTED&private_key=REDACTED",
            ),
            (
                "https://a.org?%61pi%5Fkey=k&100%=k&to%6ben=t",
                "https://a.org?%61pi%5Fkey=REDACTED&100%=k&to%6ben=REDACTED",
            ),
        ] {
            assert_eq!(redact_address(address), expected);
            assert_eq!(redact_address(expected), expected, "once more");
        }
        for address in [
            "GET http://127.0.0.1:80/one",
            "https://a.org/@user/x?max_tokens=8&monkey=1&keyword=b&key=&token",
            "https://a.org/?at=me@b.org&next=http://c@d.org/",
            "https://a.org#x@y",
            "https://a.org?postcode=1&%6donkey=b",
            "not an address",
        ] {
            assert_eq!(redact_address(address), address);
        }
    }

    #[test]
    fn values_of_cookies_are_redacted_and_nothing_else() {
        for (header, value, expected) in [
            ("set-cookie", "sid=s3; Path=/; HttpOnly", "sid=REDACTED; Path=/; HttpOnly"),
            ("Set-Cookie", "sid=\"a=b\"", "sid=REDACTED"),
            ("set-cookie", "s3cret; Secure", "REDACTED; Secure"),
            ("set-cookie", "sid=; Max-Age=0", "sid=; Max-Age=0"),
            ("cookie", "sid=s3; theme=dark", "sid=REDACTED; theme=REDACTED"),
            ("Cookie", "sid=s3;s3cret;", "sid=REDACTED;REDACTED;"),
            ("location", "https://a.org/?sid=s3; b=1", "https://a.org/?sid=s3; b=1"),
        ] {
            assert_eq!(redact_cookies(header, value), expected);
            assert_eq!(redact_cookies(header, expected), expected, "once more");
        }
    }
}
