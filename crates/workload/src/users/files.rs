//! The site: files with their sizes and popularity, and which document embeds what.

use super::user::Model;
use crate::distribution::Distribution;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// The most files of a set.
pub const MAX_FILES: usize = 100_000;

/// The most bytes that a set may come to when it is written: a mistake in the number of files must not fill a disk.
const MAX_WRITTEN_BYTES: u64 = 20 << 30;

/// Sizes: with this probability from the body, else from the tail.
const BODY_SHARE: f64 = 0.93;

/// Where the body ends and the tail begins, bytes.
const TAIL_FROM: f64 = 133_000.0;

/// The largest file, bytes, before scaling: the tail's exponent of 1.1 leaves the mean of an unbounded one to chance.
const LARGEST: f64 = 50e6;

/// Sizes of the body, bytes: lognormal, at most where the tail begins.
fn body() -> Distribution {
    Distribution::lognormal(9.357, 1.318).at_most(TAIL_FROM)
}

/// Sizes of the tail, bytes: Pareto, at most the largest file.
fn tail() -> Distribution {
    Distribution::pareto(TAIL_FROM, 1.1).at_most(LARGEST)
}

/// Sizes of what is asked for, bytes, which the popular documents are chosen to match: Pareto, at most the largest file.
fn requested() -> Distribution {
    Distribution::pareto(1000.0, 1.0).at_most(LARGEST)
}

/// Of a set's files, those that are only ever embedded.
const EMBEDDED_SHARE: f64 = 0.38;

/// Into how many parts of equal requested share the sizes are cut for the matching.
const PARTS: usize = 32;

/// What is wrong with a file set.
#[derive(Debug, thiserror::Error)]
pub enum FileSetError {
    /// A figure is out of its range.
    #[error("{setting} = {value}: {remedy}")]
    BadSetting {
        /// The setting.
        setting: &'static str,
        /// Its value.
        value: String,
        /// What to give instead.
        remedy: &'static str,
    },
    /// The set is too large to be written.
    #[error(
        "the file set comes to {bytes} bytes, more than {MAX_WRITTEN_BYTES}; give fewer files or a smaller size scale"
    )]
    TooLarge {
        /// Its size, bytes.
        bytes: u64,
    },
    /// A file could not be written.
    #[error(
        "{file}: cannot be written: {error}; name a folder with room for {bytes} bytes that this user may write to"
    )]
    Unwritable {
        /// The file or folder.
        file: String,
        /// What the system answered.
        error: io::Error,
        /// What the whole set needs.
        bytes: u64,
    },
}

/// What [`FileSet::generate`] makes.
#[derive(Clone, Debug, PartialEq)]
pub struct FileSetConfig {
    /// How many files; 2,000 by default, from 10 to [`MAX_FILES`].
    pub files: usize,
    /// Zipf's exponent of the documents' popularity; 1 by default, from 0 to 3.
    pub popularity_exponent: f64,
    /// Every size is multiplied by this after it was drawn; 1 by default. A half is the decreased demand of the
    /// capacity paper (Section 7.5.2).
    pub size_scale: f64,
    /// How many objects documents embed.
    pub model: Model,
    /// The same seed gives the same set.
    pub seed: u64,
}

impl Default for FileSetConfig {
    fn default() -> Self {
        Self {
            files: 2000,
            popularity_exponent: 1.0,
            size_scale: 1.0,
            model: Model::default(),
            seed: 1,
        }
    }
}

/// A site's files: documents first, then those that are only embedded.
///
/// ```
/// use headroom_workload::users::{FileSet, FileSetConfig};
///
/// let files = FileSet::generate(&FileSetConfig { files: 100, ..FileSetConfig::default() })?;
/// assert_eq!((files.len(), files.popularity().len()), (100, 62));
/// # Ok::<(), headroom_workload::users::FileSetError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct FileSet {
    /// Bytes.
    sizes: Vec<u64>,
    /// Of each document, how often it is due in a block of references; 1 or more.
    popularity: Vec<u32>,
    /// Of each document, the files that it embeds.
    embedded: Vec<Vec<usize>>,
}

