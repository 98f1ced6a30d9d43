//! How `headroom load` ends: whether anything was answered, what the thresholds say, and what of the generator was the limit.

use anyhow::anyhow;
use headroom_console::Failure;
use headroom_load::{Judged, LoadResult};

/// What of the generator was the limit, with the remedies; none where nothing was.
pub(super) fn limits(result: &LoadResult) -> Option<String> {
    let limits = &result.generator_limits;
    let each: Vec<String> = limits
        .iter()
        .map(|limit| format!("{limit} (remedy: {})", limit.remedy()))
        .collect();
    (!each.is_empty()).then(|| format!("the generator was the limit: {}", each.join("; ")))
}

/// Whether the load went well.
///
/// # Errors
/// [`Failure::Run`] where requests were sent and none was answered as one that succeeds, and [`Failure::Demand`] where a
/// threshold says so.
pub(super) fn verdict(result: &LoadResult, judged: &[Judged]) -> Result<(), Failure> {
    let why = limits(result).map_or_else(String::new, |limits| format!(". And {limits}"));
    let (counts, url) = (&result.counts, &result.url);
    if counts.offered > 0 && counts.completed == 0 {
        return Err(Failure::Run(anyhow!(
            "all {} requests to {url} failed{why}",
            counts.offered
        )));
    }
    if counts.completed > 0 && counts.client_errors == counts.completed {
        return Err(Failure::Run(anyhow!(
            "every answer of {url} has a status from 400 to 499 ({} of {} requests were answered): it has no such page, or \
             refuses it. Check the path{why}",
            counts.completed,
            counts.offered
        )));
    }
    let failed: Vec<String> = judged
        .iter()
        .filter(|one| one.failed)
        .map(ToString::to_string)
        .collect();
    if failed.is_empty() {
        return Ok(());
    }
    Err(Failure::Demand(anyhow!(
        "of {} conditions of --fail-if {} ended the load as failed: {}{why}",
        judged.len(),
        failed.len(),
        failed.join("; ")
    )))
}
