//! One page of the site, as clients and the service name it.

use super::page::Page;

/// The largest number that an item or a user may have in a [`Place`]: numbers share a key's 64 bits.
pub const MAX_NUMBER: u32 = (1 << 22) - 1;

/// The largest region, and the largest page of a search.
const MAX_SMALL: u32 = 127;

/// One page: its kind, and the numbers that make it the one page that it is. Numbers that its kind has not are 0.
///
/// ```
/// use headroom_workload::auction::{Page, Place};
///
/// let bids = Place { subject: 42, ..Place::of(Page::ViewBids) };
/// assert_eq!(bids.target(), "/item/42/bids");
/// assert_eq!(Place::parse(false, &bids.target()), Some(bids));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// The kind.
    pub page: Page,
    /// The number of what it is about ([`Page::subject`]), at most [`MAX_NUMBER`].
    pub subject: u32,
    /// The region of a search by region.
    pub region: u32,
    /// The page of a search's results, from 0.
    pub results: u32,
    /// Who asks, on [personal](Page::is_personal) pages that are read; at most [`MAX_NUMBER`]. Who writes stands in the
    /// request's body.
    pub user: u32,
}

impl Place {
    /// The page of a kind whose numbers are all 0.
    pub const fn of(page: Page) -> Self {
        Self {
            page,
            subject: 0,
            region: 0,
            results: 0,
            user: 0,
        }
    }

    /// The path and query. What writes is sent to the page that it changes: `/item/42/bids` is read to see an item's bids
    /// and written to bid, so that a cache which forgets the target of an unsafe method (RFC 9111, Section 4.4) forgets
    /// the bids.
    pub fn target(&self) -> String {
        let Self {
            subject,
            region,
            results,
            user,
            ..
        } = self;
        match self.page {
            Page::Home => "/".to_owned(),
            Page::Register => "/users/new".to_owned(),
            Page::RegisterUser => "/users".to_owned(),
            Page::Browse => "/browse".to_owned(),
            Page::Categories => "/categories".to_owned(),
            Page::SearchByCategory => format!("/search?category={subject}&page={results}"),
            Page::Regions => "/regions".to_owned(),
            Page::CategoriesInRegion => format!("/categories?region={subject}"),
            Page::SearchByRegion => format!("/search?category={subject}&page={results}&region={region}"),
            Page::ViewItem => format!("/item/{subject}"),
            Page::ViewUser => format!("/user/{subject}"),
            Page::ViewBids | Page::StoreBid => format!("/item/{subject}/bids"),
            Page::BuyNowLogin => format!("/item/{subject}/purchases/new"),
            Page::BuyNow => format!("/item/{subject}/purchases/new?user={user}"),
            Page::StoreBuyNow => format!("/item/{subject}/purchases"),
            Page::PutBidLogin => format!("/item/{subject}/bids/new"),
            Page::PutBid => format!("/item/{subject}/bids/new?user={user}"),
            Page::PutCommentLogin => format!("/user/{subject}/comments/new"),
            Page::PutComment => format!("/user/{subject}/comments/new?user={user}"),
            Page::StoreComment => format!("/user/{subject}/comments"),
            Page::Sell => "/items/new".to_owned(),
            Page::SelectCategory => format!("/items/new?user={user}"),
            Page::SellItem => format!("/items/new?category={subject}&user={user}"),
            Page::RegisterItem => "/items".to_owned(),
            Page::AboutMeLogin => "/about-me".to_owned(),
            Page::AboutMe => format!("/about-me?user={user}"),
        }
    }

