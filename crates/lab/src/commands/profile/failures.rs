//! Why requests of a window failed, in words.

use headroom_load::LoadResult;

/// The kinds of failure of a load, the most frequent first; `None` where nothing failed.
pub fn reasons(result: &LoadResult) -> Option<String> {
    let failed = result.counts.failed;
    let because = |text: &str, why: &Option<String>| match why {
        Some(why) => format!("{text} ({why})"),
        None => text.to_owned(),
    };
    let mut kinds = [
        (failed.connect, because("no connection", &result.connect_error)),
        (failed.timeout, "no whole answer in time".to_owned()),
        (
            failed.status,
            because("answered with an error", &result.answer_error),
        ),
        (
            failed.protocol + failed.closed,
            "the connection broke, or what came was no answer".to_owned(),
        ),
        (
            failed.dropped,
            "never sent, for all connections were busy".to_owned(),
        ),
        (
            failed.wrong,
            "answered that there is no such thing (a status from 400 to 499)".to_owned(),
        ),
        (failed.wrong_size, "answered with another size".to_owned()),
        (failed.missed, "the server did not hold the key".to_owned()),
    ];
    kinds.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    let named: Vec<String> = kinds
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(_, text)| text)
        .collect();
    (!named.is_empty()).then(|| named.join("; "))
}