impl FileSet {
    /// Draws a file set.
    ///
    /// # Errors
    /// [`FileSetError::BadSetting`] where a figure is out of its range.
    pub fn generate(config: &FileSetConfig) -> Result<Self, FileSetError> {
        check(config)?;
        let mut rng = ChaCha8Rng::seed_from_u64(config.seed);
        let (body, tail) = (body(), tail());
        let draw = |rng: &mut ChaCha8Rng| {
            let size = if rng.random::<f64>() < BODY_SHARE {
                body.sample(rng)
            } else {
                tail.sample(rng)
            };
            size.ceil()
        };
        let unscaled: Vec<f64> = (0..config.files).map(|_| draw(&mut rng)).collect();
        let only_embedded = (config.files as f64 * EMBEDDED_SHARE) as usize;
        let documents = config.files - only_embedded;
        let popularity = matched(
            &unscaled[..documents],
            &zipf_counts(documents, config.popularity_exponent),
        );
        let embedded = (0..documents)
            .map(|_| {
                if rng.random::<f64>() >= config.model.embedding_share {
                    return Vec::new();
                }
                let count = config.model.embedded.sample(&mut rng) as usize;
                (0..count)
                    .map(|_| rng.random_range(documents..config.files))
                    .collect()
            })
            .collect();
        let scaled = |size: &f64| (size * config.size_scale).ceil().max(1.0) as u64;
        Ok(Self {
            sizes: unscaled.iter().map(scaled).collect(),
            popularity,
            embedded,
        })
    }

    /// How many files there are.
    pub fn len(&self) -> usize {
        self.sizes.len()
    }

    /// Whether there are none; never, of a set that was generated.
    pub fn is_empty(&self) -> bool {
        self.sizes.is_empty()
    }

    /// The size of a file, bytes.
    pub fn size(&self, file: usize) -> u64 {
        self.sizes[file]
    }

    /// All sizes together, bytes.
    pub fn bytes(&self) -> u64 {
        self.sizes.iter().sum()
    }

    /// How often each document is due in a block of references. Documents are the files `0..popularity().len()`.
    pub fn popularity(&self) -> &[u32] {
        &self.popularity
    }

    /// The files that a document embeds, in the order in which they are fetched; none of a file that is no document.
    pub fn embedded(&self, document: usize) -> &[usize] {
        self.embedded.get(document).map_or(&[], Vec::as_slice)
    }

    /// The name of a file, below the folder or the URL that holds the set.
    pub fn name(&self, file: usize) -> String {
        if file < self.popularity.len() {
            format!("d{file:06}.html")
        } else {
            format!("e{file:06}.bin")
        }
    }

    /// Writes the files into a folder, which is made if need be, and `files.txt` beside them with name, bytes and
    /// popularity of each. Files of these names are overwritten. The content is filler; only the sizes matter.
    ///
    /// # Errors
    /// [`FileSetError::TooLarge`] beyond 20 GiB, [`FileSetError::Unwritable`] with the file.
    pub fn write(&self, folder: &Path) -> Result<(), FileSetError> {
        let bytes = self.bytes();
        if bytes > MAX_WRITTEN_BYTES {
            return Err(FileSetError::TooLarge { bytes });
        }
        let failed = |path: &Path, error| FileSetError::Unwritable {
            file: path.display().to_string(),
            error,
            bytes,
        };
        fs::create_dir_all(folder).map_err(|error| failed(folder, error))?;
        for file in 0..self.len() {
            let path = folder.join(self.name(file));
            fs::File::create(&path)
                .and_then(|mut out| fill(&mut out, self.size(file)))
                .map_err(|error| failed(&path, error))?;
        }
        let path = folder.join("files.txt");
        let list = || {
            let mut out = BufWriter::new(fs::File::create(&path)?);
            writeln!(out, "# name, bytes, references in a block (0: only embedded)")?;
            for file in 0..self.len() {
                let popularity = self.popularity.get(file).copied().unwrap_or(0);
                writeln!(out, "{} {} {popularity}", self.name(file), self.size(file))?;
            }
            out.flush()
        };
        list().map_err(|error| failed(&path, error))
    }
}