    /// The page that a request is for; none where the site has no such page. `writes` is whether the method is POST. The
    /// keys of a query stand in alphabetical order, so that each page has one target and a cache stores it once.
    pub fn parse(writes: bool, target: &str) -> Option<Self> {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let mut numbers = [None; 4];
        let mut previous = None;
        for pair in query.split('&').filter(|_| !query.is_empty()) {
            let (key, value) = pair.split_once('=')?;
            let key = ["category", "page", "region", "user"]
                .iter()
                .position(|known| *known == key)?;
            if previous.is_some_and(|previous| previous >= key) {
                return None;
            }
            previous = Some(key);
            numbers[key] = Some(number(value)?);
        }
        let [category, results, region, user] = numbers;
        let mut parts = path.strip_prefix('/')?.split('/');
        let whole = [parts.next(), parts.next(), parts.next(), parts.next()];
        if parts.next().is_some() {
            return None;
        }
        let of = |page| Some(Self::of(page));
        let about = |page, text: &str| {
            Some(Self {
                subject: number(text)?,
                ..Self::of(page)
            })
        };
        let asks = |page, subject, user| {
            Some(Self {
                subject,
                user,
                ..Self::of(page)
            })
        };
        match (writes, whole, category, results, region, user) {
            (true, [Some("users"), None, ..], None, None, None, None) => of(Page::RegisterUser),
            (true, [Some("items"), None, ..], None, None, None, None) => of(Page::RegisterItem),
            (true, [Some("item"), Some(item), Some("bids"), None], None, None, None, None) => {
                about(Page::StoreBid, item)
            }
            (true, [Some("item"), Some(item), Some("purchases"), None], None, None, None, None) => {
                about(Page::StoreBuyNow, item)
            }
            (true, [Some("user"), Some(of), Some("comments"), None], None, None, None, None) => {
                about(Page::StoreComment, of)
            }
            (true, ..) => None,
            (_, [Some(""), None, ..], None, None, None, None) => of(Page::Home),
            (_, [Some("browse"), None, ..], None, None, None, None) => of(Page::Browse),
            (_, [Some("regions"), None, ..], None, None, None, None) => of(Page::Regions),
            (_, [Some("categories"), None, ..], None, None, None, None) => of(Page::Categories),
            (_, [Some("categories"), None, ..], None, None, Some(region), None) => Some(Self {
                subject: region,
                ..Self::of(Page::CategoriesInRegion)
            }),
            (_, [Some("search"), None, ..], Some(subject), Some(results), region, None) => {
                let page = match region {
                    Some(_) => Page::SearchByRegion,
                    None => Page::SearchByCategory,
                };
                let region = region.unwrap_or(0);
                (results <= MAX_SMALL && region <= MAX_SMALL).then_some(Self {
                    subject,
                    region,
                    results,
                    ..Self::of(page)
                })
            }
            (_, [Some("users"), Some("new"), None, _], None, None, None, None) => of(Page::Register),
            (_, [Some("item"), Some(item), None, _], None, None, None, None) => about(Page::ViewItem, item),
            (_, [Some("user"), Some(user), None, _], None, None, None, None) => about(Page::ViewUser, user),
            (_, [Some("item"), Some(item), Some("bids"), None], None, None, None, None) => {
                about(Page::ViewBids, item)
            }
            (_, [Some("item"), Some(item), Some(form), Some("new")], None, None, None, user) => {
                let page = match (form, user) {
                    ("bids", None) => Page::PutBidLogin,
                    ("bids", Some(_)) => Page::PutBid,
                    ("purchases", None) => Page::BuyNowLogin,
                    ("purchases", Some(_)) => Page::BuyNow,
                    _ => return None,
                };
                asks(page, number(item)?, user.unwrap_or(0))
            }
            (_, [Some("user"), Some(of), Some("comments"), Some("new")], None, None, None, user) => {
                let page = user.map_or(Page::PutCommentLogin, |_| Page::PutComment);
                asks(page, number(of)?, user.unwrap_or(0))
            }
            (_, [Some("items"), Some("new"), None, _], None, None, None, None) => of(Page::Sell),
            (_, [Some("items"), Some("new"), None, _], None, None, None, Some(user)) => {
                asks(Page::SelectCategory, 0, user)
            }
            (_, [Some("items"), Some("new"), None, _], Some(category), None, None, Some(user)) => {
                asks(Page::SellItem, category, user)
            }
            (_, [Some("about-me"), None, ..], None, None, None, None) => of(Page::AboutMeLogin),
            (_, [Some("about-me"), None, ..], None, None, None, Some(user)) => asks(Page::AboutMe, 0, user),
            _ => None,
        }
    }

    /// A number that no other page has.
    pub const fn key(&self) -> u64 {
        (((((self.page as u64) << 22 | self.subject as u64) << 7 | self.region as u64) << 7
            | self.results as u64)
            << 22)
            | self.user as u64
    }

    /// The text by which the service says in a page's first lines which page it is, so that a client can check that it was
    /// answered what it asked for: `<meta name="auction-page" content="view-item /item/42">`.
    pub fn marker(&self) -> String {
        let (name, target) = (self.page.name(), self.target().replace('&', "&amp;"));
        format!("<meta name=\"auction-page\" content=\"{name} {target}\">")
    }

    /// The page that is changed, and is shown next, when this one writes: what the service names in `Location`. None where
    /// it does not write, or where what it makes has no number yet.
    pub fn changes(&self) -> Option<Self> {
        let page = match self.page {
            Page::StoreBid | Page::StoreBuyNow => Page::ViewItem,
            Page::StoreComment => Page::ViewUser,
            _ => return None,
        };
        Some(Self {
            subject: self.subject,
            ..Self::of(page)
        })
    }
}

/// A number as targets have it: digits, without a leading zero, at most [`MAX_NUMBER`].
fn number(text: &str) -> Option<u32> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    text.parse().ok().filter(|number| plain && *number <= MAX_NUMBER)
}
