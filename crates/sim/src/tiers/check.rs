//! Whether a scenario is a world: each objection names its key.

use super::scenario::{AuctionFigures, TiersScenario, default_pages};
use crate::error::{ScenarioError, within};

/// The most users at once.
const MAX_USERS: u32 = 1_000_000;
/// The most different objects of all pages: each takes four bytes, and eight for its popularity.
const MAX_OBJECTS: u64 = 10_000_000;
/// The most pages.
const MAX_PAGES: usize = 1_000;
/// The most frequencies.
const MAX_FREQUENCIES: usize = 1_000;

impl TiersScenario {
    /// Checks the figures.
    ///
    /// # Errors
    /// [`ScenarioError`] with the key.
    pub fn check(&self) -> Result<(), ScenarioError> {
        within("duration_s", self.duration_s, 1.0, 1e9, " seconds")?;
        let length = self.duration_s;
        within("warm_up_s", self.warm_up_s, 0.0, length * 0.99, " seconds")?;
        within("period_s", self.period_s, 0.01, length, " seconds")?;
        within("sample_s", self.sample_s, 0.01, length, " seconds")?;
        within("target_s", self.target_s, 1e-6, 3_600.0, " seconds")?;
        within("insensitive_share", self.insensitive_share, 0.0, 1.0, "")?;
        self.check_users()?;
        match &self.auction {
            Some(auction) => self.check_auction(auction)?,
            None => self.check_pages()?,
        }
        self.demand.check("demand")?;
        let front = &self.front;
        within("front.hit_s", front.hit_s, 0.0, 3_600.0, " seconds")?;
        let cores = [front.cores, self.application.cores, self.database.cores];
        for (tier, cores) in ["front", "application", "database"].iter().zip(cores) {
            within(&format!("{tier}.cores"), f64::from(cores), 1.0, 4_096.0, " cores")?;
        }
        if let Some(cache) = self.cache {
            let most = cache.bytes as f64;
            within("cache.bytes", most, 1.0, 1e15, " bytes")?;
            within(
                "cache.max_object_bytes",
                cache.max_object_bytes as f64,
                1.0,
                most,
                " bytes: no object can be larger than the cache",
            )?;
            within("cache.fresh_s", cache.fresh_s, 0.0, 1e9, " seconds")?;
        }
        let most = self.batch.max_interval_s;
        within("batch.max_interval_s", most, 0.001, 3_600.0, " seconds")?;
        within("batch.interval_s", self.batch.interval_s, 0.0, most, " seconds")?;
        self.check_machine(cores.iter().sum())
    }

    fn check_users(&self) -> Result<(), ScenarioError> {
        let users = &self.users;
        if users.counts.is_empty() {
            let why = "is empty: give one number of users or more";
            return Err(ScenarioError::new("users.counts", why));
        }
        for (at, count) in users.counts.iter().enumerate() {
            let key = format!("users.counts.{at}");
            within(&key, f64::from(*count), 0.0, f64::from(MAX_USERS), " users")?;
        }
        within("users.hold_s", users.hold_s, 0.001, 1e9, " seconds")?;
        // Without a pause a user of a cache could ask without end at one moment.
        within("users.think_s", users.think_s, 1e-6, 86_400.0, " seconds")?;
        Ok(users.think.check("users.think")?)
    }

    fn check_auction(&self, auction: &AuctionFigures) -> Result<(), ScenarioError> {
        if self.pages != default_pages() {
            let why = "are given beside auction: give one of the two";
            return Err(ScenarioError::new("pages", why));
        }
        for (name, seconds) in [
            ("front_s", auction.front_s),
            ("application_s", auction.application_s),
            ("database_s", auction.database_s),
            ("delay_s", auction.delay_s),
        ] {
            within(&format!("auction.{name}"), seconds, 0.0, 3_600.0, " seconds")?;
        }
        auction.mix()?;
        auction.site().map(drop)
    }

