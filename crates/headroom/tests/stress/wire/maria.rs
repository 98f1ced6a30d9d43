//! MariaDB's and MySQL's protocol.

use super::{Answer, Broken, Connected, Line, Login, Wire};

const LONG_PASSWORD: u32 = 1;
const PROTOCOL_41: u32 = 0x200;
const TRANSACTIONS: u32 = 0x2000;
const SECURE_CONNECTION: u32 = 0x8000;
const PLUGIN_AUTH: u32 = 0x8_0000;
const LARGEST_PACKET: u32 = 0x0400_0000;
const UTF8: u8 = 33;

const QUIT: u8 = 1;
const QUERY: u8 = 3;
const PREPARE: u8 = 0x16;
const EXECUTE: u8 = 0x17;
const CLOSE: u8 = 0x19;

struct Maria {
    line: Line,
}

/// Connects, and logs in.
pub fn connect(login: &Login<'_>) -> Result<Connected, Broken> {
    let mut line = Line::open(login.address, login.bound, login.overdue.clone())?;
    let (_, greeting) = packet(&mut line)?;
    if greeting.first() == Some(&0xff) {
        line.ends();
        return Ok(Connected::Refused(refused(&greeting)));
    }
    let version = greeting
        .iter()
        .skip(1)
        .position(|byte| *byte == 0)
        .ok_or_else(|| Broken::Nonsense("a greeting without a version".to_owned()))?;
    let id = greeting
        .get(version + 2..version + 6)
        .and_then(|id| id.try_into().ok())
        .map(u32::from_le_bytes)
        .ok_or_else(|| Broken::Nonsense("a greeting without a number".to_owned()))?;
    line.id = id;
    let able = LONG_PASSWORD | PROTOCOL_41 | TRANSACTIONS | SECURE_CONNECTION | PLUGIN_AUTH;
    let mut reply = able.to_le_bytes().to_vec();
    reply.extend(LARGEST_PACKET.to_le_bytes());
    reply.push(UTF8);
    reply.extend([0; 23]);
    reply.extend(login.user.as_bytes());
    // No password.
    reply.extend([0, 0]);
    reply.extend(b"mysql_native_password\0");
    line.write(&message(1, &reply))?;
    let mut maria = Maria { line };
    let (number, mut said) = packet(&mut maria.line)?;
    if said.first() == Some(&0xfe) {
        maria.line.write(&message(number.wrapping_add(1), &[]))?;
        (_, said) = packet(&mut maria.line)?;
    }
    maria.line.ends();
    match said.first() {
        Some(0) => Ok(Connected::Yes(Box::new(maria))),
        Some(0xff) => Ok(Connected::Refused(refused(&said))),
        _ => Err(Broken::Nonsense(format!("the login was answered with {said:?}"))),
    }
}

/// A packet with its header.
fn message(number: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = (body.len() as u32).to_le_bytes();
    bytes[3] = number;
    let mut bytes = bytes.to_vec();
    bytes.extend(body);
    bytes
}

fn command(which: u8, text: &[u8]) -> Vec<u8> {
    let mut body = vec![which];
    body.extend(text);
    message(0, &body)
}

/// The next packet: its number, and its body.
fn packet(line: &mut Line) -> Result<(u8, Vec<u8>), Broken> {
    let header = line.read(4)?;
    let length = u32::from_le_bytes([header[0], header[1], header[2], 0]);
    let number = header[3];
    Ok((number, line.read(length as usize)?.to_vec()))
}

fn refused(body: &[u8]) -> Answer {
    let code = body
        .get(1..3)
        .map_or(0, |code| u16::from_le_bytes([code[0], code[1]]));
    let text = body.get(3..).unwrap_or_default();
    Answer::Refused {
        code: code.to_string(),
        text: String::from_utf8_lossy(text).into_owned(),
    }
}

fn is_end(body: &[u8]) -> bool {
    body.first() == Some(&0xfe) && body.len() < 9
}

/// The first value of a row of text.
fn first_value(row: &[u8]) -> Option<String> {
    let (length, rest) = match row {
        [0xfc, low, high, rest @ ..] => (usize::from(u16::from_le_bytes([*low, *high])), rest),
        [length @ 0..=250, rest @ ..] => (usize::from(*length), rest),
        _ => return None,
    };
    rest.get(..length)
        .map(|value| String::from_utf8_lossy(value).into_owned())
}

impl Maria {
    fn skip_columns(&mut self) -> Result<(), Broken> {
        loop {
            let (_, body) = packet(&mut self.line)?;
            if is_end(&body) {
                return Ok(());
            }
        }
    }

    fn result(&mut self) -> Result<Answer, Broken> {
        let (_, head) = packet(&mut self.line)?;
        let answer = match head.first() {
            Some(0) => Answer::Done {
                first: None,
                bytes: 0,
            },
            Some(0xff) => refused(&head),
            Some(1..=0xfa) => self.rows()?,
            _ => return Err(Broken::Nonsense(format!("an answer that begins with {head:?}"))),
        };
        self.line.ends();
        Ok(answer)
    }

    fn rows(&mut self) -> Result<Answer, Broken> {
        self.skip_columns()?;
        let (mut first, mut bytes) = (None, 0);
        loop {
            let (_, row) = packet(&mut self.line)?;
            if row.first() == Some(&0xff) {
                return Ok(refused(&row));
            }
            if is_end(&row) {
                return Ok(Answer::Done { first, bytes });
            }
            bytes += row.len();
            if first.is_none() {
                first = first_value(&row);
            }
        }
    }
}

impl Wire for Maria {
    fn send(&mut self, statement: &str) -> Result<(), Broken> {
        self.line.write(&command(QUERY, statement.as_bytes()))
    }

    fn receive(&mut self) -> Result<Answer, Broken> {
        self.result()
    }

    fn prepared(&mut self, statement: &str) -> Result<Answer, Broken> {
        self.line.write(&command(PREPARE, statement.as_bytes()))?;
        let (_, head) = packet(&mut self.line)?;
        if head.first() == Some(&0xff) {
            self.line.ends();
            return Ok(refused(&head));
        }
        let Some((id, columns)) = head.get(1..5).zip(head.get(5..7)) else {
            return Err(Broken::Nonsense(format!("a statement was prepared as {head:?}")));
        };
        let id = id.to_vec();
        if columns != [0, 0] {
            self.skip_columns()?;
        }
        let mut body = id.clone();
        body.extend([0, 1, 0, 0, 0]);
        self.line.write(&command(EXECUTE, &body))?;
        let answer = self.result()?;
        self.line.write(&command(CLOSE, &id))?;
        Ok(answer)
    }

    fn send_half(&mut self, statement: &str) -> Result<(), Broken> {
        let whole = command(QUERY, statement.as_bytes());
        self.line.write(&whole[..whole.len() / 2])
    }

    fn several(&mut self, statements: &[&str]) -> Result<Vec<Answer>, Broken> {
        let all = statements
            .iter()
            .flat_map(|statement| command(QUERY, statement.as_bytes()));
        self.line.write(&all.collect::<Vec<u8>>())?;
        statements.iter().map(|_| self.result()).collect()
    }

    fn leave(mut self: Box<Self>) {
        let _ = self.line.write(&command(QUIT, &[]));
    }

    fn id(&self) -> u32 {
        self.line.id
    }

    fn line(&mut self) -> &mut Line {
        &mut self.line
    }
}
