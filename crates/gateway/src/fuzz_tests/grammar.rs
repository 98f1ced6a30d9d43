//! Messages by grammar, and what is done to them by the byte.

/// SplitMix64 (Steele et al. 2014).
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Below `bound`.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    /// Once in so many times.
    pub(super) fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    pub(super) fn of<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.below(choices.len())]
    }
}

/// What bytes are put in: those that mean something to a parser.
pub(super) const BYTES: &[u8] = b"\r\n\t \0:;,=/\\\"()[]{}<>@?#%&*+-_.~^`|!'0159aAfFgxX\x7f\x80\xff\x0b\x0c";

/// Pieces that are put in.
pub(super) const PIECES: &[&str] = &[
    "\r\n",
    "\r\n\r\n",
    "\n",
    "0\r\n\r\n",
    "chunked",
    "Transfer-Encoding: chunked\r\n",
    "Content-Length: 5\r\n",
    "content-length:0\r\n",
    "Connection: close, host\r\n",
    "HTTP/1.1 200 OK\r\n",
    "GET / HTTP/1.1\r\nHost: t\r\n\r\n",
    "ffffffffffffffff",
    "99999999999999999999",
    "Host: x\r\n",
    "http://",
    "\u{e9}",
];

/// Changes some bytes, moves, doubles or drops some.
pub(super) fn mutate(input: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..=random.below(4) {
        let at = random.below(input.len() + 1);
        let to = (at + random.below(12)).min(input.len());
        match random.below(7) {
            0 if at < input.len() => input[at] = BYTES[random.below(BYTES.len())],
            1 if at < input.len() => input[at] ^= 1 << random.below(8),
            2 => input.insert(at, BYTES[random.below(BYTES.len())]),
            3 => drop(input.drain(at..to)),
            4 => {
                let again = input[at..to].to_vec();
                drop(input.splice(at..at, again));
            }
            5 => drop(input.splice(at..at, random.of(PIECES).bytes())),
            _ => input.truncate(input.len() - random.below(input.len() / 4 + 1)),
        }
    }
}

/// A field of a message, valid as long as `odd` is false.
pub(super) fn field(random: &mut Random, odd: bool) -> (String, String) {
    const NAMES: &[&str] = &[
        "X-A",
        "accept",
        "Via",
        "Connection",
        "Keep-Alive",
        "TE",
        "Trailer",
        "Upgrade",
        "Cookie",
        "X-Forwarded-For",
        "x_forwarded_for",
        "Forwarded",
        "Max-Forwards",
        "Proxy-Connection",
        "Expect",
        "HTTP2-Settings",
        "Date",
        "Set-Cookie",
    ];
    const VALUES: &[&str] = &[
        "",
        "a",
        "a, b",
        "close",
        "keep-alive",
        "X-A",
        "upgrade",
        "websocket",
        "chunked",
        "\"q\"",
        "0",
        "1",
        "100-continue",
        "trailers",
        "host",
        "transfer-encoding, close",
        ", ,",
    ];
    const ODD: &[&str] = &["a\u{1}", "\u{e9}", "a\tb", " a ", "a\u{7f}"];
    let value = if odd && random.once_in(8) {
        random.of(ODD)
    } else {
        random.of(VALUES)
    };
    (random.of(NAMES).to_owned(), value.to_owned())
}

/// Header lines with what frames the message.
pub(super) fn lines(random: &mut Random, framing: &[(&str, String)], odd: bool) -> String {
    let mut fields: Vec<(String, String)> = (0..random.below(6)).map(|_| field(random, odd)).collect();
    for (name, value) in framing {
        let at = random.below(fields.len() + 1);
        fields.insert(at, ((*name).to_owned(), value.clone()));
    }
    let blank = random.of(&[" ", "", "  "]);
    fields
        .iter()
        .map(|(name, value)| format!("{name}:{blank}{value}\r\n"))
        .collect()
}

/// How a message says where it ends: the fields, and whether there are two truths.
pub(super) fn framing(random: &mut Random) -> Vec<(&'static str, String)> {
    let length = |random: &mut Random| match random.below(6) {
        0 => random
            .of(&["+5", "5,5", "0x5", "", "-1", "99999999999999999999"])
            .to_owned(),
        _ => random.below(40).to_string(),
    };
    let coding = |random: &mut Random| match random.below(5) {
        0 => random
            .of(&["gzip, chunked", "identity", "chunked, chunked", "x", ""])
            .to_owned(),
        _ => random.of(&["chunked", "Chunked"]).to_owned(),
    };
    match random.below(8) {
        0 | 1 => Vec::new(),
        2..=4 => vec![("Content-Length", length(random))],
        5 => vec![("Transfer-Encoding", coding(random))],
        6 => vec![
            ("Content-Length", length(random)),
            ("Transfer-Encoding", coding(random)),
        ],
        _ => vec![
            ("Content-Length", length(random)),
            ("content-length", length(random)),
        ],
    }
}

/// A request's head with its framing fields, and its target.
pub(super) fn request(random: &mut Random, fields: &[(&str, String)], odd: bool) -> String {
    let target = random.of(&[
        "/",
        "/a?b",
        "*",
        "http://t",
        "http://t?q",
        "http://t:80/a",
        "https://[::1]/",
        "t:80",
        "/%zz",
        "//a/../b",
        "http://u@t/",
        "/a#b",
    ]);
    let method = random.of(&["GET", "POST", "OPTIONS", "TRACE", "HEAD", "BREW"]);
    let version = random.of(&["1.1", "1.1", "1.1", "1.0"]);
    let host = random.of(&[
        "Host: t\r\n",
        "Host: t:80\r\n",
        "Host: [::1]\r\n",
        "Host: a b\r\n",
        "Host: t\r\nHost: u\r\n",
        "",
    ]);
    format!(
        "{method} {target} HTTP/{version}\r\n{host}{}\r\n",
        lines(random, fields, odd)
    )
}
