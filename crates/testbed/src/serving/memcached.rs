//! Memcached's text protocol on the machine: `get`, `gets`, `set`, `delete`, `stats`, `version`, `quit`.
//!
//! What is set is kept, up to [`MAX_STORED`] bytes of values in all: one more is refused as memcached refuses what it has no memory for;
//! nothing is evicted.

use super::Front;
use bytes::Bytes;
use std::collections::HashMap;
use std::io;
use std::net::TcpListener;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};

/// The most bytes of values.
const MAX_STORED: usize = 256 << 20;
/// The most bytes of one value, memcached's default.
const MAX_VALUE: usize = 1 << 20;
/// The longest key, memcached's.
const MAX_KEY: usize = 250;
/// The longest line of a command.
const MAX_LINE: u64 = 8 << 10;
/// The most connections at a time; further ones wait in the accept queue.
pub(super) const MAX_CONNECTIONS: usize = 4_096;

#[derive(Debug, Default)]
struct Store {
    values: HashMap<Vec<u8>, (u32, Bytes)>,
    bytes: usize,
}

impl Store {
    /// Whether there was room for it.
    fn set(&mut self, key: &[u8], flags: u32, value: Bytes) -> bool {
        let before = self.values.get(key).map_or(0, |(_, value)| value.len());
        let bytes = self.bytes - before + value.len();
        if bytes > MAX_STORED {
            return false;
        }
        self.bytes = bytes;
        self.values.insert(key.to_vec(), (flags, value));
        true
    }

    fn delete(&mut self, key: &[u8]) -> bool {
        let gone = self.values.remove(key);
        self.bytes -= gone.as_ref().map_or(0, |(_, value)| value.len());
        gone.is_some()
    }
}

/// Serves until it is stopped; connections that are open then are closed.
pub(super) fn run(
    front: Arc<Front>,
    listener: TcpListener,
    mut stopping: watch::Receiver<bool>,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async move {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let store = Arc::new(Mutex::new(Store::default()));
        let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        loop {
            let accepted = async {
                // The semaphore is never closed, so acquiring fails never; without room nothing is accepted.
                let permit = Arc::clone(&room).acquire_owned().await;
                (listener.accept().await, permit)
            };
            let (accepted, permit) = tokio::select! {
                accepted = accepted => accepted,
                // A closed channel means that the handle was dropped.
                _ = stopping.wait_for(|&stop| stop) => return Ok(()),
            };
            let Ok((stream, _)) = accepted else {
                // No file descriptors: some may be free again soon.
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                continue;
            };
            let (front, store) = (Arc::clone(&front), Arc::clone(&store));
            tokio::spawn(async move {
                // A connection that breaks concerns its client only.
                let _ = talk(stream, &front, &store).await;
                drop(permit);
            });
        }
    })
}

/// One connection, command by command.
async fn talk(stream: TcpStream, front: &Front, store: &Mutex<Store>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (read, mut write) = stream.into_split();
    let mut read = BufReader::new(read);
    let mut line = Vec::new();
    loop {
        line.clear();
        let length = (&mut read).take(MAX_LINE).read_until(b'\n', &mut line).await?;
        if length == 0 {
            return Ok(());
        }
        if !line.ends_with(b"\n") {
            write.write_all(b"CLIENT_ERROR line too long\r\n").await?;
            return Ok(());
        }
        let text = line.trim_ascii_end();
        let words: Vec<&[u8]> = text
            .split(|byte| *byte == b' ')
            .filter(|word| !word.is_empty())
            .collect();
        let Some((command, arguments)) = words.split_first() else {
            write.write_all(b"ERROR\r\n").await?;
            continue;
        };
        let answer = match *command {
            b"get" | b"gets" => get(front, store, *command == b"gets", arguments, length).await,
            b"set" => match set(&mut read, front, store, arguments, length).await? {
                Some(answer) => answer,
                None => return Ok(()),
            },
            b"delete" => match arguments {
                [key, ..] if locked(store).delete(key) => b"DELETED\r\n".to_vec(),
                [_, ..] => b"NOT_FOUND\r\n".to_vec(),
                [] => b"ERROR\r\n".to_vec(),
            },
            b"version" => format!("VERSION {}-emulated\r\n", env!("CARGO_PKG_VERSION")).into_bytes(),
            b"stats" => stats(front, store),
            b"quit" => return Ok(()),
            _ => b"ERROR\r\n".to_vec(),
        };
        write.write_all(&answer).await?;
    }
}

