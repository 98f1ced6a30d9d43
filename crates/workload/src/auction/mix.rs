//! The mixes: from each page, what is asked for next and how often. All numbers are ours; see the module's page.

use super::page::Page;
use std::fmt;
use std::str::FromStr;

/// What comes after a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// A page of this kind.
    To(Page),
    /// The page before, once more; where there is none, the entrance.
    Back,
    /// The session ends.
    End,
}

/// What comes next, and in how many of a hundred cases.
pub type Transition = (Next, u8);

/// Who visits: a table of transitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    /// Reads only.
    Browsing,
    /// 15 % of the pages write, most of them bids.
    Bidding,
    /// Some 15 % of the pages write, most of them new items.
    Selling,
}

/// Who wrote the name of a mix that there is not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no mix of visitors; write browsing, bidding or selling")]
pub struct UnknownMix(String);

impl FromStr for Mix {
    type Err = UnknownMix;

    fn from_str(text: &str) -> Result<Self, UnknownMix> {
        Self::ALL
            .into_iter()
            .find(|mix| mix.name() == text)
            .ok_or_else(|| UnknownMix(text.chars().take(80).collect()))
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Mix {
    /// All mixes.
    pub const ALL: [Self; 3] = [Self::Browsing, Self::Bidding, Self::Selling];

    /// Its name on a command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Browsing => "browsing",
            Self::Bidding => "bidding",
            Self::Selling => "selling",
        }
    }

    /// What comes after a page: percents that add up to 100. Empty where the mix never comes to that page.
    pub const fn row(self, page: Page) -> &'static [Transition] {
        match self {
            Self::Browsing => browsing(page),
            Self::Bidding => bidding(page),
            Self::Selling => selling(page),
        }
    }
}

use Next::{Back, End, To};
use Page::*;

const fn browsing(page: Page) -> &'static [Transition] {
    match page {
        Home => &[(To(Browse), 96), (End, 4)],
        Browse => &[(To(Categories), 72), (To(Regions), 24), (Back, 2), (End, 2)],
        Categories => &[(To(SearchByCategory), 97), (Back, 2), (End, 1)],
        SearchByCategory => &[
            (To(SearchByCategory), 30),
            (To(ViewItem), 46),
            (Back, 9),
            (To(Browse), 8),
            (To(Home), 3),
            (End, 4),
        ],
        Regions => &[(To(CategoriesInRegion), 97), (Back, 2), (End, 1)],
        CategoriesInRegion => &[(To(SearchByRegion), 97), (Back, 2), (End, 1)],
        SearchByRegion => &[
            (To(SearchByRegion), 22),
            (To(ViewItem), 52),
            (Back, 9),
            (To(Browse), 10),
            (To(Home), 3),
            (End, 4),
        ],
        ViewItem => &[
            (To(ViewBids), 14),
            (To(ViewUser), 14),
            (Back, 56),
            (To(Browse), 8),
            (To(Home), 3),
            (End, 5),
        ],
        ViewUser => &[(Back, 76), (To(Browse), 14), (To(Home), 5), (End, 5)],
        ViewBids => &[(Back, 58), (To(ViewItem), 16), (To(ViewUser), 21), (End, 5)],
        _ => &[],
    }
}

