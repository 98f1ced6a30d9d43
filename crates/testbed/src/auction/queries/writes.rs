//! What a form changes: all of it or, where it fails, nothing.

use super::super::database::{DatabaseError, Session, Value, transaction};
use super::super::populate;
use super::{Cell, Content, Fields, List, Problem, about, first};
use headroom_workload::auction::{Page, Place, Site};

/// Does what belongs together. A problem that is not the database's ends it as well, with nothing done.
fn together<T>(
    session: &mut dyn Session,
    work: impl FnOnce(&mut dyn Session) -> Result<T, Problem>,
) -> Result<T, Problem> {
    let mut problem = None;
    let done = transaction(session, |session| {
        work(session).map_err(|found| match found {
            Problem::Database(error) => error,
            other => {
                problem = Some(other);
                DatabaseError::refused("", "nothing to change")
            }
        })
    });
    done.map_err(|error| problem.unwrap_or(Problem::Database(error)))
}

fn written(title: &str, version: Option<i64>, next: Place) -> Content {
    Content {
        title: title.to_owned(),
        version,
        lists: vec![List {
            caption: "Next",
            rows: vec![vec![Cell {
                text: "Look at it".to_owned(),
                link: Some(next),
            }]],
        }],
        next: Some(next),
        ..Content::default()
    }
}

pub(super) fn store_bid(session: &mut dyn Session, item: u32, fields: &Fields) -> Result<Content, Problem> {
    let (bidder, raise) = (fields.get("user")?, fields.amount("raise_cents")?);
    let version = together(session, |session| {
        region_of(session, bidder)?;
        // The item's row first: whoever comes second waits here, and then raises what the first has bid.
        change(
            session,
            "UPDATE items SET price_cents = price_cents + ?, bids = bids + 1, version = version + 1 WHERE id = ?",
            &[raise.into(), item.into()],
        )?;
        let row = first(session.rows(
            "SELECT price_cents, version FROM items WHERE id = ?",
            &[item.into()],
        )?)?;
        session.change(
            "INSERT INTO bids (item, bidder, cents) VALUES (?, ?, ?)",
            &[item.into(), bidder.into(), row[0].number().into()],
        )?;
        Ok(row[1].number())
    })?;
    Ok(written(
        "Your bid is stored",
        Some(version),
        about(Page::ViewItem, i64::from(item)),
    ))
}

pub(super) fn store_purchase(
    session: &mut dyn Session,
    item: u32,
    fields: &Fields,
) -> Result<Content, Problem> {
    let (buyer, quantity) = (fields.get("user")?, fields.amount("quantity")?);
    let version = together(session, |session| {
        region_of(session, buyer)?;
        change(
            session,
            "UPDATE items SET sold = sold + ?, version = version + 1 WHERE id = ?",
            &[quantity.into(), item.into()],
        )?;
        session.change(
            "INSERT INTO purchases (item, buyer, quantity) VALUES (?, ?, ?)",
            &[item.into(), buyer.into(), quantity.into()],
        )?;
        let row = first(session.rows("SELECT version FROM items WHERE id = ?", &[item.into()])?)?;
        Ok(row[0].number())
    })?;
    Ok(written(
        "Your purchase is stored",
        Some(version),
        about(Page::ViewItem, i64::from(item)),
    ))
}

pub(super) fn store_comment(
    session: &mut dyn Session,
    site: &Site,
    user: u32,
    fields: &Fields,
) -> Result<Content, Problem> {
    let (author, rating) = (fields.get("user")?, fields.get("rating")?);
    let version = together(session, |session| {
        region_of(session, author)?;
        change(
            session,
            "UPDATE users SET rating = rating + ?, version = version + 1 WHERE id = ?",
            &[rating.into(), user.into()],
        )?;
        let row = first(session.rows("SELECT version FROM users WHERE id = ?", &[user.into()])?)?;
        let said = populate::offer(site.config().seed, author).0;
        session.change(
            "INSERT INTO comments (author, about, rating, said) VALUES (?, ?, ?, ?)",
            &[author.into(), user.into(), rating.into(), Value::Text(said)],
        )?;
        Ok(row[0].number())
    })?;
    Ok(written(
        "Your comment is stored",
        Some(version),
        about(Page::ViewUser, i64::from(user)),
    ))
}

pub(super) fn register_item(
    session: &mut dyn Session,
    site: &Site,
    fields: &Fields,
) -> Result<Content, Problem> {
    let (seller, category) = (fields.get("user")?, fields.get("category")?);
    let price = fields.amount("price_cents")?;
    if category >= site.config().categories {
        return Err(Problem::Field("category"));
    }
    let id = together(session, |session| {
        let region = region_of(session, seller)?;
        let (name, description) = populate::offer(site.config().seed, seller);
        let stored = session.change(
            "INSERT INTO items (name, description, seller, category, region, price_cents, bids, sold, version) VALUES \
             (?, ?, ?, ?, ?, ?, 0, 0, 1)",
            &[
                Value::Text(name),
                Value::Text(description),
                seller.into(),
                category.into(),
                region,
                price.into(),
            ],
        )?;
        Ok(stored.id)
    })?;
    Ok(written("Your item is stored", Some(1), about(Page::ViewItem, id)))
}

pub(super) fn register_user(
    session: &mut dyn Session,
    site: &Site,
    fields: &Fields,
) -> Result<Content, Problem> {
    let region = fields.get("region")?;
    if region >= site.config().regions {
        return Err(Problem::Field("region"));
    }
    let stored = session.change(
        "INSERT INTO users (nickname, region, rating, version) VALUES (?, ?, 0, 1)",
        &["newcomer".into(), region.into()],
    )?;
    Ok(written("Welcome", Some(1), about(Page::ViewUser, stored.id)))
}

/// Changes what a page is about, which is missing where no row is changed.
fn change(session: &mut dyn Session, sql: &str, parameters: &[Value]) -> Result<(), Problem> {
    match session.change(sql, parameters)?.rows {
        0 => Err(Problem::Missing),
        _ => Ok(()),
    }
}

/// The region of the user whom a form names.
fn region_of(session: &mut dyn Session, user: u32) -> Result<Value, Problem> {
    let rows = session.rows("SELECT region FROM users WHERE id = ?", &[user.into()])?;
    let row = rows.into_iter().next().ok_or(Problem::Field("user"))?;
    row.into_iter().next().ok_or(Problem::Field("user"))
}
