//! All that repeats a load, for whoever reads its figures later.

use super::{LoadArgs, Offer};
use crate::args::Spacing;
use crate::commands::trace;
use crate::origin;
use anyhow::Context;
use headroom_console::Failure;
use headroom_load::Judged;
use headroom_load::http::LoadResult;
use headroom_record::{LoadFile, OfferedLoad, fingerprint};
use headroom_workload::users::UserCurve;
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::path::Path;

/// What `--json` prints: the load first, then what came of it.
#[derive(Serialize)]
pub(super) struct Told<'a> {
    pub(super) offered_load: &'a OfferedLoad,
    #[serde(flatten)]
    pub(super) result: &'a LoadResult,
    pub(super) thresholds: &'a [Judged],
}

/// Names of what is sent and to whom, which another machine may call otherwise: the contents count.
const NAMES: [&str; 5] = ["url", "trace", "users", "replay", "paths"];

/// The load that these arguments ask for, begun now.
///
/// # Errors
/// A file that cannot be read.
pub(super) fn load(args: &LoadArgs, offer: &Offer) -> Result<OfferedLoad, Failure> {
    let parameters = parameters(args, offer);
    let counts = parameters
        .iter()
        .filter(|(name, _)| !NAMES.contains(&name.as_str()));
    let counts: Vec<String> = counts.map(|(name, value)| format!("{name} {value}")).collect();
    let paths = match &args.paths {
        Some(file) => super::read_paths(file)?.join("\n"),
        None => String::new(),
    };
    let files = files(args).into_iter().map(|(option, name)| {
        let bytes = std::fs::read(name).with_context(|| format!("{} cannot be read", name.display()));
        Ok(LoadFile::new(option, name, &bytes.map_err(Failure::Usage)?))
    });
    let hash = fingerprint([counts.join("\n").as_bytes(), &offer.contents, paths.as_bytes()]);
    Ok(OfferedLoad {
        origin: origin::provenance().with_load(Some(hash)),
        what: format!("{} in {:.0} s", offer.what, offer.length.get()),
        parameters,
        files: files.collect::<Result<Vec<_>, Failure>>()?,
        results: None,
        doubt: None,
    })
}

/// The files that these arguments name, each after the option that names it.
fn files(args: &LoadArgs) -> Vec<(&'static str, &Path)> {
    let named = args.trace.as_deref().filter(|name| !trace::is_named(name));
    let users = args.users.as_deref().and_then(UserCurve::file_of);
    let files = [
        ("trace", named.map(Path::new)),
        ("users", users),
        ("replay", args.replay.as_deref()),
        ("paths", args.paths.as_deref()),
    ];
    let given = files.into_iter();
    given.filter_map(|(option, file)| Some((option, file?))).collect()
}

/// Each parameter that has a say in what is sent, also where it is a default.
fn parameters(args: &LoadArgs, offer: &Offer) -> Map<String, Value> {
    let mut all = Map::new();
    let mut add = |name: &str, value: Value| drop(all.insert(name.to_owned(), value));
    add("url", json!(args.url));
    add("seed", json!(args.seed));
    add("length_s", json!(offer.length.get()));
    add(
        "connections",
        json!(args.connections.unwrap_or(match &args.url {
            Some(url) if args.closed.is_none() && super::memcached::is_memcached(url) =>
                super::memcached::CONNECTIONS,
            _ => offer.connections,
        })),
    );
    add("threads", json!(args.threads));
    add("new_connections", json!(args.new_connections));
    add("timeout_ms", json!(args.timeout_ms));
    add("grace_s", json!(args.grace));
    add("paths", json!(args.paths));
    let arrivals = match args.arrivals {
        Spacing::Poisson => "poisson",
        Spacing::Even => "even",
    };
    for (name, value) in [
        ("value_bytes", json!(args.value_bytes)),
        ("keys", json!(args.keys)),
        ("sets_share", json!(args.sets)),
        ("expect_bytes", json!(args.expect_bytes)),
    ] {
        if !value.is_null() {
            add(name, value);
        }
    }
    if let Some(connections) = args.closed {
        add("closed", json!(connections));
        add("density", json!(args.density));
        add("window_s", json!(super::window(args)));
        add("grid", json!(args.grid));
    } else if let Some(curve) = &args.users {
        add("users", json!(curve));
        match args.auction {
            Some(mix) => {
                add("auction", json!(mix.name()));
                add("think_s", json!(args.think));
                add("items", json!(args.site.items));
                add("registered_users", json!(args.site.registered_users));
                add("page_kb", json!(args.site.page_kb));
                add("popularity", json!(args.site.popularity));
                add("site_seed", json!(args.site.site_seed));
            }
            None => {
                add("files", json!(args.files));
                add("size_scale", json!(args.size_scale));
            }
        }
    } else if let Some(file) = &args.replay {
        add("replay", json!(file));
        add("speed", json!(args.speed));
        add("arrivals", json!(arrivals));
    } else {
        add("trace", json!(args.trace));
        add("step_s", json!(args.step));
        add("compress_s", json!(args.compress));
        add("scale", json!(args.scale));
        add("peak_per_s", json!(args.peak));
        add("mean_per_s", json!(args.mean));
        add("arrivals", json!(arrivals));
    }
    all
}
