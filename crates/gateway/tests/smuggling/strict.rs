//! A parser of requests that lets nothing pass, to read what the backend was sent.

/// Parses what the backend received as strictly as the RFC allows; panics on anything else.
pub fn parse_strictly(name: &str, wire: &[u8]) -> (String, Vec<u8>) {
    let text = String::from_utf8_lossy(wire);
    let end = wire
        .windows(4)
        .position(|four| four == b"\r\n\r\n")
        .unwrap_or_else(|| panic!("{name}: no head: {text}"));
    let head = std::str::from_utf8(&wire[..end]).unwrap();
    let mut lines = head.split("\r\n");
    let start = lines.next().unwrap().to_owned();
    assert_eq!(start.split(' ').count(), 3, "{name}: {start}");
    assert!(start.ends_with(" HTTP/1.1"), "{name}: {start}");
    let (mut lengths, mut codings, mut hosts) = (Vec::new(), Vec::new(), 0);
    for line in lines {
        assert!(!line.contains(['\r', '\n', '\0']), "{name}: {line:?}");
        let (field, value) = line
            .split_once(": ")
            .unwrap_or_else(|| panic!("{name}: {line:?}"));
        assert!(
            field
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte)),
            "{name}: {line:?}"
        );
        match field {
            "content-length" => lengths.push(value.to_owned()),
            "transfer-encoding" => codings.push(value.to_owned()),
            "host" => hosts += 1,
            "upgrade" | "http2-settings" | "connection" => panic!("{name}: {line:?} was forwarded"),
            _ => {}
        }
    }
    assert!(hosts <= 1, "{name}: {hosts} hosts");
    let rest = &wire[end + 4..];
    let body = match (lengths.as_slice(), codings.as_slice()) {
        ([], []) => {
            assert!(
                rest.is_empty(),
                "{name}: bytes after a request without a body: {text}"
            );
            Vec::new()
        }
        ([length], []) => {
            assert!(
                !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit()),
                "{name}: {length:?}"
            );
            assert_eq!(
                length.parse::<usize>().unwrap(),
                rest.len(),
                "{name}: bytes left over: {text}"
            );
            rest.to_vec()
        }
        ([], [coding]) => {
            assert_eq!(coding, "chunked", "{name}");
            dechunk_strictly(name, rest)
        }
        both => panic!("{name}: ambiguous framing {both:?}"),
    };
    (start, body)
}

fn dechunk_strictly(name: &str, mut rest: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    let mut line = || -> Vec<u8> {
        let end = rest
            .windows(2)
            .position(|two| two == b"\r\n")
            .unwrap_or_else(|| panic!("{name}: a chunk breaks off"));
        let line = rest[..end].to_vec();
        rest = &rest[end + 2..];
        line
    };
    loop {
        let size = String::from_utf8(line()).unwrap();
        assert!(
            !size.is_empty() && size.bytes().all(|byte| byte.is_ascii_hexdigit()),
            "{name}: size {size:?}"
        );
        let size = usize::from_str_radix(&size, 16).unwrap();
        if size == 0 {
            break;
        }
        let mut data = Vec::new();
        while data.len() < size {
            // A chunk of these cases holds CRLF at most as part of a smuggled request.
            data.extend_from_slice(&line());
            if data.len() < size {
                data.extend_from_slice(b"\r\n");
            }
        }
        assert_eq!(data.len(), size, "{name}");
        body.extend_from_slice(&data);
    }
    loop {
        let trailer = String::from_utf8(line()).unwrap().to_ascii_lowercase();
        if trailer.is_empty() {
            break;
        }
        for forbidden in ["content-length", "transfer-encoding", "host"] {
            assert!(!trailer.starts_with(forbidden), "{name}: trailer {trailer}");
        }
    }
    assert!(
        rest.is_empty(),
        "{name}: bytes after the last chunk: {:?}",
        String::from_utf8_lossy(rest)
    );
    body
}
