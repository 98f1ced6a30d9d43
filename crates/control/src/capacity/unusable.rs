//! What can be wrong with an observation.

/// Why an observation gives no step.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum Unusable {
    /// Nobody listens.
    #[error("nobody listens: start the server, or correct the port")]
    Nobody,
    /// It could not be read this time; the counters of the next observation cover this one.
    #[error("the listener could not be read")]
    Unread,
    /// There is nothing to compare it with yet.
    #[error("the first sample: counters say something from the second on")]
    First,
    /// The socket is another one.
    #[error("another socket listens now: its counters and its server are its own")]
    Another,
    /// The time since the last usable one is too long.
    #[error("{length_s:.3} s since the last usable sample, more than {most_s:.3} s: comparing anew")]
    Gap {
        /// The time.
        length_s: f64,
        /// The longest that is compared over.
        most_s: f64,
    },
    /// The time since the last one is none.
    #[error("the step is {length_s} s long: it must be a monotonic clock's time since the sample before")]
    Length {
        /// The time given.
        length_s: f64,
    },
    /// The time since the last one is too short; it is joined with the next.
    #[error("only {length_s:.3} s since the last sample: joined with the next one")]
    Short {
        /// The time.
        length_s: f64,
    },
    /// A number that cannot be done without is not exported.
    #[error("{what} is not measured here: choose a way of measuring that gives it")]
    Missing {
        /// The number that is missing.
        what: &'static str,
    },
    /// K is known from nowhere.
    #[error("the queue's limit cannot be read here: set queue_limit to the server's backlog")]
    NoLimit,
    /// A counter went back, or moved faster than connections come.
    #[error(
        "the count of {what} went from {before} to {now} in {length_s:.3} s: it was started anew, or jumped"
    )]
    Jumped {
        /// The name of the counter.
        what: &'static str,
        /// Its value before.
        before: u64,
        /// Its value now.
        now: u64,
        /// The time between them.
        length_s: f64,
    },
    /// The numbers contradict one another.
    #[error(
        "{arrivals} arrived, {accepts} were accepted, {drops} dropped: the queue cannot have grown by {growth} \
         (within {slack:.1}), so one of the counters does not count this queue"
    )]
    OutOfBalance {
        /// Attempts.
        arrivals: f64,
        /// Accepted.
        accepts: f64,
        /// Dropped.
        drops: f64,
        /// Growth of the queue; 0 where its length is not known.
        growth: f64,
        /// How far they may be apart.
        slack: f64,
    },
    /// More were dropped than came.
    #[error("{drops} drops of {arrivals} arrivals: arrivals must count dropped attempts too")]
    DropsExceedArrivals {
        /// Dropped.
        drops: f64,
        /// Attempts.
        arrivals: f64,
    },
    /// The queue is longer than it can be.
    #[error("a queue of {length:.1} with a limit of {limit}: correct queue_limit")]
    QueueExceedsLimit {
        /// Its length.
        length: f64,
        /// K.
        limit: f64,
    },
    /// Negative or no number at all.
    #[error("a count is negative, infinite or no number")]
    NotCounts,
}

impl Unusable {
    /// The rule's name in an estimate's reason.
    pub const fn rule(&self) -> &'static str {
        match self {
            Self::Nobody => "nobody-listens",
            Self::Unread => "unread",
            Self::First => "first-sample",
            Self::Another => "another-listener",
            Self::Gap { .. } => "gap",
            Self::Length { .. } => "bad-length",
            Self::Short { .. } => "short-step",
            Self::Missing { .. } => "missing",
            Self::NoLimit => "no-limit",
            Self::Jumped { .. } => "jumped",
            Self::OutOfBalance { .. }
            | Self::DropsExceedArrivals { .. }
            | Self::QueueExceedsLimit { .. }
            | Self::NotCounts => "inconsistent",
        }
    }
}
