//! A case: what is sent, and what is right by the RFC.

/// What the client does, in turn.
#[derive(Debug, Clone)]
pub enum Step {
    Send(Vec<u8>),
    /// Reads heads until one has this status.
    Await(u16),
    /// Ends its side.
    Finish,
}

/// What the backend does to each request.
#[derive(Debug, Clone)]
pub enum Backend {
    /// Reads it whole, and answers 200 with `ok`.
    Record,
    /// Sends the first to its head, reads it whole, and sends the second.
    Interim(Vec<u8>, Vec<u8>),
    /// Sends this to its head, and reads no body.
    Early(Vec<u8>),
    /// Reads it whole, sends this and closes the connection.
    Closes(Vec<u8>),
    /// Reads it whole, sends this and keeps the connection open.
    Keeps(Vec<u8>),
    /// Switches protocols with this head and then sends back what it gets.
    Switches(Vec<u8>),
}

/// A request as the backend is to understand it.
#[derive(Debug, Clone, Default)]
pub struct Meaning {
    /// Its request line.
    pub start: String,
    /// Also the version counts, which is to be the gateway's own.
    pub own_version: bool,
    pub body: Vec<u8>,
    pub has: Vec<(&'static str, &'static str)>,
    pub lacks: Vec<&'static str>,
    /// Trailer fields that it may not have.
    pub no_trailers: Vec<&'static str>,
}

/// An answer as the client is to understand it.
#[derive(Debug, Clone, Default)]
pub struct Reply {
    pub status: u16,
    /// The statuses of the interim answers before it.
    pub interims: Option<Vec<u16>>,
    pub body: Option<Vec<u8>>,
    pub has: Vec<(&'static str, &'static str)>,
    pub lacks: Vec<&'static str>,
    /// It arrives whole, or visibly not so.
    pub is_whole: bool,
    /// The connection ends behind it.
    pub closes: bool,
    pub answers: usize,
    /// How many requests the backend has got, where that is said.
    pub requests: Option<usize>,
}

/// What is right.
#[derive(Debug, Clone)]
pub enum Right {
    /// Refused with one of these statuses; without one where the connection just ends. Nothing whole reached the backend.
    Refused(&'static [u16]),
    /// The backend got this, once, and its answer came back.
    Forwarded(Meaning),
    /// The client got this.
    Answered(Reply),
}

/// One case. The first of what is right is what the RFC asks for (MUST, SHOULD); the others it allows.
#[derive(Debug, Clone)]
pub struct Case {
    pub section: &'static str,
    pub name: &'static str,
    pub http2: bool,
    /// No other status will do.
    pub strict: bool,
    pub steps: Vec<Step>,
    pub backend: Backend,
    pub right: Vec<Right>,
}

/// The lines of a message: a line feed in `text` stands for CRLF.
pub fn lines(text: &str) -> Vec<u8> {
    text.replace('\n', "\r\n").into_bytes()
}

/// What a request has without more: a method, a target, a Host.
pub const PLAIN: &str = "GET /c HTTP/1.1\nHost: t\n\n";

/// A request whose line feeds stand for CRLF.
pub fn ask(section: &'static str, name: &'static str, text: &str) -> Case {
    raw(section, name, lines(text))
}

/// A request as it is.
pub fn raw(section: &'static str, name: &'static str, bytes: impl Into<Vec<u8>>) -> Case {
    Case {
        section,
        name,
        http2: false,
        strict: false,
        steps: vec![Step::Send(bytes.into())],
        backend: Backend::Record,
        right: Vec::new(),
    }
}

/// A backend's answer to [`PLAIN`], with a line feed for CRLF; behind it the backend closes.
pub fn answer(section: &'static str, name: &'static str, text: &str) -> Case {
    ask(section, name, PLAIN).by(Backend::Closes(lines(text)))
}

impl Case {
    pub fn by(mut self, backend: Backend) -> Self {
        self.backend = backend;
        self
    }

    /// The backend keeps the connection open behind its answer.
    pub fn kept(mut self) -> Self {
        if let Backend::Closes(bytes) = self.backend {
            self.backend = Backend::Keeps(bytes);
        }
        self
    }

    /// Another request than [`PLAIN`].
    pub fn to(mut self, text: &str) -> Self {
        self.steps = vec![Step::Send(lines(text))];
        self
    }

    pub fn then(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }

    pub fn refused(mut self, statuses: &'static [u16]) -> Self {
        self.right.push(Right::Refused(statuses));
        self
    }

    /// The RFC says with which status.
    pub fn strictly(mut self, statuses: &'static [u16]) -> Self {
        self.strict = true;
        self.refused(statuses)
    }

    /// The version of what is forwarded is the gateway's own.
    pub fn own_version(mut self) -> Self {
        match self.right.last_mut() {
            Some(Right::Forwarded(meaning)) => meaning.own_version = true,
            _ => panic!("{}", self.name),
        }
        self
    }

    /// Forwarded with this request line; [`Case::has`] and its like say more of it.
    pub fn sent(mut self, start: &str) -> Self {
        self.right.push(Right::Forwarded(Meaning {
            start: start.to_owned(),
            ..Meaning::default()
        }));
        self
    }

    /// The client gets an answer of this status, whole; [`Case::has`] and its like say more of it.
    pub fn gets(mut self, status: u16) -> Self {
        self.right.push(Right::Answered(Reply {
            status,
            is_whole: true,
            answers: 1,
            ..Reply::default()
        }));
        self
    }

    /// The answer is not one that can be passed on.
    pub fn bad_gateway(self) -> Self {
        self.gets(502).edit(|reply| reply.answers = 1)
    }

    /// The client sees that the answer with this status broke off.
    pub fn broken(self, status: u16) -> Self {
        self.gets(status).edit(|reply| reply.is_whole = false)
    }

    pub fn edit(mut self, change: impl FnOnce(&mut Reply)) -> Self {
        if let Some(Right::Answered(reply)) = self.right.last_mut() {
            change(reply);
        }
        self
    }

    pub fn has(mut self, name: &'static str, value: &'static str) -> Self {
        match self.right.last_mut() {
            Some(Right::Forwarded(meaning)) => meaning.has.push((name, value)),
            Some(Right::Answered(reply)) => reply.has.push((name, value)),
            _ => panic!("{}", self.name),
        }
        self
    }

    pub fn lacks(mut self, name: &'static str) -> Self {
        match self.right.last_mut() {
            Some(Right::Forwarded(meaning)) => meaning.lacks.push(name),
            Some(Right::Answered(reply)) => reply.lacks.push(name),
            _ => panic!("{}", self.name),
        }
        self
    }

    pub fn no_trailer(mut self, name: &'static str) -> Self {
        match self.right.last_mut() {
            Some(Right::Forwarded(meaning)) => meaning.no_trailers.push(name),
            _ => panic!("{}", self.name),
        }
        self
    }

    pub fn body(mut self, body: &str) -> Self {
        match self.right.last_mut() {
            Some(Right::Forwarded(meaning)) => meaning.body = body.into(),
            Some(Right::Answered(reply)) => reply.body = Some(body.into()),
            _ => panic!("{}", self.name),
        }
        self
    }

    pub fn interims(self, statuses: &[u16]) -> Self {
        self.edit(|reply| reply.interims = Some(statuses.to_vec()))
    }
}
