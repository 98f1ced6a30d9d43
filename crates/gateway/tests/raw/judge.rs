//! Whether what came of a case is right.

use crate::case::{Case, Meaning, Reply, Right};
use crate::wire::{Got, Recorded};

/// What came of a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// As the RFC asks for.
    Right,
    /// Otherwise, as it allows.
    Differs,
    Wrong(String),
}

/// In short, what happened.
pub fn told(got: &Got, recorded: &[Recorded]) -> String {
    let mut words: Vec<String> = got.interims.iter().map(u16::to_string).collect();
    words.extend(got.answers.iter().map(|message| {
        let broken = if message.complete { "" } else { " broken off" };
        format!("{}{broken}", message.status())
    }));
    if got.garbage {
        words.push("bytes that are no answer".to_owned());
    }
    if got.answers.is_empty() {
        words.push(if got.is_closed { "closed" } else { "no answer" }.to_owned());
    }
    for what in recorded {
        words.push(match what {
            Recorded::Whole(request) => format!("backend: {:?}", request.start),
            Recorded::Part => "backend: a part".to_owned(),
            Recorded::Bad(text) => format!("backend: no request ({:.60})", text.escape_debug().to_string()),
        });
    }
    words.join(", ")
}

pub fn judge(case: &Case, got: &Got, recorded: &[Recorded]) -> Verdict {
    let mut first_wrong = None;
    for (index, right) in case.right.iter().enumerate() {
        let outcome = match right {
            Right::Refused(statuses) => refused(case, statuses, got, recorded),
            Right::Forwarded(meaning) => forwarded(meaning, got, recorded).map(|()| true),
            Right::Answered(reply) => answered(reply, got, recorded).map(|()| true),
        };
        match outcome {
            Ok(true) if index == 0 => return Verdict::Right,
            Ok(_) => return Verdict::Differs,
            Err(why) => drop(first_wrong.get_or_insert(why)),
        }
    }
    let why = first_wrong.unwrap_or_default();
    Verdict::Wrong(format!("{why} [{}]", told(got, recorded)))
}

/// Whether as it should be; otherwise by another status, or by just closing, which is right for a stream of HTTP/2.
fn refused(case: &Case, statuses: &[u16], got: &Got, recorded: &[Recorded]) -> Result<bool, String> {
    if recorded.iter().any(|what| !matches!(what, Recorded::Part)) {
        return Err("it reached the backend".to_owned());
    }
    match got.answers.first() {
        None if got.is_closed => Ok(case.http2),
        None => Err("no answer".to_owned()),
        Some(message) if statuses.contains(&message.status()) => Ok(true),
        Some(message) if !case.strict && matches!(message.status(), 400..=499 | 501 | 505) => Ok(false),
        Some(message) => Err(format!("status {}", message.status())),
    }
}

/// Whether the values of all fields of a name, as one list, are these. A folded line may become one blank or several (RFC 9112
/// section 5.2); `*` is any value.
fn is_as_wanted(values: &[&str], wanted: &str) -> bool {
    let collapse = |value: &&str| value.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
    let collapsed: Vec<String> = values.iter().map(collapse).collect();
    match wanted {
        "*" => !collapsed.concat().is_empty(),
        _ => values.join(", ") == wanted || collapsed.join(", ") == wanted,
    }
}

fn forwarded(meaning: &Meaning, got: &Got, recorded: &[Recorded]) -> Result<(), String> {
    let [Recorded::Whole(request)] = recorded else {
        return Err("not one request at the backend".to_owned());
    };
    match got.answers.first() {
        Some(message) if message.status() == 200 && message.complete => {}
        _ => return Err("its answer did not come back".to_owned()),
    }
    let without_version = |start: &str| start.rsplit_once(' ').map(|(rest, _)| rest.to_owned());
    let is_same = match meaning.own_version {
        true => request.start == meaning.start,
        false => without_version(&request.start) == without_version(&meaning.start),
    };
    if !is_same {
        return Err(format!("sent as {:?}", request.start));
    }
    if request.body != meaning.body {
        return Err(format!("body {:?}", String::from_utf8_lossy(&request.body)));
    }
    for (name, value) in &meaning.has {
        let values = request.all(name);
        if !is_as_wanted(&values, value) {
            return Err(format!("{name} is {values:?}, not {value:?}"));
        }
    }
    for name in &meaning.lacks {
        if !request.all(name).is_empty() {
            return Err(format!("{name} was passed on"));
        }
    }
    for (name, _) in &request.trailers {
        if meaning.no_trailers.contains(&name.as_str()) {
            return Err(format!("{name} was passed on as a trailer"));
        }
    }
    Ok(())
}

fn answered(reply: &Reply, got: &Got, recorded: &[Recorded]) -> Result<(), String> {
    if !reply.is_whole && got.answers.is_empty() && got.is_closed {
        // Reset before anything was read: that it is not whole is as visible.
        return Ok(());
    }
    if got.answers.len() != reply.answers || got.garbage {
        return Err(format!("{} answers", got.answers.len()));
    }
    let message = &got.answers[0];
    if message.status() != reply.status {
        return Err(format!("status {}", message.status()));
    }
    if message.complete != reply.is_whole {
        return Err(if message.complete {
            "it seems whole"
        } else {
            "it broke off"
        }
        .to_owned());
    }
    let mut interims = got.interims.clone();
    // The word that the client waits for may come twice.
    interims.dedup_by(|one, other| *one == 100 && *other == 100);
    if let Some(wanted) = &reply.interims
        && *wanted != interims
    {
        return Err(format!("interim answers {:?}", got.interims));
    }
    if let Some(body) = &reply.body
        && *body != message.body
    {
        return Err(format!("body {:?}", message.text()));
    }
    for (name, value) in &reply.has {
        let values = message.all(name);
        if !is_as_wanted(&values, value) {
            return Err(format!("{name} is {values:?}, not {value:?}"));
        }
    }
    for name in &reply.lacks {
        if message.header(name).is_some() {
            return Err(format!("{name} was passed on"));
        }
    }
    if reply.closes && !got.is_closed {
        return Err("the connection stays open".to_owned());
    }
    let whole = recorded
        .iter()
        .filter(|what| matches!(what, Recorded::Whole(_)))
        .count();
    if reply.requests.is_some_and(|requests| requests != whole) {
        return Err(format!("{whole} requests at the backend"));
    }
    Ok(())
}
