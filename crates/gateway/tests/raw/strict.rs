//! Requests as a backend that forgives nothing reads them.

/// Names in small letters, and values.
type Fields = Vec<(String, String)>;

/// A request that was read whole.
#[derive(Debug, Clone, Default)]
pub struct Request {
    pub start: String,
    pub fields: Fields,
    pub body: Vec<u8>,
    pub trailers: Fields,
}

impl Request {
    pub fn all(&self, name: &str) -> Vec<&str> {
        let named = self.fields.iter().filter(|(known, _)| known == name);
        named.map(|(_, value)| value.as_str()).collect()
    }
}

/// The end of the first line of these bytes, and the line without its CRLF.
fn line(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let end = bytes.windows(2).position(|two| two == b"\r\n")?;
    Some((&bytes[..end], end + 2))
}

fn is_token(text: &str) -> bool {
    let is_tchar = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(is_tchar)
}

/// Field lines up to the empty line; `None` while that is not there.
fn fields(bytes: &[u8]) -> Result<Option<(Fields, usize)>, String> {
    let (mut fields, mut at) = (Vec::new(), 0);
    loop {
        let Some((text, length)) = line(&bytes[at..]) else {
            return Ok(None);
        };
        at += length;
        if text.is_empty() {
            return Ok(Some((fields, at)));
        }
        let text = String::from_utf8_lossy(text).into_owned();
        let (name, value) = text
            .split_once(':')
            .ok_or_else(|| format!("no colon: {text:?}"))?;
        if !is_token(name) || value.contains(['\r', '\n', '\0']) {
            return Err(format!("no field: {text:?}"));
        }
        fields.push((
            name.to_ascii_lowercase(),
            value.trim_matches([' ', '\t']).to_owned(),
        ));
    }
}

/// The request at the front and its bytes; `None` while it is not there whole.
///
/// # Errors
/// What is no request, or one that two could read differently.
pub fn parse(bytes: &[u8]) -> Result<Option<(Request, usize)>, String> {
    let Some((start, mut at)) = line(bytes) else {
        return Ok(None);
    };
    let start = String::from_utf8_lossy(start).into_owned();
    let words: Vec<&str> = start.split(' ').collect();
    let [method, target, version] = words[..] else {
        return Err(format!("no request line: {start:?}"));
    };
    let is_target = !target.is_empty() && target.bytes().all(|byte| byte > b' ' && byte != 0x7f);
    if !is_token(method) || !is_target || !matches!(version, "HTTP/1.1" | "HTTP/1.0") {
        return Err(format!("no request line: {start:?}"));
    }
    let Some((fields_read, length)) = fields(&bytes[at..])? else {
        return Ok(None);
    };
    at += length;
    let is_1_1 = version == "HTTP/1.1";
    let mut request = Request {
        start: start.clone(),
        fields: fields_read,
        ..Request::default()
    };
    let hosts = request.all("host").len();
    if hosts > 1 || hosts == 0 && is_1_1 {
        return Err(format!("{hosts} hosts"));
    }
    let (lengths, codings) = (request.all("content-length"), request.all("transfer-encoding"));
    match (&lengths[..], &codings[..]) {
        ([], []) => {}
        ([length], []) if !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit()) => {
            let length: usize = length.parse().map_err(|_| format!("length {length:?}"))?;
            let Some(body) = bytes[at..].get(..length) else {
                return Ok(None);
            };
            request.body = body.to_vec();
            at += length;
        }
        ([], [coding]) if coding.eq_ignore_ascii_case("chunked") && is_1_1 => {
            loop {
                let Some((size, length)) = line(&bytes[at..]) else {
                    return Ok(None);
                };
                at += length;
                let size = String::from_utf8_lossy(size).into_owned();
                let digits = size.split(';').next().unwrap_or_default();
                let is_size = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
                let size = usize::from_str_radix(digits, 16).ok().filter(|_| is_size);
                let size = size.ok_or_else(|| format!("chunk size {digits:?}"))?;
                if size == 0 {
                    break;
                }
                let Some(chunk) = bytes[at..].get(..size.saturating_add(2)) else {
                    return Ok(None);
                };
                if !chunk.ends_with(b"\r\n") {
                    return Err("a chunk does not end".to_owned());
                }
                request.body.extend_from_slice(&chunk[..size]);
                at += chunk.len();
            }
            let Some((trailers, length)) = fields(&bytes[at..])? else {
                return Ok(None);
            };
            request.trailers = trailers;
            at += length;
        }
        both => return Err(format!("framing {both:?}")),
    }
    Ok(Some((request, at)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_all_read_alike_is_a_request() {
        let read = |text: &str| parse(text.replace('\n', "\r\n").as_bytes());
        let (request, _) =
            read("POST /a HTTP/1.1\nHost: t\nTransfer-Encoding: chunked\n\n3\nabc\n0\nX: y\n\n")
                .unwrap()
                .unwrap();
        assert_eq!((&request.body[..], request.trailers.len()), (&b"abc"[..], 1));
        assert!(
            read("POST /a HTTP/1.1\nHost: t\nContent-Length: 3\n\nab")
                .unwrap()
                .is_none()
        );
        for bad in [
            "GET  /a HTTP/1.1\nHost: t\n\n",
            "GET /a HTTP/1.1\n\n",
            "GET /a HTTP/1.1\nHost: t\nHost: t\n\n",
            "GET /a HTTP/1.1\nHost: t\nX : y\n\n",
            "GET /a HTTP/1.1\nHost: t\nContent-Length: 1\nTransfer-Encoding: chunked\n\n",
            "GET /a HTTP/1.1\nHost: t\nContent-Length: 1\nContent-Length: 1\n\nx",
            "GET /a HTTP/1.1\nHost: t\nTransfer-Encoding: chunked\n\n+1\nx\n0\n\n",
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
