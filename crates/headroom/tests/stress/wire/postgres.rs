//! PostgreSQL's protocol, version 3.

use super::{Address, Answer, Broken, Connected, Line, Login, Wire};
use std::time::Duration;

const VERSION: u32 = 196_608;
const CANCEL: u32 = 80_877_102;

struct Postgres {
    line: Line,
}

/// Connects, and logs in.
pub fn connect(login: &Login<'_>) -> Result<Connected, Broken> {
    let line = Line::open(login.address, login.bound, login.overdue.clone())?;
    let mut postgres = Postgres { line };
    let mut body = VERSION.to_be_bytes().to_vec();
    for word in ["user", login.user, "database", "postgres", ""] {
        body.extend(word.as_bytes());
        body.push(0);
    }
    let mut hello = (body.len() as u32 + 4).to_be_bytes().to_vec();
    hello.extend(body);
    postgres.line.write(&hello)?;
    match postgres.result()? {
        Answer::Done { .. } => Ok(Connected::Yes(Box::new(postgres))),
        refused => Ok(Connected::Refused(refused)),
    }
}

/// Asks that a backend cancel what it does; the server answers nothing.
pub fn cancel(address: &Address, id: u32, secret: u32) -> Result<(), Broken> {
    let (overdue, _) = std::sync::mpsc::channel();
    let mut line = Line::open(address, Duration::from_secs(10), overdue)?;
    let words = [16, CANCEL, id, secret];
    line.write(&words.map(u32::to_be_bytes).concat())
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![kind];
    bytes.extend((body.len() as u32 + 4).to_be_bytes());
    bytes.extend(body);
    bytes
}

fn query(statement: &str) -> Vec<u8> {
    message(b'Q', &[statement.as_bytes(), b"\0"].concat())
}

/// A field of an error.
fn field(body: &[u8], which: u8) -> String {
    let found = body
        .split(|byte| *byte == 0)
        .find(|field| field.first() == Some(&which));
    String::from_utf8_lossy(found.map_or(&[][..], |field| &field[1..])).into_owned()
}

fn first_value(row: &[u8]) -> Option<String> {
    let length: [u8; 4] = row.get(2..6)?.try_into().ok()?;
    let value = row.get(6..6 + usize::try_from(i32::from_be_bytes(length)).ok()?)?;
    Some(String::from_utf8_lossy(value).into_owned())
}

impl Postgres {
    /// All messages until the server is ready for the next query, or has said that it ends.
    fn result(&mut self) -> Result<Answer, Broken> {
        let (mut refused, mut first, mut bytes) = (None, None, 0);
        loop {
            let head = match self.line.read(5) {
                // It said why before it closed.
                Err(Broken::Closed(_)) if refused.is_some() => break,
                head => head?,
            };
            let (kind, length) = (head[0], u32::from_be_bytes([head[1], head[2], head[3], head[4]]));
            let length = (length as usize)
                .checked_sub(4)
                .ok_or_else(|| Broken::Nonsense("a message without a length".to_owned()))?;
            let body = self.line.read(length)?;
            match kind {
                b'Z' => break,
                b'E' => {
                    refused = Some(Answer::Refused {
                        code: field(body, b'C'),
                        text: field(body, b'M'),
                    });
                }
                b'D' => {
                    bytes += body.len();
                    if first.is_none() {
                        first = first_value(body);
                    }
                }
                b'K' => {
                    let word = |at: usize| body.get(at..at + 4).and_then(|word| word.try_into().ok());
                    let [id, secret] = [0, 4].map(|at| word(at).map_or(0, u32::from_be_bytes));
                    (self.line.id, self.line.secret) = (id, secret);
                }
                b'R' if body != [0; 4] => {
                    return Err(Broken::Nonsense(format!("it asks for a password: {body:?}")));
                }
                b'R' | b'S' | b'T' | b'C' | b'1' | b'2' | b'n' | b'N' | b'I' => {}
                _ => return Err(Broken::Nonsense(format!("a message of kind {}", kind as char))),
            }
        }
        self.line.ends();
        Ok(refused.unwrap_or(Answer::Done { first, bytes }))
    }
}

impl Wire for Postgres {
    fn send(&mut self, statement: &str) -> Result<(), Broken> {
        self.line.write(&query(statement))
    }

    fn receive(&mut self) -> Result<Answer, Broken> {
        self.result()
    }

    fn prepared(&mut self, statement: &str) -> Result<Answer, Broken> {
        let parse = message(b'P', &[b"\0", statement.as_bytes(), b"\0\0\0"].concat());
        let bind = message(b'B', &[0; 8]);
        let execute = message(b'E', &[0; 5]);
        self.line
            .write(&[parse, bind, execute, message(b'S', &[])].concat())?;
        self.result()
    }

    fn send_half(&mut self, statement: &str) -> Result<(), Broken> {
        let whole = query(statement);
        self.line.write(&whole[..whole.len() / 2])
    }

    fn several(&mut self, statements: &[&str]) -> Result<Vec<Answer>, Broken> {
        let all: Vec<Vec<u8>> = statements.iter().map(|statement| query(statement)).collect();
        self.line.write(&all.concat())?;
        statements.iter().map(|_| self.result()).collect()
    }

    fn leave(mut self: Box<Self>) {
        let _ = self.line.write(&message(b'X', &[]));
    }

    fn id(&self) -> u32 {
        self.line.id
    }

    fn line(&mut self) -> &mut Line {
        &mut self.line
    }
}
