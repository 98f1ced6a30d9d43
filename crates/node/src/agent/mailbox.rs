//! A place for one thing, where the newest replaces what was not taken yet: between the thread of the machine and a
//! caller that may be slow.

use headroom_wire::tonic::codegen::tokio_stream::Stream;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

#[derive(Debug)]
struct Inner<T> {
    newest: Option<T>,
    waker: Option<Waker>,
    /// One of the two ends is gone.
    closed: bool,
}

#[derive(Debug)]
struct Shared<T>(Mutex<Inner<T>>);

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, Inner<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self) {
        let mut inner = self.lock();
        inner.closed = true;
        let waker = inner.waker.take();
        drop(inner);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// Where things are put in.
#[derive(Debug)]
pub(super) struct Sender<T>(Arc<Shared<T>>);

/// Where they come out: a stream that ends when the sender is dropped and all was taken.
#[derive(Debug)]
pub(super) struct Receiver<T>(Arc<Shared<T>>);

pub(super) fn mailbox<T>() -> (Sender<T>, Receiver<T>) {
    let shared = Arc::new(Shared(Mutex::new(Inner {
        newest: None,
        waker: None,
        closed: false,
    })));
    (Sender(shared.clone()), Receiver(shared))
}

impl<T> Sender<T> {
    /// Puts one in, in the place of one that was not taken.
    pub(super) fn put(&self, one: T) {
        let mut inner = self.0.lock();
        inner.newest = Some(one);
        let waker = inner.waker.take();
        drop(inner);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Nobody takes anything any more.
    pub(super) fn is_abandoned(&self) -> bool {
        self.0.lock().closed
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl<T> Stream for Receiver<T> {
    type Item = T;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        let mut inner = self.0.lock();
        match inner.newest.take() {
            Some(one) => Poll::Ready(Some(one)),
            None if inner.closed => Poll::Ready(None),
            None => {
                inner.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_wire::tonic::codegen::tokio_stream::StreamExt;

    #[tokio::test]
    async fn a_slow_reader_gets_the_newest_and_then_the_end() {
        let (sender, mut receiver) = mailbox();
        for number in 1..=5 {
            sender.put(number);
        }
        assert_eq!(receiver.next().await, Some(5));
        sender.put(6);
        drop(sender);
        assert_eq!(receiver.next().await, Some(6));
        assert_eq!(receiver.next().await, None);
    }

    #[tokio::test]
    async fn a_waiting_reader_is_woken() {
        let (sender, mut receiver) = mailbox();
        let reader = tokio::spawn(async move { receiver.next().await });
        tokio::task::yield_now().await;
        std::thread::spawn(move || sender.put(1)).join().unwrap();
        assert_eq!(reader.await.unwrap(), Some(1));
        let (sender, mut receiver) = mailbox::<u8>();
        let reader = tokio::spawn(async move { receiver.next().await });
        tokio::task::yield_now().await;
        drop(sender);
        assert_eq!(reader.await.unwrap(), None);
    }

    #[test]
    fn a_reader_that_left_is_noticed() {
        let (sender, receiver) = mailbox::<u8>();
        assert!(!sender.is_abandoned());
        drop(receiver);
        assert!(sender.is_abandoned());
    }
}
