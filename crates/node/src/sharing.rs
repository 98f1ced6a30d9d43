//! A lever of the whole machine that several services of one process share, each with a wish of its own.

use crate::restore::Registry;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// What is shared: the lever, and what each member wishes of it.
#[derive(Debug)]
struct Shared<L, W> {
    lever: L,
    next: u64,
    wishes: BTreeMap<u64, W>,
}

impl<L, W: Clone> Shared<L, W> {
    fn with<T>(&mut self, use_it: impl FnOnce(&mut L, &[W]) -> T) -> T {
        let wishes: Vec<W> = self.wishes.values().cloned().collect();
        use_it(&mut self.lever, &wishes)
    }
}

/// The lever of which machine, and under whose record it is put back.
type Key = (PathBuf, usize);

type Open<L, W> = BTreeMap<Key, Weak<Mutex<Shared<L, W>>>>;

/// The levers of one kind that this process has open.
pub(crate) struct Sharing<L, W>(Mutex<Open<L, W>>);

impl<L, W: Clone> Sharing<L, W> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    /// A part in the lever of the machine with this tree; it is opened where nobody has it. Who joins has the
    /// given wish, which takes effect with the next change.
    ///
    /// # Errors
    /// Those of opening it.
    pub(crate) fn join<E>(
        &self,
        sys: &Path,
        registry: &Registry,
        wish: W,
        open: impl FnOnce() -> Result<L, E>,
    ) -> Result<Member<L, W>, E> {
        let mut all = lock(&self.0);
        all.retain(|_, shared| shared.strong_count() > 0);
        let key = (sys.to_path_buf(), registry.identity());
        let shared = match all
            .get(&key)
            .and_then(Weak::upgrade)
            .filter(|shared| !lock(shared).wishes.is_empty())
        {
            Some(shared) => shared,
            None => {
                let shared = Arc::new(Mutex::new(Shared {
                    lever: open()?,
                    next: 0,
                    wishes: BTreeMap::new(),
                }));
                all.insert(key, Arc::downgrade(&shared));
                shared
            }
        };
        let mut inner = lock(&shared);
        let id = inner.next;
        inner.next += 1;
        inner.wishes.insert(id, wish);
        drop(inner);
        Ok(Member { shared, id })
    }
}

/// One member's part.
pub(crate) struct Member<L, W> {
    shared: Arc<Mutex<Shared<L, W>>>,
    id: u64,
}

impl<L: fmt::Debug, W: fmt::Debug> fmt::Debug for Member<L, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Member")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl<L, W: Clone> Member<L, W> {
    /// Reads or changes the lever beside the wishes of all.
    pub(crate) fn with<T>(&self, use_it: impl FnOnce(&mut L, &[W]) -> T) -> T {
        lock(&self.shared).with(use_it)
    }

    /// Changes this member's wish, and the lever with it.
    pub(crate) fn wish<T>(&self, wish: W, change: impl FnOnce(&mut L, &[W]) -> T) -> T {
        let mut shared = lock(&self.shared);
        shared.wishes.insert(self.id, wish);
        shared.with(change)
    }

    /// Ends this member's part, and changes the lever accordingly; later calls do nothing.
    pub(crate) fn leave<T: Default>(&self, change: impl FnOnce(&mut L, &[W]) -> T) -> T {
        // Under one lock: who joins meanwhile must find the lever as it was put back.
        let mut shared = lock(&self.shared);
        match shared.wishes.remove(&self.id) {
            Some(_) => shared.with(change),
            None => T::default(),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
