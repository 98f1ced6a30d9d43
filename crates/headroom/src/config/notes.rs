//! What a configuration says that is no mistake, and that its user should know.

use super::Config;
use headroom_console::{ConfigError, Document};
use headroom_control::{CpuUse, LawName};

impl Config {
    /// What its user should know: what is written and does nothing, and what the laws make of the SLO.
    ///
    /// # Errors
    /// As [`Self::slo`].
    pub fn notes(&self, document: &Document) -> Result<Vec<String>, ConfigError> {
        let mut notes = self.law.notes(self.slo(document)?);
        let has_batcher = self
            .gateway
            .as_ref()
            .is_some_and(|gateway| gateway.batch.interval_ms.is_some());
        let is_dvfs = |name: LawName| name.as_str() == "dvfs";
        if self.law.dvfs.cpu_use == CpuUse::Batches && !has_batcher && self.law.names.iter().any(is_dvfs) {
            notes.push(
                "law.dvfs.cpu_use = \"batches\" is of no effect: there is no batcher, so no batch is ever processed, and the law goes by the \
                 utilisation instead; write cpu_use = \"utilisation\", or interval_ms = 0 in [gateway.batch]"
                    .to_owned(),
            );
        }
        let moves_sleep = |name: LawName| {
            [LawName::JOINT, LawName::ON_CALL, LawName::REEF, LawName::CONSTANT].contains(&name)
        };
        if self.oncall.is_some() && !self.law.names.iter().any(moves_sleep) {
            notes.push(format!(
                "[oncall] is written, and the law {} moves no lever of a server on call, which is watched alone: write name = \"joint\" in \
                 [law], or add \"on-call\" to it",
                self.law.names
            ));
        }
        if let Some(oncall) = &self.oncall {
            notes.extend(oncall.notes(&self.law, document));
        }
        let mut laws = self.law.names.iter().map(|name| name.as_str());
        let of_batches = laws.find(|name| ["batching", "batching-dvfs", "seek"].contains(name));
        if let (Some(law), Some(gateway), true) = (of_batches, &self.gateway, has_batcher) {
            if gateway.cache.bytes == 0 {
                notes.push(format!(
                    "the law {law} holds requests so that those for the same content are answered together, and there is no cache that could \
                     do that: each goes to a backend by itself; a cache begins with bytes = \"64MiB\" in [gateway.cache]"
                ));
            } else if gateway.cache.collapse {
                notes.push(format!(
                    "gateway.cache.collapse is true: the cache fetches once for all who ask for the same at once, which leaves batches little to \
                     save; write collapse = false in [gateway.cache] where the law {law} is to gain by them"
                ));
            }
        }
        if let Some(gateway) = &self.gateway {
            notes.extend(gateway.note_of_places());
            let (no_batcher, no_cache) = (gateway.batch.interval_ms.is_none(), gateway.cache.bytes == 0);
            let of_batcher = &["max_wait_ms", "max_held", "key"][..];
            let of_cache = &["max_object_bytes", "policy", "collapse", "collapse_timeout_ms"];
            let no_sizes = gateway.sizes.bounds_bytes.is_empty();
            for (is_off, what, table, keys, switch) in [
                (
                    no_batcher,
                    "batcher",
                    "gateway.batch",
                    of_batcher,
                    "interval_ms = 0",
                ),
                (no_cache, "cache", "gateway.cache", of_cache, "bytes = \"64MiB\""),
                (
                    no_sizes,
                    "class of sizes",
                    "gateway.sizes",
                    &["routes"],
                    "bounds_bytes = [4096, 65536]",
                ),
            ] {
                let written = keys.iter().filter(|key| is_off && document.has(table, key));
                let written: Vec<String> = written.map(|key| format!("{table}.{key}")).collect();
                if !written.is_empty() {
                    notes.push(format!(
                        "{} is written and does nothing: there is no {what}, which begins with {switch} in [{table}]",
                        written.join(", ")
                    ));
                }
            }
        }
        Ok(notes)
    }
}
