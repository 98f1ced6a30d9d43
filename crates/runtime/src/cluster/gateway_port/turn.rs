//! Whose turn it is to take a gateway's periods: one stream's at a time. One that only looks gives way to one that may command.

use headroom_wire::client::Observer;
use headroom_wire::{Refusal, Server};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// The turns at one gateway. A clone is of the same.
#[derive(Clone, Default)]
pub(super) struct Turns(Arc<Inner>);

#[derive(Default)]
struct Inner {
    state: Mutex<State>,
    /// Held by the stream that takes periods: what one took and did not report is back before the next begins.
    taking: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    /// How many there were.
    count: u64,
    held: Option<Held>,
}

struct Held {
    number: u64,
    observer: Observer,
    /// Dropped, it ends the turn.
    _stands: oneshot::Sender<()>,
}

/// The right to take periods, which one stream has until it is dropped or another has it.
pub(super) struct Turn {
    turns: Turns,
    number: u64,
    stands: oneshot::Receiver<()>,
}

fn refusal() -> Refusal {
    Refusal::Busy {
        server: Server::Gateway,
        what: "controller, which takes its counters,".to_owned(),
        limit: 1,
    }
}

impl Turns {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has it be the caller's turn.
    ///
    /// # Errors
    /// It is another's, who does not give way.
    pub(super) fn take(&self, observer: Observer) -> Result<Turn, Refusal> {
        let mut state = self.lock();
        let gives_way = |held: &Held| (held.observer, observer) == (Observer::OnlyLooks, Observer::Commands);
        if !state.held.as_ref().is_none_or(gives_way) {
            return Err(refusal());
        }
        let (sender, stands) = oneshot::channel();
        state.count += 1;
        let number = state.count;
        state.held = Some(Held {
            number,
            observer,
            _stands: sender,
        });
        Ok(Turn {
            turns: self.clone(),
            number,
            stands,
        })
    }

    /// Waits until the stream whose turn it was before takes nothing any more, and keeps the next from it.
    pub(super) async fn taking(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.0.taking.lock().await
    }
}

impl Turn {
    /// Waits until it is another's; what its stream is told then.
    pub(super) async fn is_over(&mut self) -> Refusal {
        // Nothing is ever sent.
        let _ = (&mut self.stands).await;
        refusal()
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut state = self.turns.lock();
        if state.held.as_ref().is_some_and(|held| held.number == self.number) {
            state.held = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::levers::placement_tests::{PATIENCE, PERIOD, served, server};
    use super::*;
    use crate::cluster::Gateways;
    use headroom_wire::client::{CallError, ClientOptions, GatewayClient};
    use std::time::Duration;

    #[test]
    fn one_that_looks_gives_way_to_one_that_commands_and_to_nobody_else() {
        use Observer::{Commands, OnlyLooks};
        for (has, asks, is_given) in [
            (OnlyLooks, OnlyLooks, false),
            (OnlyLooks, Commands, true),
            (Commands, OnlyLooks, false),
            (Commands, Commands, false),
        ] {
            let turns = Turns::default();
            let mut first = turns.take(has).unwrap();
            let second = turns.take(asks);
            assert_eq!(second.is_ok(), is_given, "{has:?}, {asks:?}");
            let is_over = first.stands.try_recv() == Err(oneshot::error::TryRecvError::Closed);
            assert_eq!(is_over, is_given, "{has:?}, {asks:?}");
            // The first one's end is not the second one's.
            drop(first);
            assert_eq!(turns.take(Commands).is_err(), is_given, "{has:?}, {asks:?}");
            drop(second);
            assert!(turns.take(OnlyLooks).is_ok());
        }
    }

    #[test]
    fn a_controller_has_the_periods_of_a_dry_run_which_is_told_why() {
        let served = served(&[&server("a")], &[4096]);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(async {
            let connect = || async {
                let client = GatewayClient::connect(&served.control, &ClientOptions::default()).await;
                client.unwrap()
            };
            let (dry, controller) = (connect().await, connect().await);
            let part = Duration::from_millis(20);
            // One that reads nothing keeps it from nobody.
            let mut looks = dry.observe(part, Observer::OnlyLooks).await.unwrap();
            assert!(looks.next().await.unwrap().is_some());
            tokio::time::sleep(10 * part).await;
            let mut periods = controller.observe(part, Observer::Commands).await.unwrap();
            for number in 1..4 {
                assert_eq!(periods.next().await.unwrap().unwrap().number, number);
            }
            let why = loop {
                match looks.next().await {
                    Ok(period) => assert!(period.is_some(), "it ends with a word"),
                    Err(why) => break why,
                }
            };
            assert!(matches!(&why, CallError::Refused(_)), "{why}");
            assert!(why.to_string().contains("serves 1 controller"), "{why}");
            let refused = dry.observe(part, Observer::OnlyLooks).await.unwrap_err();
            assert!(matches!(refused, CallError::Refused(_)), "{refused}");
        });
    }

    #[test]
    fn gateways_that_are_looked_at_are_whoever_commands_them() {
        let served = served(&[&server("a")], &[4096]);
        let named = || vec![("g".to_owned(), served.control.clone())];
        let options = ClientOptions::default();
        let looks = Gateways::look(named(), &options, PERIOD).unwrap();
        assert!(looks.connect(PATIENCE, || false).is_empty());
        let commands = Gateways::start(named(), &options, PERIOD).unwrap();
        assert!(commands.connect(PATIENCE, || false).is_empty());
        let second = Gateways::look(named(), &options, PERIOD).unwrap();
        assert_eq!(second.connect(PERIOD, || false).len(), 1);
    }
}
