//! The terminal while a live view has it: opened, drawn on by a thread of its own, given back however the program ends.

mod keys;

use crate::failure::Failure;
use crate::say;
use crate::stop::Stop;
use anyhow::Context;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::terminal::{self, EnterAlternateScreen, LeaveAlternateScreen};
use ratatui::crossterm::{cursor, execute};
use ratatui::{Frame, Terminal};
use std::io::{self, IsTerminal, Stderr};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often keys are looked at.
const KEYS_EVERY: Duration = Duration::from_millis(100);

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

/// Opens a view where one is wanted and there is a terminal to show it in.
///
/// # Errors
/// Where the terminal cannot be set up.
pub fn view<V>(no_view: bool, open: impl FnOnce() -> io::Result<V>) -> Result<Option<V>, Failure> {
    let wanted = !no_view && io::stderr().is_terminal() && io::stdin().is_terminal();
    let view = wanted.then(open).transpose();
    Ok(view.context("the live view cannot be opened; --no-view does without it")?)
}

impl<M: Send + 'static> Stage<M> {
    /// Opens the terminal for a scene; `q` and Ctrl-C raise `stop`. So many messages wait where drawing is slow, as on a
    /// terminal that was halted with Ctrl-S; further ones are left out.
    ///
    /// # Errors
    /// Where the terminal cannot be set up.
    pub fn open(mut scene: impl Scene<Message = M>, waiting: usize, stop: Stop) -> io::Result<Self> {
        terminal::enable_raw_mode()?;
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

/// Gives the terminal back as it was. Called from the panic hook too, so it must not fail.
fn give_back() {
    let _ = execute!(io::stderr(), LeaveAlternateScreen, cursor::Show);
    let _ = terminal::disable_raw_mode();
    say::release();
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
        if keys::asked_to_end(io::stdin())? {
            stop.raise();
        }
        terminal.draw(|frame| scene.draw(frame))?;
    }
}
