//! The pages: titles, texts and their edits, written from a seed.

use crate::words::{EDITORS, PLACES, QUALITIES, WORDS};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::HashMap;
use std::fmt::Write as _;

/// The shortest page's length at a factor of 1, bytes of Markdown. The mean page is 4.4 times as long (the mean
/// of a logarithmically even spread from 1 to 12 is 11 / ln 12), so 12 kB.
const MIN_BYTES: f64 = 2700.0;

/// How many times longer the longest page is than the shortest.
const SPREAD: f64 = 12.0;

/// One page.
pub(super) struct Page {
    /// As it stands in the path: words joined by underscores.
    pub(super) title: String,
    /// The first revision, block by block.
    pub(super) blocks: Vec<String>,
    /// What each further revision changed.
    pub(super) edits: Vec<Edit>,
}

/// One block replaced.
pub(super) struct Edit {
    pub(super) block: usize,
    pub(super) text: String,
    pub(super) editor: &'static str,
}

/// All pages, never changed once written.
pub(super) struct Store {
    pub(super) pages: Vec<Page>,
    by_title: HashMap<String, usize>,
}

impl Store {
    /// Writes `count` pages of `revisions` revisions each, `length` times as long as usual.
    pub(super) fn write(count: usize, revisions: usize, length: f64, seed: u64) -> Self {
        let titles = titles(count, seed);
        let pages: Vec<Page> = (0..count)
            .map(|index| {
                // Lengths are spread evenly on a logarithmic scale, and dealt so that they do not rise with the
                // titles' order: a stride that shares no factor with the count visits each once.
                let rank = index * stride(count) % count;
                let relative = SPREAD.powf(rank as f64 / (count - 1).max(1) as f64);
                let page_seed = seed
                    .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                    .wrapping_add(index as u64);
                Writer {
                    rng: ChaCha8Rng::seed_from_u64(page_seed),
                    titles: &titles,
                }
                .page(index, (MIN_BYTES * length * relative) as usize, revisions)
            })
            .collect();
        let by_title = pages
            .iter()
            .enumerate()
            .map(|(index, page)| (page.title.clone(), index))
            .collect();
        Self { pages, by_title }
    }

    /// The page of a title as it stands in the path.
    pub(super) fn find(&self, title: &str) -> Option<usize> {
        self.by_title.get(title).copied()
    }
}

/// A number near the golden section of `count` that shares no factor with it.
fn stride(count: usize) -> usize {
    let common = |mut a: usize, mut b: usize| {
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let start = (count as f64 * 0.618) as usize;
    (start.max(1)..=count)
        .find(|&candidate| common(candidate, count) == 1)
        .unwrap_or(1)
}

/// Different titles: pairs of a quality and a place, in an order drawn from the seed.
fn titles(count: usize, seed: u64) -> Vec<String> {
    let mut pairs: Vec<String> = QUALITIES
        .iter()
        .flat_map(|quality| PLACES.iter().map(move |place| format!("{quality}_{place}")))
        .collect();
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    for index in (1..pairs.len()).rev() {
        pairs.swap(index, rng.random_range(0..=index));
    }
    pairs.truncate(count);
    pairs
}

/// Writes texts.
struct Writer<'a> {
    rng: ChaCha8Rng,
    titles: &'a [String],
}

