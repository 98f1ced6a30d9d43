//! Bytes of a body that wait to go on.
//!
//! A peer chooses how its body is cut. A piece shares the memory of all that was read with it, and has an entry of its own: of chunks of
//! one byte a queue would hold a hundred times what it counts. So small pieces are copied together.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

/// Pieces from this on are kept as they came; smaller ones are copied together to about as much.
const WHOLE_BYTES: usize = 16 * 1024;

/// Bytes in their order, in pieces. What it holds is at most a few times [`Pieces::len`], however they came.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    ready: VecDeque<Bytes>,
    /// The last of them, which still grows.
    tail: BytesMut,
    bytes: usize,
}

impl Pieces {
    /// Adds a piece at the end.
    pub(crate) fn push(&mut self, piece: Bytes) {
        self.bytes += piece.len();
        if piece.len() >= WHOLE_BYTES {
            self.end_tail();
            self.ready.push_back(piece);
            return;
        }
        if self.tail.len() + piece.len() > WHOLE_BYTES {
            self.end_tail();
        }
        self.tail.extend_from_slice(&piece);
    }

    fn end_tail(&mut self) {
        if !self.tail.is_empty() {
            self.ready.push_back(std::mem::take(&mut self.tail).freeze());
        }
    }

    /// Takes the first piece.
    pub(crate) fn pop(&mut self) -> Option<Bytes> {
        self.pop_at_most(usize::MAX)
    }

    /// Takes the first piece, or so many bytes of it.
    pub(crate) fn pop_at_most(&mut self, most: usize) -> Option<Bytes> {
        if self.ready.is_empty() {
            self.end_tail();
        }
        let first = self.ready.front_mut()?;
        let piece = match first.len() > most {
            true => first.split_to(most),
            false => self.ready.pop_front()?,
        };
        self.bytes -= piece.len();
        Some(piece)
    }

    /// How many bytes they are.
    pub(crate) fn len(&self) -> usize {
        self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// All of them in one.
    pub(crate) fn concat(mut self) -> Vec<u8> {
        let mut all = Vec::with_capacity(self.bytes);
        while let Some(piece) = self.pop() {
            all.extend_from_slice(&piece);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn small_pieces_become_few_and_large_ones_stay_as_they_are() {
        let mut pieces = Pieces::default();
        for _ in 0..40_000 {
            pieces.push(Bytes::from_static(b"x"));
        }
        let large = Bytes::from(vec![b'y'; WHOLE_BYTES]);
        pieces.push(large.clone());
        pieces.push(Bytes::from_static(b"z"));
        assert_eq!(pieces.len(), 40_000 + WHOLE_BYTES + 1);
        assert!(pieces.ready.len() <= 4, "{} entries", pieces.ready.len());
        let mut came = Vec::new();
        while let Some(piece) = pieces.pop() {
            if piece.len() == WHOLE_BYTES && piece[0] == b'y' {
                assert_eq!(piece.as_ptr(), large.as_ptr(), "it is not copied");
            }
            came.push(piece.len());
        }
        assert_eq!(came.len(), 5, "{came:?}");
        assert!(pieces.is_empty());
    }

    proptest! {
        #[test]
        fn what_goes_in_comes_out_in_its_order(
            cuts in prop::collection::vec((0_usize..40_000, any::<bool>()), 0..40),
        ) {
            let (mut pieces, mut sent, mut got) = (Pieces::default(), Vec::new(), Vec::new());
            for (length, pops) in cuts {
                let piece: Vec<u8> = (0..length).map(|index| (sent.len() + index) as u8).collect();
                sent.extend_from_slice(&piece);
                if !piece.is_empty() {
                    pieces.push(piece.into());
                }
                if pops && let Some(piece) = pieces.pop_at_most(9_000) {
                    prop_assert!((1..=9_000).contains(&piece.len()));
                    got.extend_from_slice(&piece);
                }
                prop_assert_eq!(pieces.len(), sent.len() - got.len());
            }
            got.extend_from_slice(&pieces.concat());
            prop_assert_eq!(got, sent);
        }
    }
}
