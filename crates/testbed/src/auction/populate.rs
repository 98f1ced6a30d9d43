//! The tables, and what is in them at first.

use super::database::{DatabaseError, Session, Value, transaction};
use crate::words::{PLACES, QUALITIES, WORDS};
use headroom_workload::auction::{Site, SiteConfig};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Rows of one statement: as many as keep a statement with descriptions well below a megabyte.
const BATCH: usize = 100;

/// Bids on an item at first, at most; evenly spread from none.
const MAX_FIRST_BIDS: u32 = 10;

/// The tables; `COUNTER` stands for a column of numbers that count themselves.
const TABLES: [&str; 8] = [
    "CREATE TABLE IF NOT EXISTS site (name VARCHAR(200) NOT NULL)",
    "CREATE TABLE IF NOT EXISTS categories (id INTEGER PRIMARY KEY, name VARCHAR(60) NOT NULL)",
    "CREATE TABLE IF NOT EXISTS regions (id INTEGER PRIMARY KEY, name VARCHAR(60) NOT NULL)",
    "CREATE TABLE IF NOT EXISTS users (id COUNTER, nickname VARCHAR(60) NOT NULL, region BIGINT NOT NULL, rating BIGINT NOT \
     NULL, version BIGINT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS items (id COUNTER, name VARCHAR(100) NOT NULL, description TEXT NOT NULL, seller BIGINT NOT \
     NULL, category BIGINT NOT NULL, region BIGINT NOT NULL, price_cents BIGINT NOT NULL, bids BIGINT NOT NULL, sold \
     BIGINT NOT NULL, version BIGINT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS bids (id COUNTER, item BIGINT NOT NULL, bidder BIGINT NOT NULL, cents BIGINT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS comments (id COUNTER, author BIGINT NOT NULL, about BIGINT NOT NULL, rating BIGINT NOT NULL, \
     said TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS purchases (id COUNTER, item BIGINT NOT NULL, buyer BIGINT NOT NULL, quantity BIGINT NOT NULL)",
];

/// What the queries look up by.
const INDEXES: [&str; 7] = [
    "CREATE INDEX IF NOT EXISTS items_of_category ON items (category, id)",
    "CREATE INDEX IF NOT EXISTS items_of_region ON items (category, region, id)",
    "CREATE INDEX IF NOT EXISTS items_of_seller ON items (seller, id)",
    "CREATE INDEX IF NOT EXISTS bids_on_item ON bids (item, cents)",
    "CREATE INDEX IF NOT EXISTS bids_of_user ON bids (bidder, id)",
    "CREATE INDEX IF NOT EXISTS comments_about ON comments (about, id)",
    "CREATE INDEX IF NOT EXISTS purchases_of_user ON purchases (buyer, id)",
];

/// What a database was filled with: the figures that decide its content.
fn name(config: &SiteConfig) -> String {
    format!(
        "{} items, {} users, {} categories, {} regions, seed {}",
        config.items, config.users, config.categories, config.regions, config.seed
    )
}

/// Fills an empty database; whether it did. One that holds this site is left as it is.
///
/// # Errors
/// Where it holds another site, or refuses.
pub(super) fn fill(session: &mut dyn Session, site: &Site, database: &str) -> Result<bool, DatabaseError> {
    for table in TABLES {
        let sql = table.replace("COUNTER", session.counting_key());
        session.change(&sql, &[])?;
    }
    let asked = name(site.config());
    if let Some(row) = session.rows("SELECT name FROM site", &[])?.first() {
        let held = row[0].text().to_owned();
        return match held == asked {
            true => Ok(false),
            false => Err(DatabaseError::OtherSite {
                database: database.to_owned(),
                held,
                asked,
            }),
        };
    }
    for index in INDEXES {
        session.change(index, &[])?;
    }
    // All of it or nothing: a start that is stopped meanwhile leaves empty tables.
    transaction(session, |session| {
        rows(session, site)?;
        session.change("INSERT INTO site (name) VALUES (?)", &[asked.as_str().into()])
    })?;
    Ok(true)
}