impl Writer<'_> {
    fn page(mut self, index: usize, bytes: usize, revisions: usize) -> Page {
        let mut blocks = vec![self.paragraph()];
        let mut written = blocks[0].len();
        while written < bytes {
            let block = self.block(blocks.len());
            written += block.len();
            blocks.push(block);
        }
        let edits = (1..revisions)
            .map(|_| {
                let block = self.rng.random_range(0..blocks.len());
                let editor = EDITORS[self.rng.random_range(0..EDITORS.len())];
                // A block is replaced by one of its kind, so that a page keeps its length over its revisions.
                Edit {
                    block,
                    text: if block == 0 {
                        self.paragraph()
                    } else {
                        self.block(block)
                    },
                    editor,
                }
            })
            .collect();
        Page {
            title: self.titles[index].clone(),
            blocks,
            edits,
        }
    }

    /// The block at a place: each sixth begins a section, the others take turns.
    fn block(&mut self, place: usize) -> String {
        match place % 12 {
            1 => format!("## {}", self.phrase(3)),
            7 => format!("### {}", self.phrase(4)),
            3 => self.list("- "),
            5 => self.table(),
            9 => self.list("1. "),
            10 => self.code(),
            11 => format!("> {}", self.sentence()),
            _ => self.paragraph(),
        }
    }

    fn word(&mut self) -> &'static str {
        WORDS[self.rng.random_range(0..WORDS.len())]
    }

    fn link(&mut self) -> String {
        let title = &self.titles[self.rng.random_range(0..self.titles.len())];
        format!("[{}](/wiki/{title})", title.replace('_', " "))
    }

    /// So many words, the first with a capital.
    fn phrase(&mut self, words: usize) -> String {
        let mut phrase = String::new();
        for index in 0..words {
            let word = self.word();
            if index == 0 {
                phrase.push_str(&word[..1].to_uppercase());
                phrase.push_str(&word[1..]);
            } else {
                phrase.push(' ');
                phrase.push_str(word);
            }
        }
        phrase
    }

    fn sentence(&mut self) -> String {
        let words = self.rng.random_range(5..12);
        let mut sentence = self.phrase(words);
        match self.rng.random_range(0..6) {
            0 => {
                let word = self.word();
                let _ = write!(sentence, ", **{word}**");
            }
            1 => {
                let word = self.word();
                let _ = write!(sentence, " and *{word}*");
            }
            2 => {
                let (word, number) = (self.word(), self.rng.random_range(1..100));
                let _ = write!(sentence, " at `{word} < {number} & up`");
            }
            3 | 4 => {
                let link = self.link();
                let _ = write!(sentence, ", see {link}");
            }
            _ => {}
        }
        sentence.push('.');
        sentence
    }

    fn paragraph(&mut self) -> String {
        let sentences = self.rng.random_range(3..6);
        (0..sentences)
            .map(|_| self.sentence())
            .collect::<Vec<_>>()
            .join("\n")
    }

    fn list(&mut self, mark: &str) -> String {
        let items = self.rng.random_range(3..7);
        (0..items)
            .map(|_| format!("{mark}{}", self.sentence()))
            .collect::<Vec<_>>()
            .join("\n")
    }

    fn table(&mut self) -> String {
        let mut table = format!("| {} | Depth, m | See |\n|:--|--:|---|", self.phrase(1));
        for _ in 0..self.rng.random_range(3..8) {
            let (name, depth, link) = (self.phrase(2), self.rng.random_range(1..400), self.link());
            let _ = write!(table, "\n| {name} | {depth} | {link} |");
        }
        table
    }

    fn code(&mut self) -> String {
        let mut code = String::from("```\n");
        for _ in 0..self.rng.random_range(3..8) {
            let (name, value) = (self.word(), self.rng.random_range(0..1000));
            let _ = writeln!(
                code,
                "if {name} < {value} && tide > 0 {{ {name} += \"{value}\"; }}"
            );
        }
        code.push_str("```");
        code
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(page: &Page) -> usize {
        page.blocks.iter().map(String::len).sum()
    }

    #[test]
    fn titles_differ_and_are_found() {
        let store = Store::write(super::super::MAX_PAGES, 1, 0.05, 1);
        assert_eq!(store.by_title.len(), super::super::MAX_PAGES);
        for (index, page) in store.pages.iter().enumerate() {
            assert_eq!(store.find(&page.title), Some(index));
        }
        assert_eq!(store.find("No_Such_Page"), None);
    }

    #[test]
    fn the_seed_decides_the_text() {
        let text = |seed| {
            Store::write(4, 3, 0.2, seed)
                .pages
                .iter()
                .flat_map(|p| p.blocks.clone())
                .collect::<String>()
        };
        assert_eq!(text(1), text(1));
        assert_ne!(text(1), text(2));
    }

    #[test]
    fn lengths_are_spread_over_an_order_of_magnitude() {
        for count in [2, 7, 30, 48, 60] {
            let lengths: Vec<usize> = Store::write(count, 1, 1.0, 3).pages.iter().map(bytes).collect();
            let (least, most) = (*lengths.iter().min().unwrap(), *lengths.iter().max().unwrap());
            assert!(most >= 10 * least, "{count} pages: {least} to {most} bytes");
        }
        let mut lengths: Vec<usize> = Store::write(48, 1, 1.0, 3).pages.iter().map(bytes).collect();
        assert!(
            !lengths.is_sorted(),
            "a page's length must not follow from its place in the list"
        );
        let mean = lengths.iter().sum::<usize>() as f64 / 48.0;
        assert!((10_000.0..15_000.0).contains(&mean), "{mean}");
        lengths.dedup();
        assert!(lengths.len() > 40);
    }

    #[test]
    fn edits_name_blocks_that_exist_and_number_one_less_than_revisions() {
        let store = Store::write(10, 6, 0.3, 1);
        for page in &store.pages {
            assert_eq!(page.edits.len(), 5);
            assert!(page.edits.iter().all(|edit| edit.block < page.blocks.len()));
        }
    }

    #[test]
    fn a_stride_visits_every_rank() {
        for count in 2..200 {
            let mut ranks: Vec<usize> = (0..count).map(|index| index * stride(count) % count).collect();
            ranks.sort_unstable();
            assert!(ranks.into_iter().eq(0..count), "{count}");
        }
    }
}
