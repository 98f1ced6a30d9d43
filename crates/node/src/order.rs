//! A user's order of preference among a few things known by name: a word or a list of words in a configuration.

use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

/// The most things of a kind.
const MOST: usize = 8;

/// Something known by a word.
pub trait Word: Copy + Eq + fmt::Debug + 'static {
    /// All of them; at most eight.
    const ALL: &'static [Self];
    /// Those that `auto` stands for, in order.
    const AUTO: &'static [Self];
    /// What they are, for messages: "meter".
    const WHAT: &'static str;

    /// Its word.
    fn as_str(self) -> &'static str;

    /// What is said where it is the one in use.
    fn in_use(self) -> String {
        format!("the {} in use is {}", Self::WHAT, self.as_str())
    }
}

/// One that was preferred to the chosen one and could not be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PassedOver<T> {
    /// The kind of meter or lever.
    pub what: T,
    /// Why not.
    pub reason: String,
}

impl<T: fmt::Display> fmt::Display for PassedOver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.reason)
    }
}

/// Which one was chosen, and what was passed over on the way: to be said at the start of a run and in its report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice<T> {
    /// The one in use.
    pub chosen: T,
    /// In the order in which they were tried or given up.
    pub passed_over: Vec<PassedOver<T>>,
}

impl<T: Word + fmt::Display> fmt::Display for Choice<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.chosen.in_use())?;
        for PassedOver { what, reason } in &self.passed_over {
            write!(f, "; {what} cannot be used: {reason}")?;
        }
        Ok(())
    }
}

/// Why none was chosen.
#[derive(Debug)]
pub enum NoChoice<T, E> {
    /// One failed such that no other may be tried.
    Fatal(E),
    /// None of them works.
    PassedOver(Vec<PassedOver<T>>),
}

impl<T: fmt::Display, E: fmt::Display> fmt::Display for NoChoice<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fatal(error) => error.fmt(f),
            Self::PassedOver(all) => {
                let reasons: Vec<String> = all.iter().map(ToString::to_string).collect();
                f.write_str(&reasons.join("; "))
            }
        }
    }
}

/// Opens the first of an order that works.
///
/// # Errors
/// [`NoChoice`]: none does, or one failed such that no other may be tried.
pub(crate) fn choose<T: Copy, O, E: fmt::Display>(
    order: &[T],
    mut open: impl FnMut(T) -> Result<O, E>,
    is_fatal: impl Fn(&E) -> bool,
) -> Result<(O, Choice<T>), NoChoice<T, E>> {
    let mut passed_over = Vec::new();
    for &what in order {
        match open(what) {
            Ok(opened) => {
                let chosen = what;
                return Ok((opened, Choice { chosen, passed_over }));
            }
            Err(error) if is_fatal(&error) => return Err(NoChoice::Fatal(error)),
            Err(error) => passed_over.push(PassedOver {
                what,
                reason: error.to_string(),
            }),
        }
    }
    Err(NoChoice::PassedOver(passed_over))
}

/// An order that is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OrderError {
    /// A word that is none of them.
    #[error("\"{word}\" is no {what}: write auto, or one or a list of {known}")]
    Unknown {
        /// The word, shortened.
        word: String,
        /// What it should be.
        what: &'static str,
        /// All the words.
        known: String,
    },
    /// One of them twice.
    #[error("{word} is in the list twice: each {what} is tried once")]
    Twice {
        /// The word that stands twice.
        word: &'static str,
        /// What it is.
        what: &'static str,
    },
    /// None at all.
    #[error("the list is empty: write auto, or name at least one {what}")]
    Empty {
        /// What is to be named.
        what: &'static str,
    },
}

/// Things in the order in which they are tried, each at most once, at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Order<T>([Option<T>; MOST]);

impl<T: Word> Order<T> {
    /// One alone.
    pub fn one(it: T) -> Self {
        let mut all = [None; MOST];
        all[0] = Some(it);
        Self(all)
    }

