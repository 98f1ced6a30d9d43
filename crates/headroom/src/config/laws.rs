//! What the laws object to before the machine is looked at.

use super::Config;
use headroom_console::{Document, Mistakes};
use headroom_control::{Foreseen, LawConfig, LawNames};
use headroom_runtime::cluster::gateway_port::levers_of;
use headroom_runtime::oncall::LEVERS;
use headroom_units::{Lever, PerSecond};

impl Config {
    /// What the laws that are to run object to whatever the machine is: it is the file's mistake, and known before the machine's.
    pub(super) fn check_laws(&self, names: LawNames, document: &Document, mistakes: &mut Mistakes) {
        let Ok(slo) = self.slo(document) else {
            return;
        };
        if mistakes.hide("slo.target_ms", document) {
            return;
        }
        let mut unknown = vec![
            (Lever::BatchInterval, "gateway.batch"),
            (Lever::CacheSize, "gateway.cache"),
            (Lever::Placement, "gateway.sizes"),
        ];
        unknown.retain(|(_, table)| mistakes.hide(table, document));
        let rate_key = "service.requests_per_core_s";
        let rate = self.service.requests_per_core_s;
        let rate = rate.filter(|_| !mistakes.hide(rate_key, document));
        let mut of_cluster = self.gateway_to_run().as_ref().map_or_else(Vec::new, levers_of);
        of_cluster.extend(self.oncall.iter().flat_map(|_| LEVERS));
        let known = Foreseen {
            slo,
            service_rate: rate.map(PerSecond::new),
            of_cluster,
            unknown: unknown.into_iter().map(|(lever, _)| lever).collect(),
        };
        let law = LawConfig {
            names,
            ..self.law.clone()
        };
        for error in law.foreseen(&known) {
            mistakes.push(document.error(&error.key, error.why));
        }
    }
}
