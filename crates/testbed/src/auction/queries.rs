//! What each page asks of the database, and what it shows of that.

mod writes;

use super::database::{DatabaseError, Row, Session, Value};
use headroom_workload::auction::{MAX_NUMBER, Page, Place, RESULTS_PER_PAGE, Site};

/// Rows of a list that has no pages.
const LISTED: u32 = 20;

/// What a page shows.
#[derive(Debug, Default)]
pub(super) struct Content {
    pub(super) title: String,
    /// The version of the item or user that it is about.
    pub(super) version: Option<i64>,
    pub(super) facts: Vec<(&'static str, String)>,
    pub(super) lists: Vec<List>,
    pub(super) form: Option<Form>,
    /// Descriptions, Markdown.
    pub(super) texts: Vec<String>,
    /// The page to look at next, where this one wrote.
    pub(super) next: Option<Place>,
}

#[derive(Debug, Default)]
pub(super) struct List {
    pub(super) caption: &'static str,
    pub(super) rows: Vec<Vec<Cell>>,
}

#[derive(Debug)]
pub(super) struct Cell {
    pub(super) text: String,
    pub(super) link: Option<Place>,
}

/// A form: where it is sent, and its fields.
#[derive(Debug)]
pub(super) struct Form {
    pub(super) to: Place,
    pub(super) fields: &'static [&'static str],
}

/// What came in a form, by name; numbers all of them.
pub(super) struct Fields(pub(super) Vec<(String, u32)>);

impl Fields {
    fn get(&self, name: &'static str) -> Result<u32, Problem> {
        let found = self.0.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| *value).ok_or(Problem::Field(name))
    }

    /// A number of cents or things, of which none is no bid, no purchase and no price.
    fn amount(&self, name: &'static str) -> Result<u32, Problem> {
        match self.get(name)? {
            0 => Err(Problem::Nothing(name)),
            amount => Ok(amount),
        }
    }
}

