//! The kinds of page.

/// A kind of page of the auction site. The order is part of a page's [key](super::Place::key).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Page {
    /// The entrance.
    Home,
    /// The form of a new user.
    Register,
    /// A new user is stored.
    RegisterUser,
    /// How to browse: by category or by region.
    Browse,
    /// All categories, of the site or of a region.
    Categories,
    /// Items of a category.
    SearchByCategory,
    /// All regions.
    Regions,
    /// All categories, to search one in a region.
    CategoriesInRegion,
    /// Items of a category whose seller lives in a region.
    SearchByRegion,
    /// An item.
    ViewItem,
    /// A user, and what others say of it.
    ViewUser,
    /// The bids on an item.
    ViewBids,
    /// Who wants to buy at once says who it is.
    BuyNowLogin,
    /// The form of a purchase.
    BuyNow,
    /// A purchase is stored.
    StoreBuyNow,
    /// Who wants to bid says who it is.
    PutBidLogin,
    /// The form of a bid.
    PutBid,
    /// A bid is stored.
    StoreBid,
    /// Who wants to comment says who it is.
    PutCommentLogin,
    /// The form of a comment.
    PutComment,
    /// A comment is stored.
    StoreComment,
    /// Who wants to sell says who it is.
    Sell,
    /// The category of what is to be sold.
    SelectCategory,
    /// The form of an item.
    SellItem,
    /// A new item is stored.
    RegisterItem,
    /// Who wants to see what it does here says who it is.
    AboutMeLogin,
    /// What a user bids on, sells and has bought.
    AboutMe,
}

/// What a page is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Nothing that has a number.
    Nothing,
    /// A category.
    Category,
    /// A region.
    Region,
    /// An item.
    Item,
    /// A user.
    User,
}

impl Page {
    /// Every kind of page.
    pub const ALL: [Self; 27] = [
        Self::Home,
        Self::Register,
        Self::RegisterUser,
        Self::Browse,
        Self::Categories,
        Self::SearchByCategory,
        Self::Regions,
        Self::CategoriesInRegion,
        Self::SearchByRegion,
        Self::ViewItem,
        Self::ViewUser,
        Self::ViewBids,
        Self::BuyNowLogin,
        Self::BuyNow,
        Self::StoreBuyNow,
        Self::PutBidLogin,
        Self::PutBid,
        Self::StoreBid,
        Self::PutCommentLogin,
        Self::PutComment,
        Self::StoreComment,
        Self::Sell,
        Self::SelectCategory,
        Self::SellItem,
        Self::RegisterItem,
        Self::AboutMeLogin,
        Self::AboutMe,
    ];

    /// Its name, as reports and statistics have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Home => "home",
            Self::Register => "register",
            Self::RegisterUser => "register-user",
            Self::Browse => "browse",
            Self::Categories => "categories",
            Self::SearchByCategory => "search-by-category",
            Self::Regions => "regions",
            Self::CategoriesInRegion => "categories-in-region",
            Self::SearchByRegion => "search-by-region",
            Self::ViewItem => "view-item",
            Self::ViewUser => "view-user",
            Self::ViewBids => "view-bids",
            Self::BuyNowLogin => "buy-now-login",
            Self::BuyNow => "buy-now",
            Self::StoreBuyNow => "store-buy-now",
            Self::PutBidLogin => "put-bid-login",
            Self::PutBid => "put-bid",
            Self::StoreBid => "store-bid",
            Self::PutCommentLogin => "put-comment-login",
            Self::PutComment => "put-comment",
            Self::StoreComment => "store-comment",
            Self::Sell => "sell",
            Self::SelectCategory => "select-category",
            Self::SellItem => "sell-item",
            Self::RegisterItem => "register-item",
            Self::AboutMeLogin => "about-me-login",
            Self::AboutMe => "about-me",
        }
    }

    /// Whether it changes the database: it is asked for with POST, every other one with GET.
    pub const fn writes(self) -> bool {
        matches!(
            self,
            Self::RegisterUser | Self::StoreBuyNow | Self::StoreBid | Self::StoreComment | Self::RegisterItem
        )
    }

    /// Whether it is of one user alone, so that no cache may answer it to another: the pages that write, and those that
    /// name who asks in their query.
    pub const fn is_personal(self) -> bool {
        self.writes()
            || matches!(
                self,
                Self::BuyNow
                    | Self::PutBid
                    | Self::PutComment
                    | Self::SelectCategory
                    | Self::SellItem
                    | Self::AboutMe
            )
    }

    /// What its number is of.
    pub const fn subject(self) -> Subject {
        match self {
            Self::SearchByCategory | Self::SearchByRegion | Self::SellItem => Subject::Category,
            Self::CategoriesInRegion => Subject::Region,
            Self::ViewItem
            | Self::ViewBids
            | Self::BuyNowLogin
            | Self::BuyNow
            | Self::StoreBuyNow
            | Self::PutBidLogin
            | Self::PutBid
            | Self::StoreBid => Subject::Item,
            Self::ViewUser | Self::PutCommentLogin | Self::PutComment | Self::StoreComment => Subject::User,
            _ => Subject::Nothing,
        }
    }

    /// Whether it is a list of items with pages of its own.
    pub const fn is_search(self) -> bool {
        matches!(self, Self::SearchByCategory | Self::SearchByRegion)
    }
}