/// Lines of 64 characters, without anything that a server would take for markup to act on.
fn fill(out: &mut impl Write, bytes: u64) -> io::Result<()> {
    const LINE: &[u8; 64] = b"filler text of a generated file set, sixty-four bytes each line\n";
    let chunk = LINE.repeat(1024);
    let mut left = bytes;
    while left > 0 {
        let part = left.min(chunk.len() as u64) as usize;
        out.write_all(&chunk[..part])?;
        left -= part as u64;
    }
    Ok(())
}

fn check(config: &FileSetConfig) -> Result<(), FileSetError> {
    let bad = |setting, value: String, remedy| {
        Err(FileSetError::BadSetting {
            setting,
            value,
            remedy,
        })
    };
    if !(10..=MAX_FILES).contains(&config.files) {
        return bad("files", config.files.to_string(), "give from 10 to 100,000 files");
    }
    if !(0.0..=3.0).contains(&config.popularity_exponent) {
        let value = config.popularity_exponent.to_string();
        return bad("popularity exponent", value, "give a number from 0 to 3");
    }
    if !(1e-3..=1e3).contains(&config.size_scale) {
        let value = config.size_scale.to_string();
        return bad("size scale", value, "give a factor from 0.001 to 1,000");
    }
    Ok(())
}

/// How often the document of each rank is due: proportional to rank^-exponent, such that the least popular one is due
/// about once; the most popular first.
fn zipf_counts(documents: usize, exponent: f64) -> Vec<u32> {
    let last = documents as f64;
    // With an exponent of 3 the first of 62,000 documents would be due 2e14 times; beyond this, ratios are cut.
    let most = 1e6;
    (1..=documents)
        .map(|rank| (last / rank as f64).powf(exponent).round().clamp(1.0, most) as u32)
        .collect()
}

/// Gives each document its popularity such that the sizes of what is asked for follow [`requested`].
///
/// The sizes are cut into parts of equal requested share, each of which should get the same sum of counts. The few
/// counts above that sum are spread over the parts, and take their neighbours' share too; then each part, the
/// smallest sizes first because they are the fewest, takes the largest counts that still fit. SURGE states the aim;
/// the way here is our own.
fn matched(sizes: &[f64], counts: &[u32]) -> Vec<u32> {
    let mut by_size: Vec<usize> = (0..sizes.len()).collect();
    by_size.sort_by(|a, b| sizes[*b].total_cmp(&sizes[*a]));
    let mut free: Vec<Vec<usize>> = vec![Vec::new(); PARTS];
    let requested = requested();
    for document in by_size {
        let share = requested.cumulative(sizes[document]).unwrap_or(0.0);
        free[((share * PARTS as f64) as usize).min(PARTS - 1)].push(document);
    }
    let each = counts.iter().map(|count| f64::from(*count)).sum::<f64>() / PARTS as f64;
    let mut wanted = vec![each; PARTS];
    let mut popularity = vec![1; sizes.len()];
    let mut left: BTreeMap<u32, usize> = BTreeMap::new();
    let mut large = 0.0;
    for count in counts {
        if f64::from(*count) <= each {
            *left.entry(*count).or_default() += 1;
            continue;
        }
        // Multiples of the golden ratio fall evenly into the unit interval, however many there are.
        let centre = ((0.5 + 0.618_034 * large) % 1.0 * PARTS as f64) as usize;
        large += 1.0;
        let mut nearest: Vec<usize> = (0..PARTS).collect();
        nearest.sort_by_key(|part| part.abs_diff(centre));
        if let Some(document) = nearest.iter().find_map(|part| free[*part].pop()) {
            popularity[document] = *count;
        }
        let mut rest = f64::from(*count);
        for part in nearest {
            let taken = wanted[part].min(rest);
            wanted[part] -= taken;
            rest -= taken;
        }
    }
    for (documents, wanted) in free.iter_mut().zip(wanted) {
        let mut wanted = wanted;
        while let Some(document) = documents.pop() {
            // Those that follow in this part need 1 at least.
            let most = (wanted - documents.len() as f64).max(1.0) as u32;
            let fitting = left.range(..=most).next_back().or_else(|| left.iter().next());
            let Some((&count, &times)) = fitting else { break };
            if times == 1 {
                left.remove(&count);
            } else {
                left.insert(count, times - 1);
            }
            popularity[document] = count;
            wanted -= f64::from(count);
        }
    }
    popularity
}

#[cfg(test)]
mod tests;