/// Why there is no page.
#[derive(Debug)]
pub(super) enum Problem {
    /// What it is about does not exist.
    Missing,
    /// A form's field is absent, or not of the site.
    Field(&'static str),
    /// A form's number that must be 1 or more is 0.
    Nothing(&'static str),
    Database(DatabaseError),
}

impl From<DatabaseError> for Problem {
    fn from(error: DatabaseError) -> Self {
        Self::Database(error)
    }
}

fn plain(text: impl Into<String>) -> Cell {
    Cell {
        text: text.into(),
        link: None,
    }
}

fn link(text: impl Into<String>, page: Page, subject: i64) -> Cell {
    Cell {
        text: text.into(),
        link: Some(about(page, subject)),
    }
}

fn about(page: Page, subject: i64) -> Place {
    Place {
        subject: u32::try_from(subject).unwrap_or(MAX_NUMBER),
        ..Place::of(page)
    }
}

fn money(cents: i64) -> String {
    format!("{}.{:02}", cents / 100, cents % 100)
}

fn first(rows: Vec<Row>) -> Result<Row, Problem> {
    rows.into_iter().next().ok_or(Problem::Missing)
}

/// Does what a request is for, and answers what its page shows.
pub(super) fn content(
    session: &mut dyn Session,
    site: &Site,
    place: &Place,
    fields: &Fields,
) -> Result<Content, Problem> {
    let Place { page, subject, .. } = *place;
    let known = |number: u32, bound: u32| {
        if number < bound {
            Ok(())
        } else {
            Err(Problem::Missing)
        }
    };
    Ok(match page {
        Page::Home => forms("Auction", None, Some(home())),
        Page::Browse => forms("Browse", None, Some(home())),
        Page::Register => forms(
            "Register",
            Some((Place::of(Page::RegisterUser), &["region"])),
            None,
        ),
        Page::Sell => forms(
            "Sell: who are you?",
            Some((Place::of(Page::Sell), &["user"])),
            None,
        ),
        Page::AboutMeLogin => forms(
            "About me: who are you?",
            Some((Place::of(Page::AboutMeLogin), &["user"])),
            None,
        ),
        Page::Categories => names(session, "Categories", "categories", |id| {
            about(Page::SearchByCategory, id)
        })?,
        Page::Regions => names(session, "Regions", "regions", |id| {
            about(Page::CategoriesInRegion, id)
        })?,
        Page::CategoriesInRegion => {
            known(subject, site.config().regions)?;
            names(session, "Categories of a region", "categories", |id| Place {
                region: subject,
                ..about(Page::SearchByRegion, id)
            })?
        }
        Page::SelectCategory => names(session, "Sell: of which category?", "categories", |id| Place {
            user: place.user,
            ..about(Page::SellItem, id)
        })?,
        Page::SellItem => {
            known(subject, site.config().categories)?;
            forms(
                "Sell an item",
                Some((
                    Place::of(Page::RegisterItem),
                    &["user", "category", "price_cents"],
                )),
                None,
            )
        }
        Page::SearchByCategory | Page::SearchByRegion => search(session, site, place)?,
        Page::ViewItem => view_item(session, place)?,
        Page::ViewBids => view_bids(session, place)?,
        Page::ViewUser => view_user(session, place)?,
        Page::AboutMe => about_me(session, place)?,
        Page::PutBidLogin | Page::BuyNowLogin => item_form(session, place, &["user"])?,
        Page::PutBid => item_form(session, place, &["user", "raise_cents"])?,
        Page::BuyNow => item_form(session, place, &["user", "quantity"])?,
        Page::PutCommentLogin => user_form(session, place, &["user"])?,
        Page::PutComment => user_form(session, place, &["user", "rating"])?,
        Page::StoreBid => writes::store_bid(session, subject, fields)?,
        Page::StoreBuyNow => writes::store_purchase(session, subject, fields)?,
        Page::StoreComment => writes::store_comment(session, site, subject, fields)?,
        Page::RegisterItem => writes::register_item(session, site, fields)?,
        Page::RegisterUser => writes::register_user(session, site, fields)?,
    })
}

fn forms(title: &str, form: Option<(Place, &'static [&'static str])>, list: Option<List>) -> Content {
    Content {
        title: title.to_owned(),
        form: form.map(|(to, fields)| Form { to, fields }),
        lists: list.into_iter().collect(),
        ..Content::default()
    }
}

fn home() -> List {
    let pages = [
        ("Categories", Page::Categories),
        ("Regions", Page::Regions),
        ("Sell", Page::Sell),
        ("Register", Page::Register),
        ("About me", Page::AboutMeLogin),
    ];
    List {
        caption: "What to do",
        rows: pages
            .into_iter()
            .map(|(text, page)| vec![link(text, page, 0)])
            .collect(),
    }
}

fn names(
    session: &mut dyn Session,
    title: &str,
    table: &str,
    to: impl Fn(i64) -> Place,
) -> Result<Content, Problem> {
    let rows = session.rows(&format!("SELECT id, name FROM {table} ORDER BY id"), &[])?;
    let rows = rows.iter().map(|row| {
        vec![Cell {
            text: row[1].text().to_owned(),
            link: Some(to(row[0].number())),
        }]
    });
    let list = List {
        caption: "Names",
        rows: rows.collect(),
    };
    Ok(forms(title, None, Some(list)))
}

fn search(session: &mut dyn Session, site: &Site, place: &Place) -> Result<Content, Problem> {
    if place.subject >= site.config().categories || place.region >= site.config().regions {
        return Err(Problem::Missing);
    }
    let in_region = place.page == Page::SearchByRegion;
    let mut parameters: Vec<Value> = vec![place.subject.into()];
    if in_region {
        parameters.push(place.region.into());
    }
    parameters.extend([RESULTS_PER_PAGE.into(), (place.results * RESULTS_PER_PAGE).into()]);
    let sql = if in_region {
        "SELECT id, name, price_cents, bids, description FROM items WHERE category = ? AND region = ? ORDER BY id DESC \
         LIMIT ? OFFSET ?"
    } else {
        "SELECT id, name, price_cents, bids, description FROM items WHERE category = ? ORDER BY id DESC LIMIT ? OFFSET ?"
    };
    let rows = session.rows(sql, &parameters)?;
    Ok(Content {
        title: format!("Items of category {}, page {}", place.subject, place.results),
        texts: rows.iter().map(|row| row[4].text().to_owned()).collect(),
        lists: vec![items("Item, price, bids", &rows)],
        ..Content::default()
    })
}

/// A list of items: number, name, price, bids.
fn items(caption: &'static str, rows: &[Row]) -> List {
    let line = |row: &Row| {
        vec![
            link(row[1].text(), Page::ViewItem, row[0].number()),
            plain(money(row[2].number())),
            plain(row[3].number().to_string()),
        ]
    };
    List {
        caption,
        rows: rows.iter().map(line).collect(),
    }
}

/// Name, description, seller, price, bids, sold, version of an item, and its seller's name.
fn item(session: &mut dyn Session, subject: u32) -> Result<Row, Problem> {
    first(session.rows(
        "SELECT i.name, i.description, i.seller, i.price_cents, i.bids, i.sold, i.version, u.nickname FROM items i JOIN \
         users u ON u.id = i.seller WHERE i.id = ?",
        &[subject.into()],
    )?)
}

fn item_facts(row: &Row) -> Vec<(&'static str, String)> {
    vec![
        ("Price", money(row[3].number())),
        ("Bids", row[4].number().to_string()),
        ("Sold", row[5].number().to_string()),
        ("Seller", row[7].text().to_owned()),
    ]
}

fn view_item(session: &mut dyn Session, place: &Place) -> Result<Content, Problem> {
    let row = item(session, place.subject)?;
    let subject = i64::from(place.subject);
    let links = [
        ("Bids", Page::ViewBids),
        ("Bid", Page::PutBidLogin),
        ("Buy now", Page::BuyNowLogin),
    ];
    let mut to: Vec<Cell> = links.map(|(text, page)| link(text, page, subject)).into();
    to.push(link("Seller", Page::ViewUser, row[2].number()));
    Ok(Content {
        title: row[0].text().to_owned(),
        version: Some(row[6].number()),
        facts: item_facts(&row),
        lists: vec![List {
            caption: "What to do",
            rows: vec![to],
        }],
        texts: vec![row[1].text().to_owned()],
        ..Content::default()
    })
}

fn view_bids(session: &mut dyn Session, place: &Place) -> Result<Content, Problem> {
    let row = item(session, place.subject)?;
    let bids = session.rows(
        "SELECT b.bidder, u.nickname, b.cents FROM bids b JOIN users u ON u.id = b.bidder WHERE b.item = ? ORDER BY b.cents \
         DESC LIMIT ?",
        &[place.subject.into(), LISTED.into()],
    )?;
    let line = |bid: &Row| {
        vec![
            link(bid[1].text(), Page::ViewUser, bid[0].number()),
            plain(money(bid[2].number())),
        ]
    };
    Ok(Content {
        title: format!("Bids on {}", row[0].text()),
        version: Some(row[6].number()),
        facts: item_facts(&row),
        lists: vec![List {
            caption: "Bidder, bid",
            rows: bids.iter().map(line).collect(),
        }],
        texts: vec![row[1].text().to_owned()],
        ..Content::default()
    })
}

/// Name, rating, version of a user, and its region's name.
fn user(session: &mut dyn Session, number: u32) -> Result<Row, Problem> {
    first(session.rows(
        "SELECT u.nickname, u.rating, u.version, r.name FROM users u JOIN regions r ON r.id = u.region WHERE u.id = ?",
        &[number.into()],
    )?)
}

fn user_content(row: &Row) -> Content {
    Content {
        title: row[0].text().to_owned(),
        version: Some(row[2].number()),
        facts: vec![
            ("Rating", row[1].number().to_string()),
            ("Region", row[3].text().to_owned()),
        ],
        ..Content::default()
    }
}

fn view_user(session: &mut dyn Session, place: &Place) -> Result<Content, Problem> {
    let row = user(session, place.subject)?;
    let comments = session.rows(
        "SELECT c.author, u.nickname, c.rating, c.said FROM comments c JOIN users u ON u.id = c.author WHERE c.about = ? \
         ORDER BY c.id DESC LIMIT ?",
        &[place.subject.into(), LISTED.into()],
    )?;
    let line = |comment: &Row| {
        vec![
            link(comment[1].text(), Page::ViewUser, comment[0].number()),
            plain(comment[2].number().to_string()),
        ]
    };
    Ok(Content {
        lists: vec![List {
            caption: "Comments: who, rating",
            rows: comments.iter().map(line).collect(),
        }],
        texts: comments.iter().map(|row| row[3].text().to_owned()).collect(),
        ..user_content(&row)
    })
}

fn about_me(session: &mut dyn Session, place: &Place) -> Result<Content, Problem> {
    let row = user(session, place.user)?;
    let of_mine: [Value; 2] = [place.user.into(), LISTED.into()];
    let sold = session.rows(
        "SELECT id, name, price_cents, bids, description FROM items WHERE seller = ? ORDER BY id DESC LIMIT ?",
        &of_mine,
    )?;
    let bids = session.rows(
        "SELECT i.id, i.name, b.cents, i.bids FROM bids b JOIN items i ON i.id = b.item WHERE b.bidder = ? ORDER BY b.id \
         DESC LIMIT ?",
        &of_mine,
    )?;
    let bought = session.rows(
        "SELECT i.id, i.name, i.price_cents, p.quantity FROM purchases p JOIN items i ON i.id = p.item WHERE p.buyer = ? \
         ORDER BY p.id DESC LIMIT ?",
        &of_mine,
    )?;
    Ok(Content {
        lists: vec![
            items("I sell: item, price, bids", &sold),
            items("I bid: item, bid, bids", &bids),
            items("I bought: item, price, quantity", &bought),
        ],
        texts: sold.iter().map(|row| row[4].text().to_owned()).collect(),
        ..user_content(&row)
    })
}

/// A form about an item; the login forms lead to the same place with the user, the others to what writes.
fn item_form(
    session: &mut dyn Session,
    place: &Place,
    fields: &'static [&'static str],
) -> Result<Content, Problem> {
    let row = item(session, place.subject)?;
    let to = match place.page {
        Page::PutBid => Page::StoreBid,
        Page::BuyNow => Page::StoreBuyNow,
        login => login,
    };
    Ok(Content {
        title: row[0].text().to_owned(),
        version: Some(row[6].number()),
        facts: item_facts(&row),
        form: Some(Form {
            to: about(to, i64::from(place.subject)),
            fields,
        }),
        texts: vec![row[1].text().to_owned()],
        ..Content::default()
    })
}

fn user_form(
    session: &mut dyn Session,
    place: &Place,
    fields: &'static [&'static str],
) -> Result<Content, Problem> {
    let row = user(session, place.subject)?;
    let to = match place.page {
        Page::PutComment => Page::StoreComment,
        login => login,
    };
    Ok(Content {
        form: Some(Form {
            to: about(to, i64::from(place.subject)),
            fields,
        }),
        ..user_content(&row)
    })
}