fn rows(session: &mut dyn Session, site: &Site) -> Result<(), DatabaseError> {
    let config = site.config();
    let named = |what: &str, number: u32| Value::Text(format!("{what} {number}"));
    insert(
        session,
        "categories (id, name)",
        (0..config.categories).map(|id| vec![id.into(), named("Category", id)]),
    )?;
    insert(
        session,
        "regions (id, name)",
        (0..config.regions).map(|id| vec![id.into(), named("Region", id)]),
    )?;
    insert(
        session,
        "users (id, nickname, region, rating, version)",
        (0..config.users).map(|id| {
            vec![
                id.into(),
                nickname(id),
                site.region_of_user(id).into(),
                0_i64.into(),
                1_i64.into(),
            ]
        }),
    )?;
    insert(
        session,
        "comments (author, about, rating, said)",
        (0..config.users).map(|about| {
            let mut rng = stream(config.seed, 1, about);
            let (author, rating) = (rng.random_range(0..config.users), rng.random_range(0..5_u32));
            vec![
                author.into(),
                about.into(),
                rating.into(),
                Value::Text(sentence(&mut rng)),
            ]
        }),
    )?;
    // Of each item: the price at first, and each bid's rise.
    let bids = |item: u32| {
        let mut rng = stream(config.seed, 2, item);
        let first: i64 = rng.random_range(100..100_000);
        let count = rng.random_range(0..=MAX_FIRST_BIDS);
        let mut price = first;
        let made: Vec<(u32, i64)> = (0..count)
            .map(|_| {
                price += rng.random_range(10..1_000);
                (rng.random_range(0..config.users), price)
            })
            .collect();
        (first, made)
    };
    insert(
        session,
        "items (id, name, description, seller, category, region, price_cents, bids, sold, version)",
        (0..config.items).map(|id| {
            let (first, made) = bids(id);
            let price = made.last().map_or(first, |bid| bid.1);
            let mut row = item(site, id);
            row.extend([
                price.into(),
                (made.len() as i64).into(),
                0_i64.into(),
                1_i64.into(),
            ]);
            row
        }),
    )?;
    insert(
        session,
        "bids (item, bidder, cents)",
        (0..config.items).flat_map(|item| {
            bids(item)
                .1
                .into_iter()
                .map(move |(bidder, cents)| vec![item.into(), bidder.into(), cents.into()])
        }),
    )
}

/// Number, name, description, seller, category and region of an item.
fn item(site: &Site, id: u32) -> Vec<Value> {
    let (name, description) = offer(site.config().seed, id);
    vec![
        id.into(),
        Value::Text(name),
        Value::Text(description),
        site.seller_of(id).into(),
        site.category_of(id).into(),
        site.region_of(id).into(),
    ]
}

fn nickname(id: u32) -> Value {
    Value::Text(format!("user{id}"))
}

/// Name and description of what is sold under a number: Markdown of some 400 to 1,600 bytes, which follows from the seed.
pub(super) fn offer(seed: u64, id: u32) -> (String, String) {
    let mut rng = stream(seed, 3, id);
    let pick = |rng: &mut ChaCha8Rng, words: &[&'static str]| words[rng.random_range(0..words.len())];
    let name = format!("{} {} {id}", pick(&mut rng, &QUALITIES), pick(&mut rng, &PLACES));
    let mut description = String::new();
    for block in 0..rng.random_range(3..7) {
        if block > 0 {
            description.push_str("\n\n");
        }
        match rng.random_range(0..4) {
            0 => {
                let lines: Vec<String> = (0..rng.random_range(2..5))
                    .map(|_| format!("- {}", sentence(&mut rng)))
                    .collect();
                description.push_str(&lines.join("\n"));
            }
            1 => {
                description.push_str(&format!("> {}", sentence(&mut rng)));
            }
            _ => {
                let sentences: Vec<String> =
                    (0..rng.random_range(2..6)).map(|_| sentence(&mut rng)).collect();
                description.push_str(&sentences.join("\n"));
            }
        }
    }
    (name, description)
}

fn sentence(rng: &mut ChaCha8Rng) -> String {
    let mut sentence = String::new();
    for index in 0..rng.random_range(6..13) {
        let word = WORDS[rng.random_range(0..WORDS.len())];
        match index {
            0 => {
                sentence.push_str(&word[..1].to_uppercase());
                sentence.push_str(&word[1..]);
            }
            4 => sentence.push_str(&format!(" **{word}**")),
            _ => {
                sentence.push(' ');
                sentence.push_str(word);
            }
        }
    }
    sentence.push('.');
    sentence
}

/// Draws for one row, whatever else was drawn.
fn stream(seed: u64, purpose: u64, number: u32) -> ChaCha8Rng {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream((purpose << 32) | u64::from(number));
    rng
}

/// Inserts rows, many by one statement.
fn insert(
    session: &mut dyn Session,
    columns: &str,
    rows: impl Iterator<Item = Vec<Value>>,
) -> Result<(), DatabaseError> {
    let width = columns.matches(',').count() + 1;
    let one = format!("({})", vec!["?"; width].join(", "));
    let mut waiting: Vec<Value> = Vec::with_capacity(BATCH * width);
    let mut send = |values: &mut Vec<Value>| {
        let places = vec![one.as_str(); values.len() / width].join(", ");
        session.change(&format!("INSERT INTO {columns} VALUES {places}"), values)?;
        values.clear();
        Ok::<(), DatabaseError>(())
    };
    for row in rows {
        waiting.extend(row);
        if waiting.len() == BATCH * width {
            send(&mut waiting)?;
        }
    }
    match waiting.is_empty() {
        true => Ok(()),
        false => send(&mut waiting),
    }
}