fn locked(store: &Mutex<Store>) -> std::sync::MutexGuard<'_, Store> {
    store.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Answers with what is there of the keys, when the machine has served as much.
async fn get(front: &Front, store: &Mutex<Store>, with_cas: bool, keys: &[&[u8]], asked: usize) -> Vec<u8> {
    if keys.is_empty() || keys.iter().any(|key| key.len() > MAX_KEY) {
        return b"CLIENT_ERROR give keys of at most 250 bytes\r\n".to_vec();
    }
    let found: Vec<(&[u8], u32, Bytes)> = {
        let store = locked(store);
        let found = keys.iter().filter_map(|key| {
            let (flags, value) = store.values.get(*key)?;
            Some((*key, *flags, value.clone()))
        });
        found.collect()
    };
    let bytes: usize = found.iter().map(|(_, _, value)| value.len()).sum();
    if !front.hold(asked, bytes).await {
        return BUSY.to_vec();
    }
    let mut answer = Vec::with_capacity(bytes + 64 * found.len() + 8);
    for (key, flags, value) in found {
        answer.extend_from_slice(b"VALUE ");
        answer.extend_from_slice(key);
        let cas = if with_cas { " 0" } else { "" };
        answer.extend_from_slice(format!(" {flags} {}{cas}\r\n", value.len()).as_bytes());
        answer.extend_from_slice(&value);
        answer.extend_from_slice(b"\r\n");
    }
    answer.extend_from_slice(b"END\r\n");
    answer
}

const BUSY: &[u8] = b"SERVER_ERROR too many requests in the emulated machine\r\n";

/// Keeps a value; `None` where the connection is of no use any more.
async fn set(
    read: &mut (impl AsyncRead + Unpin),
    front: &Front,
    store: &Mutex<Store>,
    arguments: &[&[u8]],
    asked: usize,
) -> io::Result<Option<Vec<u8>>> {
    let number = |word: &[u8]| std::str::from_utf8(word).ok()?.parse::<u32>().ok();
    let (key, flags, length, quiet) = match *arguments {
        [key, flags, _, length] => (key, flags, length, false),
        [key, flags, _, length, b"noreply"] => (key, flags, length, true),
        _ => return Ok(Some(b"ERROR\r\n".to_vec())),
    };
    let (Some(flags), Some(length)) = (number(flags), number(length)) else {
        return Ok(Some(b"CLIENT_ERROR bad command line format\r\n".to_vec()));
    };
    let length = length as usize;
    if length > MAX_VALUE {
        let left = length as u64 + 2;
        let gone = tokio::io::copy(&mut read.take(left), &mut tokio::io::sink()).await?;
        let too_large = b"SERVER_ERROR object too large for cache\r\n".to_vec();
        return Ok((gone == left).then_some(too_large));
    }
    let mut value = vec![0; length + 2];
    read.read_exact(&mut value).await?;
    if !value.ends_with(b"\r\n") {
        return Ok(Some(b"CLIENT_ERROR bad data chunk\r\n".to_vec()));
    }
    value.truncate(length);
    let answer: &[u8] = if key.len() > MAX_KEY {
        b"CLIENT_ERROR give a key of at most 250 bytes\r\n"
    } else if !front.hold(asked + length, 0).await {
        BUSY
    } else if locked(store).set(key, flags, value.into()) {
        b"STORED\r\n"
    } else {
        b"SERVER_ERROR out of memory storing object\r\n"
    };
    Ok(Some(if quiet { Vec::new() } else { answer.to_vec() }))
}

fn stats(front: &Front, store: &Mutex<Store>) -> Vec<u8> {
    let status = front.status();
    let (items, bytes) = {
        let store = locked(store);
        (store.values.len(), store.bytes)
    };
    format!(
        "STAT emulated_machine {}\r\nSTAT emulated_watts {:.3}\r\nSTAT emulated_joules {:.3}\r\nSTAT curr_items {items}\r\nSTAT bytes {bytes}\r\nEND\r\n",
        status.machine, status.mean_w, status.energy_j
    )
    .into_bytes()
}
