//! The fields of an answer: as its backend wrote them, until somebody looks at one.
//!
//! Most answers are passed on without a look at their fields but those that end at a proxy. To read each into a map and to write it
//! again costs more than all else that is done for an answer, so the lines go on as they came: those that end here are left out,
//! and what the gateway says is written behind them. Only lines that can be read in one way are: a name, a colon, a value, CR LF.

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};

use crate::headers::add_via;

/// A field may be left out between so many parts of a head, less one. A head with more is read.
const RUNS: usize = 4;

/// An answer's fields without its connection-specific ones.
#[derive(Debug)]
pub(crate) struct Fields(Form);

#[derive(Debug)]
enum Form {
    Map(HeaderMap),
    Lines(Lines),
}

/// Lines of a head as they came.
#[derive(Debug)]
pub(crate) struct Lines {
    head: Bytes,
    /// Where they are, from and to, each of whole lines.
    runs: [(u32, u32); RUNS],
    count: usize,
    /// Where the value of the first Content-Type is.
    kind: (u32, u32),
    has_date: bool,
    /// What Content-Length says.
    length: Option<u64>,
    /// Our element of Via comes behind them.
    via: bool,
}

impl Lines {
    /// Those of this head, none so far.
    pub(crate) fn new(head: &Bytes) -> Self {
        Self {
            head: head.clone(),
            runs: [(0, 0); RUNS],
            count: 0,
            kind: (0, 0),
            has_date: false,
            length: None,
            via: false,
        }
    }

    /// Adds the next field, which is a part of the head; `false` where it cannot go on as it came, and all of it is to be read.
    #[must_use]
    pub(crate) fn add(&mut self, name: &HeaderName, field: &httparse::Header<'_>) -> bool {
        let begin = self.head.as_ptr() as usize;
        let at = (field.name.as_ptr() as usize).wrapping_sub(begin);
        let value = (field.value.as_ptr() as usize).wrapping_sub(begin);
        let end = value.wrapping_add(field.value.len());
        let is_plain = self.head.get(at.wrapping_add(field.name.len())) == Some(&b':')
            && value > at
            && self.head.get(end..end.wrapping_add(2)) == Some(b"\r\n");
        // What ends is followed by what may be read of all of it in one answer.
        let (Ok(from), Ok(to), true) = (u32::try_from(at), u32::try_from(end + 2), is_plain) else {
            return false;
        };
        match self.count.checked_sub(1).map(|last| &mut self.runs[last]) {
            Some((_, last)) if *last == from => *last = to,
            _ if self.count == RUNS => return false,
            _ => {
                self.runs[self.count] = (from, to);
                self.count += 1;
            }
        }
        if *name == header::DATE {
            self.has_date = true;
        } else if *name == header::CONTENT_TYPE && self.kind.1 == 0 {
            self.kind = (value as u32, to - 2);
        }
        true
    }

    /// What Content-Length says, which is among them.
    pub(crate) fn set_length(&mut self, length: u64) {
        self.length = Some(length);
    }

    fn runs(&self) -> impl Iterator<Item = &[u8]> {
        let runs = self.runs[..self.count].iter();
        runs.map(|(from, to)| &self.head[*from as usize..*to as usize])
    }

    /// The same as a map.
    fn read(&self) -> HeaderMap {
        let mut map = HeaderMap::with_capacity(16);
        let lines = self.runs().flat_map(|run| run.split(|byte| *byte == b'\n'));
        for line in lines {
            let Some(colon) = line.iter().position(|byte| *byte == b':') else {
                continue;
            };
            let value = line[colon + 1..].trim_ascii();
            let name = HeaderName::from_bytes(&line[..colon]);
            // They were read before, so that both are what they are.
            if let (Ok(name), Ok(value)) = (name, HeaderValue::from_maybe_shared(self.head.slice_ref(value)))
            {
                map.append(name, value);
            }
        }
        if self.via {
            add_via(&mut map, false);
        }
        map
    }
}

/// What a head that was written says of itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Told {
    pub has_date: bool,
    /// What Content-Length says.
    pub length: Option<u64>,
}

impl Fields {
    pub(crate) fn lines(lines: Lines) -> Self {
        Self(Form::Lines(lines))
    }

    /// Each of them, to be looked at and changed.
    pub(crate) fn map(&mut self) -> &mut HeaderMap {
        if let Form::Lines(lines) = &self.0 {
            self.0 = Form::Map(lines.read());
        }
        match &mut self.0 {
            Form::Map(map) => map,
            Form::Lines(_) => unreachable!("they were read"),
        }
    }

    pub(crate) fn into_map(self) -> HeaderMap {
        match self.0 {
            Form::Map(map) => map,
            Form::Lines(lines) => lines.read(),
        }
    }

    /// The value of Content-Type, if there is one.
    pub(crate) fn kind(&self) -> Option<&[u8]> {
        match &self.0 {
            Form::Map(map) => map.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes),
            Form::Lines(lines) => {
                let (from, to) = lines.kind;
                (to > 0).then(|| &lines.head[from as usize..to as usize])
            }
        }
    }

    /// Adds our element to `Via`, with the version of HTTP that the backend spoke.
    pub(crate) fn add_via(&mut self, http2: bool) {
        match &mut self.0 {
            Form::Lines(lines) if !http2 => lines.via = true,
            _ => add_via(self.map(), http2),
        }
    }

    /// Appends them to a head of HTTP/1, a line each; Content-Length where `with_length`.
    pub(crate) fn write(&mut self, out: &mut Vec<u8>, with_length: bool) -> Told {
        if !with_length && matches!(&self.0, Form::Lines(lines) if lines.length.is_some()) {
            self.map();
        }
        let mut told = Told::default();
        match &self.0 {
            Form::Lines(lines) => {
                lines.runs().for_each(|run| out.extend_from_slice(run));
                if lines.via {
                    out.extend_from_slice(b"via: 1.1 headroom\r\n");
                }
                (told.has_date, told.length) = (lines.has_date, lines.length);
            }
            Form::Map(map) => {
                for (name, value) in map {
                    if *name == header::CONTENT_LENGTH {
                        if !with_length {
                            continue;
                        }
                        let text = std::str::from_utf8(value.as_bytes());
                        told.length = text.ok().and_then(|text| text.parse().ok());
                    } else if *name == header::DATE {
                        told.has_date = true;
                    }
                    out.extend_from_slice(name.as_str().as_bytes());
                    out.extend_from_slice(b": ");
                    out.extend_from_slice(value.as_bytes());
                    out.extend_from_slice(b"\r\n");
                }
            }
        }
        told
    }
}

impl From<HeaderMap> for Fields {
    fn from(map: HeaderMap) -> Self {
        Self(Form::Map(map))
    }
}

#[cfg(test)]
#[path = "fields_tests.rs"]
mod tests;