    fn check_pages(&self) -> Result<(), ScenarioError> {
        within("pages", self.pages.len() as f64, 1.0, MAX_PAGES as f64, " pages")?;
        let mut objects = 0;
        for (at, page) in self.pages.iter().enumerate() {
            let key = |name: &str| format!("pages.{at}.{name}");
            within(&key("weight"), page.weight, 0.0, 1e9, "")?;
            within(&key("objects"), page.objects as f64, 1.0, MAX_OBJECTS as f64, "")?;
            within(&key("zipf"), page.zipf, 0.0, 10.0, "")?;
            within(&key("bytes"), page.bytes, 1.0, 1e12, " bytes")?;
            page.bytes_shape.check(&key("bytes_shape"))?;
            for (name, seconds) in [
                ("front_s", page.front_s),
                ("application_s", page.application_s),
                ("database_s", page.database_s),
                ("delay_s", page.delay_s),
            ] {
                within(&key(name), seconds, 0.0, 3_600.0, " seconds")?;
            }
            for changed in &page.changes {
                if !self.pages.iter().any(|page| page.name == *changed) {
                    let why = format!("names {changed:?}, which is no page's name");
                    return Err(ScenarioError::new(key("changes"), why));
                }
            }
            if !page.changes.is_empty() && !page.writes {
                let why = "names pages that a page with writes = false would change: set writes = true";
                return Err(ScenarioError::new(key("changes"), why));
            }
            objects += page.objects;
        }
        within(
            "pages",
            objects as f64,
            1.0,
            MAX_OBJECTS as f64,
            " objects in all",
        )?;
        match self.pages.iter().any(|page| page.weight > 0.0) {
            true => Ok(()),
            false => Err(ScenarioError::new(
                "pages",
                "have no weight above 0: nothing is asked for",
            )),
        }
    }

    fn check_machine(&self, tiers: u32) -> Result<(), ScenarioError> {
        let list = &self.frequencies_ghz;
        within(
            "frequencies_ghz",
            list.len() as f64,
            1.0,
            MAX_FREQUENCIES as f64,
            " frequencies",
        )?;
        if !list.iter().zip(list.iter().skip(1)).all(|(one, next)| one < next) {
            return Err(ScenarioError::new(
                "frequencies_ghz",
                "do not ascend: sort them, each once",
            ));
        }
        self.machine.check().map_err(|error| {
            let why = format!("is {}: {}", error.value, error.expected);
            ScenarioError::new(format!("machine.{}", error.key), why)
        })?;
        let frequency = &self.machine.processor.frequency;
        let (least, most) = (frequency.lowest.get() / 1e9, frequency.highest.get() / 1e9);
        for (at, ghz) in list.iter().enumerate() {
            within(
                &format!("frequencies_ghz.{at}"),
                *ghz,
                least - 1e-9,
                most + 1e-9,
                " GHz, the range of machine.processor.frequency",
            )?;
        }
        let cores = self.machine.processor.cores;
        if tiers as usize > cores {
            let why = format!("is {cores}: the tiers have {tiers} cores, and the machine must have as many");
            return Err(ScenarioError::new("machine.processor.cores", why));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "name = \"item\"\nweight = 1\nobjects = 10\nbytes = 1000\nfront_s = 0.001\napplication_s = 0.001\n\
                        database_s = 0.001\n";

    #[test]
    fn the_default_is_a_world_and_what_is_none_is_named() {
        assert_eq!(TiersScenario::default().check(), Ok(()));
        let page = |more: &str| format!("[[pages]]\n{PAGE}{more}");
        for (text, said) in [
            (
                "period_s = 0.001".to_owned(),
                "period_s: is 0.001: it must be 0.01 to 600",
            ),
            ("users.counts = []".to_owned(), "users.counts: is empty"),
            (
                "users.counts = [5, 2000000]".to_owned(),
                "users.counts.1: is 2000000",
            ),
            ("users.think_s = 0.0".to_owned(), "users.think_s: is 0"),
            (
                "cache = { bytes = 10, max_object_bytes = 11 }".to_owned(),
                "cache.max_object_bytes: is 11",
            ),
            (
                "batch.interval_s = 2.0".to_owned(),
                "batch.interval_s: is 2: it must be 0 to 1",
            ),
            (
                "frequencies_ghz = [2.33, 2.0]".to_owned(),
                "frequencies_ghz: do not ascend",
            ),
            (
                "frequencies_ghz = [1.0, 2.0]".to_owned(),
                "frequencies_ghz.0: is 1: it must be",
            ),
            (
                "application.cores = 3".to_owned(),
                "machine.processor.cores: is 4: the tiers have 5",
            ),
            (page("changes = [\"item\"]"), "pages.0.changes: names pages"),
            (
                page("writes = true\nchanges = [\"bid\"]"),
                "pages.0.changes: names \"bid\"",
            ),
            (page("delay_s = -1.0"), "pages.0.delay_s: is -1"),
            (
                "[auction]\nmix = \"buying\"".to_owned(),
                "auction.mix: `buying` is no mix",
            ),
            (
                "[auction]\nregistered = 0".to_owned(),
                "auction.registered: is 0: give",
            ),
            (page("[auction]"), "pages: are given beside auction"),
        ] {
            let scenario: TiersScenario = toml::from_str(&text).unwrap();
            let error = scenario.check().unwrap_err().to_string();
            assert!(error.starts_with(said), "{error}");
        }
        for unknown in ["users.count = 5", "cache = { size = 5 }", "batch.longest = 1.0"] {
            assert!(toml::from_str::<TiersScenario>(unknown).is_err(), "{unknown}");
        }
    }
}