const fn bidding(page: Page) -> &'static [Transition] {
    match page {
        Home => &[
            (To(Browse), 88),
            (To(Sell), 2),
            (To(AboutMeLogin), 5),
            (To(Register), 2),
            (End, 3),
        ],
        Register => &[(To(RegisterUser), 92), (Back, 6), (End, 2)],
        RegisterUser => &[(To(Browse), 94), (To(Sell), 3), (End, 3)],
        Browse => &[(To(Categories), 73), (To(Regions), 23), (Back, 2), (End, 2)],
        Categories => &[(To(SearchByCategory), 97), (Back, 2), (End, 1)],
        SearchByCategory => &[
            (To(SearchByCategory), 14),
            (To(ViewItem), 73),
            (Back, 4),
            (To(Browse), 4),
            (To(Home), 2),
            (End, 3),
        ],
        Regions => &[(To(CategoriesInRegion), 97), (Back, 2), (End, 1)],
        CategoriesInRegion => &[(To(SearchByRegion), 97), (Back, 2), (End, 1)],
        SearchByRegion => &[
            (To(SearchByRegion), 12),
            (To(ViewItem), 74),
            (Back, 4),
            (To(Browse), 5),
            (To(Home), 2),
            (End, 3),
        ],
        ViewItem => &[
            (To(PutBid), 44),
            (To(PutBidLogin), 6),
            (To(BuyNowLogin), 2),
            (To(BuyNow), 4),
            (To(ViewBids), 9),
            (To(ViewUser), 7),
            (Back, 23),
            (To(Browse), 2),
            (End, 3),
        ],
        ViewUser => &[
            (To(PutCommentLogin), 4),
            (To(PutComment), 14),
            (Back, 70),
            (To(Browse), 8),
            (End, 4),
        ],
        ViewBids => &[(To(PutBid), 30), (Back, 50), (To(ViewUser), 16), (End, 4)],
        BuyNowLogin => &[(To(BuyNow), 94), (Back, 5), (End, 1)],
        BuyNow => &[(To(StoreBuyNow), 84), (Back, 14), (End, 2)],
        StoreBuyNow => &[(To(Browse), 45), (To(ViewUser), 25), (To(Home), 22), (End, 8)],
        PutBidLogin => &[(To(PutBid), 95), (Back, 4), (End, 1)],
        PutBid => &[(To(StoreBid), 87), (Back, 10), (To(ViewBids), 2), (End, 1)],
        StoreBid => &[
            (To(ViewItem), 52),
            (To(SearchByCategory), 28),
            (To(Browse), 12),
            (To(AboutMe), 3),
            (End, 5),
        ],
        PutCommentLogin => &[(To(PutComment), 95), (Back, 4), (End, 1)],
        PutComment => &[(To(StoreComment), 88), (Back, 10), (End, 2)],
        StoreComment => &[(To(ViewUser), 22), (To(Browse), 54), (To(Home), 16), (End, 8)],
        Sell => &[(To(SelectCategory), 96), (Back, 3), (End, 1)],
        SelectCategory => &[(To(SellItem), 96), (Back, 3), (End, 1)],
        SellItem => &[(To(RegisterItem), 92), (Back, 6), (End, 2)],
        RegisterItem => &[(To(Sell), 20), (To(Home), 40), (To(Browse), 30), (End, 10)],
        AboutMeLogin => &[(To(AboutMe), 96), (Back, 3), (End, 1)],
        AboutMe => &[
            (To(ViewItem), 50),
            (To(ViewUser), 14),
            (To(Browse), 26),
            (To(Home), 5),
            (End, 5),
        ],
    }
}

const fn selling(page: Page) -> &'static [Transition] {
    match page {
        Home => &[
            (To(Sell), 52),
            (To(Browse), 22),
            (To(AboutMeLogin), 20),
            (To(Register), 3),
            (End, 3),
        ],
        RegisterUser => &[(To(Sell), 82), (To(Browse), 15), (End, 3)],
        RegisterItem => &[(To(Sell), 56), (To(AboutMe), 16), (To(Home), 20), (End, 8)],
        AboutMe => &[
            (To(Sell), 34),
            (To(ViewItem), 42),
            (To(ViewUser), 10),
            (To(Home), 9),
            (End, 5),
        ],
        ViewItem => &[
            (To(ViewBids), 30),
            (To(ViewUser), 16),
            (Back, 36),
            (To(Sell), 12),
            (To(Home), 3),
            (End, 3),
        ],
        ViewBids => &[(Back, 66), (To(ViewUser), 30), (End, 4)],
        ViewUser => &[(To(PutComment), 18), (Back, 70), (To(Sell), 8), (End, 4)],
        StoreComment => &[(To(Sell), 50), (To(AboutMe), 24), (To(Home), 18), (End, 8)],
        // Who sells neither bids nor buys.
        BuyNowLogin | BuyNow | StoreBuyNow | PutBidLogin | PutBid | StoreBid | PutCommentLogin => &[],
        Register | Browse | Categories | SearchByCategory | Regions | CategoriesInRegion | SearchByRegion
        | PutComment | Sell | SelectCategory | SellItem | AboutMeLogin => bidding(page),
    }
}
