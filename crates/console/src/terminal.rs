//! The terminal while a live view has it: opened, drawn on by a thread of its own, given back however the program ends.

mod keys;

use crate::{Failure, Stop, say};
use anyhow::Context;
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::terminal::{self, EnterAlternateScreen, LeaveAlternateScreen};
use ratatui::crossterm::{cursor, execute};
use ratatui::{Frame, Terminal};
use rustix::io::Errno;
use rustix::process::getpgrp;
use rustix::termios::{tcgetpgrp, tcgetwinsize};
use std::io::{self, IsTerminal, Stderr};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often keys are looked at.
const KEYS_EVERY: Duration = Duration::from_millis(100);
/// How long a terminal that takes nothing may keep the program from ending at once.
const TAKES_WITHIN: Duration = Duration::from_secs(1);

/// Whether a view has the terminal. There is one terminal, so one view at a time.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// What is drawn, from the messages that it was sent.
pub trait Scene: Send + 'static {
    /// What it is sent.
    type Message: Send + 'static;

    /// Takes a message.
    fn take(&mut self, message: Self::Message);

    /// Draws everything that is known now.
    fn draw(&self, frame: &mut Frame<'_>);
}

/// A scene on standard error, so that standard output stays free; dropped, it gives the terminal back.
#[derive(Debug)]
pub struct Stage<M> {
    messages: Option<SyncSender<M>>,
    thread: Option<JoinHandle<()>>,
}

/// The width of the terminal that standard output goes to, in characters; `None` where it goes elsewhere, or says none.
pub fn columns() -> Option<usize> {
    let out = io::stdout();
    let size = tcgetwinsize(&out).ok().filter(|_| out.is_terminal())?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// Whether there is a terminal to show a view in. A background job has none: the kernel stops one that sets the terminal's modes or
/// reads its keys (SIGTTOU, SIGTTIN).
pub fn is_there() -> bool {
    let (keys, screen) = (io::stdin(), io::stderr());
    screen.is_terminal() && keys.is_terminal() && is_foreground(&keys) && is_foreground(&screen)
}

/// The terminal that this process was started from, to be asked later whether it is still there: SIGHUP says so, and is an order to many
/// programs as well.
#[derive(Clone, Copy, Debug)]
pub struct ControllingTerminal {
    was_there: bool,
}

impl ControllingTerminal {
    /// The one that there is now, if any.
    pub fn at_start() -> Self {
        Self {
            was_there: Self::is_there(),
        }
    }

    /// Whether there was one, and is none any more.
    pub fn is_gone(&self) -> bool {
        self.was_there && !Self::is_there()
    }

    fn is_there() -> bool {
        // Of a process without one it cannot be opened (tty(4)); also after that hung up.
        std::fs::File::open("/dev/tty").is_ok()
    }
}

/// Opens a view where one is wanted and there is a terminal to show it in ([`is_there`]).
///
/// # Errors
/// Where the terminal cannot be set up.
pub fn view<V>(no_view: bool, open: impl FnOnce() -> io::Result<V>) -> Result<Option<V>, Failure> {
    let view = (!no_view && is_there()).then(open).transpose();
    Ok(view.context("the live view cannot be opened; --no-view does without it")?)
}

/// Whether this process may use a terminal: it is in the terminal's foreground process group, or the terminal is not the
/// one that controls it, so that none of its groups is in the background.
fn is_foreground(terminal: impl AsFd) -> bool {
    match tcgetpgrp(terminal) {
        Ok(group) => group == getpgrp(),
        Err(Errno::NOTTY) => true,
        // A group of another PID namespace: it may be any.
        Err(_) => false,
    }
}

impl<M: Send + 'static> Stage<M> {
    /// Opens the terminal for a scene; `q` and Ctrl-C raise `stop`. So many messages wait where drawing is slow, as on a
    /// terminal that was halted with Ctrl-S; further ones are left out.
    ///
    /// # Errors
    /// Where the terminal cannot be set up.
    pub fn open(mut scene: impl Scene<Message = M>, waiting: usize, stop: Stop) -> io::Result<Self> {
        terminal::enable_raw_mode()?;
        TAKEN.store(true, Ordering::Release);
        say::hold();
        if let Err(error) = execute!(io::stderr(), EnterAlternateScreen, cursor::Hide) {
            give_back();
            return Err(error);
        }
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            give_back();
            before(panic);
        }));
        let (messages, received) = sync_channel(waiting);
        let thread = std::thread::Builder::new()
            .name("view".to_owned())
            .spawn(move || {
                if let Err(error) = run(&received, &mut scene, &stop) {
                    // Nobody reads the keys any more: from now on they must send signals again.
                    give_back();
                    tracing::warn!(%error, "the live view ended");
                }
            });
        match thread {
            Ok(thread) => Ok(Self {
                messages: Some(messages),
                thread: Some(thread),
            }),
            Err(error) => {
                give_back();
                Err(error)
            }
        }
    }

    /// Sends the scene a message. The view may have ended by itself, or be behind: the program goes on without it.
    pub fn send(&self, message: M) {
        if let Some(messages) = &self.messages {
            let _ = messages.try_send(message);
        }
    }
}

impl<M> Drop for Stage<M> {
    fn drop(&mut self) {
        self.messages = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        give_back();
    }
}

/// Gives the terminal back as it was, once. Called from the panic hook too, so it must not fail. A program that was sent
/// to the background meanwhile is not stopped by it, and leaves the modes alone: the shell has set its own.
fn give_back() {
    if !TAKEN.swap(false, Ordering::AcqRel) {
        return;
    }
    let mut ttou = SigSet::empty();
    ttou.add(Signal::SIGTTOU);
    let mask = ttou.thread_swap_mask(SigmaskHow::SIG_BLOCK);
    // First, for it is not kept waiting by a terminal that takes nothing.
    if is_foreground(io::stdin()) {
        let _ = terminal::disable_raw_mode();
    }
    let _ = execute!(io::stderr(), LeaveAlternateScreen, cursor::Show);
    if let Ok(mask) = mask {
        let _ = mask.thread_set_mask();
    }
    say::release();
}

/// Gives the terminal back where a view has it, for a program that ends without dropping anything: it is not waited for
/// long.
pub fn give_back_now() {
    let (done, hears) = sync_channel(1);
    let thread = std::thread::Builder::new().spawn(move || {
        give_back();
        let _ = done.send(());
    });
    match thread {
        // Nothing is heard where it takes too long: then the program ends all the same.
        Ok(_) => drop(hears.recv_timeout(TAKES_WITHIN)),
        Err(_) => give_back(),
    }
}

fn run<S: Scene>(messages: &Receiver<S::Message>, scene: &mut S, stop: &Stop) -> io::Result<()> {
    let mut terminal: Terminal<CrosstermBackend<Stderr>> =
        Terminal::new(CrosstermBackend::new(io::stderr()))?;
    loop {
        match messages.recv_timeout(KEYS_EVERY) {
            Ok(message) => scene.take(message),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
        // After a panic elsewhere, or while the program ends at once: the screen is not ours any more.
        if !TAKEN.load(Ordering::Acquire) {
            return Ok(());
        }
        // Sent to the background: the keys are the shell's.
        if !is_foreground(io::stdin()) {
            continue;
        }
        if keys::asked_to_end(io::stdin())? {
            stop.raise();
        }
        terminal.draw(|frame| scene.draw(frame))?;
    }
}