    /// Several.
    ///
    /// # Errors
    /// [`OrderError`] for none, or for one twice.
    pub fn new(order: &[T]) -> Result<Self, OrderError> {
        let mut all = [None; MOST];
        for (at, &it) in order.iter().enumerate() {
            if order[..at].contains(&it) {
                return Err(OrderError::Twice {
                    word: it.as_str(),
                    what: T::WHAT,
                });
            }
            // As each is there once, and there are at most as many as places, every one has its place.
            if let Some(place) = all.get_mut(at) {
                *place = Some(it);
            }
        }
        match order.is_empty() {
            true => Err(OrderError::Empty { what: T::WHAT }),
            false => Ok(Self(all)),
        }
    }

    /// In order.
    pub fn iter(&self) -> impl Iterator<Item = T> + '_ {
        self.0.iter().copied().flatten()
    }
}

/// The thing of a word.
pub(crate) fn find<T: Word>(word: &str) -> Result<T, OrderError> {
    let known = T::ALL.iter().copied();
    known
        .clone()
        .find(|it| it.as_str() == word)
        .ok_or_else(|| OrderError::Unknown {
            word: word.chars().take(40).collect(),
            what: T::WHAT,
            known: known.map(T::as_str).collect::<Vec<_>>().join(", "),
        })
}

impl<T: Word> fmt::Display for Order<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<&str> = self.iter().map(T::as_str).collect();
        f.write_str(&words.join(","))
    }
}

impl<T: Word> FromStr for Order<T> {
    type Err = OrderError;

    /// Words with commas between them.
    fn from_str(text: &str) -> Result<Self, OrderError> {
        let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
        Self::new(&words.map(find).collect::<Result<Vec<T>, _>>()?)
    }
}

impl<T: Word> Serialize for Order<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let words: Vec<&str> = self.iter().map(T::as_str).collect();
        match words[..] {
            [one] => serializer.serialize_str(one),
            _ => serializer.collect_seq(words),
        }
    }
}

struct Words<T>(PhantomData<T>);

impl<'de, T: Word> Visitor<'de> for Words<T> {
    type Value = Preference<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known: Vec<&str> = T::ALL.iter().copied().map(T::as_str).collect();
        write!(f, "\"auto\", or one or a list of {}", known.join(", "))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut words: A) -> Result<Self::Value, A::Error> {
        let mut order = Vec::new();
        while let Some(word) = words.next_element::<String>()? {
            if order.len() > MOST {
                break;
            }
            order.push(find(&word).map_err(de::Error::custom)?);
        }
        Order::new(&order)
            .map(Preference::Ordered)
            .map_err(de::Error::custom)
    }
}

/// What the user wants: the first of a kind's own order that works, or of these. In a configuration it is a word (`"auto"`,
/// `"rapl"`) or a list of them (`["rapl", "hwmon", "model"]`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Preference<T> {
    /// [`Word::AUTO`].
    #[default]
    Auto,
    /// These and no other.
    Ordered(Order<T>),
}

impl<T: Word> Preference<T> {
    /// One alone.
    pub fn one(it: T) -> Self {
        Self::Ordered(Order::one(it))
    }

    /// Those to try, in order.
    pub fn order(&self) -> Vec<T> {
        match self {
            Self::Auto => T::AUTO.to_vec(),
            Self::Ordered(order) => order.iter().collect(),
        }
    }
}

impl<T: Word> fmt::Display for Preference<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Ordered(order) => order.fmt(f),
        }
    }
}

impl<T: Word> FromStr for Preference<T> {
    type Err = OrderError;

    /// `auto`, or words with commas between them.
    fn from_str(text: &str) -> Result<Self, OrderError> {
        match text.trim() {
            "auto" => Ok(Self::Auto),
            list => list.parse().map(Self::Ordered),
        }
    }
}

impl<T: Word> Serialize for Preference<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => serializer.serialize_str("auto"),
            Self::Ordered(order) => order.serialize(serializer),
        }
    }
}

impl<'de, T: Word> Deserialize<'de> for Preference<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Words(PhantomData))
    }
}
