//! `headroom profile`: throughput per power of a machine, by request size and density.

mod args;
mod bar;
mod compare;
mod failures;
mod far_end;
mod machine;
mod measure;
mod node;
mod target;

use crate::origin;
use crate::simulate::{broken, narrow_text, write_sheet};
use anyhow::{Context, anyhow};
pub use args::ProfileArgs;
use args::What;
use bar::Bar;
use far_end::FarEnd;
use headroom_console::{Failure, Stop, file, say, terminal};
use headroom_node::Roots;
use headroom_node::power::PowerModel;
use headroom_record::profile::{Lock, Plan, Profile, ProfileError, Protocol, compare as compared, size_text};
use headroom_units::{Cores, Seconds};
use headroom_wire::client::ClientOptions;
use headroom_wire::tls::{ClientTls, TlsFiles};
use machine::{Local, Machine, Unknown, is_local};
use measure::{MAX_WINDOWS, MIN_WINDOWS, Measurement};
use std::path::Path;
use std::time::{Duration, Instant};
use target::Target;

/// How long a far end may take to be reached.
const FAR_END_PATIENCE: Duration = Duration::from_secs(5);

/// Measures, compares, or serves a measurement.
///
/// # Errors
/// A service that does not answer, a machine that cannot be read, a file that cannot be written or is of another measurement.
pub fn run(args: &ProfileArgs) -> Result<(), Failure> {
    match &args.what {
        Some(What::Compare(args)) => compare::run(args),
        Some(What::FarEnd(args)) => far_end::run(args),
        None => measure(args),
    }
}

fn measure(args: &ProfileArgs) -> Result<(), Failure> {
    let url = args
        .url
        .as_deref()
        .ok_or_else(|| Failure::usage(anyhow!("give --url")))?;
    let plain = Target::new(url, 1, Seconds::new(10.0), args.keys)?;
    let here = plain.addresses()?.iter().all(|address| is_local(*address));
    let threads = args.threads.map_or_else(
        || threads(here && args.agent.is_none()),
        |threads| threads as usize,
    );
    let target = Target::new(url, threads, Seconds::new(10.0), args.keys)?;
    let plan = plan(args, target.protocol(), threads)?;
    enough_time(args, here)?;
    let _alone = Lock::of(&args.out).map_err(Failure::usage)?;
    if let Some(folder) = &args.write_files {
        write_files(folder, &plan.sizes_bytes)?;
    }
    let mut machine = open(args, here)?;
    let mut profile = begin(args, &target, &*machine, plan)?;
    check_link(args, &mut *machine)?;
    check_answers(args, &target, &profile.plan.sizes_bytes)?;
    target.check(&profile.plan)?;
    if args.out.exists() {
        profile = go_on(args, profile)?;
    }
    // Better now than after the first baseline.
    profile.write(&args.out).map_err(Failure::usage)?;
    let report = args.report();
    file::will_write_report(&report)?;
    let far_end = far_end(args, here, &mut profile)?;
    let stop = Stop::at_signals()?;
    say_plan(&profile, args);
    let bar = Bar::default();
    let begun = Instant::now();
    let measurement = Measurement {
        target: &target,
        machine: &mut *machine,
        far_end,
        profile,
        file: &args.out,
        precision: args.precision / 100.0,
        until: begun + Duration::from_secs_f64(args.within),
        link: args.link.clone(),
        idle_links: Vec::new(),
        progress: &|progress| bar.draw(&progress),
        away: None,
    };
    let profile = measurement.run(&stop);
    bar.clear();
    let profile = profile?;
    let sheet = compared::sheet(&[&profile]);
    write_sheet(&sheet, None, &report)?;
    if stop.is_raised() {
        say::note!("interrupted: the same command goes on where this ended");
    }
    say::note!(
        "{:.0} s; the profile: {}",
        begun.elapsed().as_secs_f64(),
        args.out.display()
    );
    match args.json {
        true => say::result(serde_json::to_string(&profile)?),
        false => say::result(format_args!(
            "{}report: {}",
            narrow_text(&sheet, terminal::columns()),
            report.display()
        )),
    }?;
    match profile
        .cells
        .iter()
        .any(|cell| cell.windows.iter().any(|window| window.completed > 0))
        || stop.is_raised()
    {
        true => Ok(()),
        false => Err(Failure::Run(anyhow!(
            "no request to {url} was answered as it was asked"
        ))),
    }
}

fn remedy(args: &ProfileArgs) -> &'static str {
    match args.write_files {
        None => " (--write-files DIR writes files of these sizes for a server of files)",
        Some(_) => "",
    }
}

fn threads(shares: bool) -> usize {
    match shares {
        true => 1,
        false => std::thread::available_parallelism().map_or(1, usize::from).min(4),
    }
}

/// Whether there is time for the baselines and one window.
fn enough_time(args: &ProfileArgs, here: bool) -> Result<(), Failure> {
    let baselines = match args.far_end.is_some() || (here && !args.no_baselines) {
        true => 3.0,
        false => 1.0,
    };
    let least = args.window * (baselines + 1.0);
    match args.within >= least {
        true => Ok(()),
        false => Err(Failure::usage(anyhow!(
            "--within {} s: {baselines} baselines and one window of {} s take {least} s: give more time, shorter windows (--window), or leave \
             baselines out (--no-baselines)",
            args.within,
            args.window
        ))),
    }
}

fn plan(args: &ProfileArgs, protocol: Protocol, threads: usize) -> Result<Plan, Failure> {
    let kb = |sizes: [u64; 3]| sizes.map(|size| size * 1024).to_vec();
    let mut sizes = match (args.sizes.is_empty(), protocol) {
        (false, _) => args.sizes.clone(),
        (true, Protocol::Http) => kb([1, 10, 100]),
        (true, Protocol::Memcached) => kb([1, 10, 999]),
    };
    sizes.sort_unstable();
    if let Some(twice) = sizes.windows(2).find(|two| two[0] == two[1]) {
        return Err(Failure::usage(anyhow!(
            "--sizes has {} ({} bytes) twice: give each size once",
            size_text(twice[0]),
            twice[0]
        )));
    }
    let mut densities = args.densities.clone();
    densities.sort_by(|one, two| two.total_cmp(one));
    if let Some(twice) = densities.windows(2).find(|two| two[0] == two[1]) {
        return Err(Failure::usage(anyhow!(
            "--densities has {} % twice: give each density once",
            twice[0] * 100.0
        )));
    }
    let ignored = match protocol {
        Protocol::Http => [
            (
                args.sets > 0.0,
                "--sets is of memcached: HTTP is asked by GET alone",
            ),
            (
                args.keys.is_some(),
                "--keys is of memcached: HTTP is asked for one path of each size",
            ),
        ],
        Protocol::Memcached => [
            (
                args.new_connections,
                "--new-connections is of HTTP: a memcached's connections are kept",
            ),
            (
                args.write_files.is_some(),
                "--write-files is of HTTP: a memcached is sent its values; leave it out",
            ),
        ],
    };
    if let Some((_, why)) = ignored.into_iter().find(|(given, _)| *given) {
        return Err(Failure::usage(anyhow!(why)));
    }
    Ok(Plan {
        sizes_bytes: sizes,
        densities,
        concurrency: args.concurrency as usize,
        window_s: args.window,
        sets_share: args.sets,
        keep_alive: !args.new_connections,
        seed: args.seed,
        threads,
        keys: args.keys,
    })
}

/// The machine that serves: the agent's, this one where the service's address is its own, else one of which nothing is known.
fn open(args: &ProfileArgs, here: bool) -> Result<Box<dyn Machine>, Failure> {
    if let Some(address) = &args.agent {
        let tls = match (&args.agent_ca, &args.agent_cert, &args.agent_key) {
            (Some(ca), Some(certificate), Some(key)) => Some(ClientTls::load(&TlsFiles {
                ca: ca.clone(),
                certificate: certificate.clone(),
                key: key.clone(),
                revoked: None,
            })?),
            _ => None,
        };
        let options = ClientOptions {
            tls,
            ..ClientOptions::default()
        };
        return Ok(Box::new(node::Node::connect(address.clone(), options)?));
    }
    let roots = Roots::at(&args.sys, &args.proc);
    if !here && roots.is_this_kernel() {
        note(&format!(
            "{} is another machine, and no --agent reports of it: no watts, no cores, no link; throughput and latency alone",
            args.url.as_deref().unwrap_or_default()
        ));
        return Ok(Box::new(Unknown));
    }
    let model = model(args.machine.as_deref(), &roots)?;
    Ok(Box::new(Local::open(roots, args.meter, &model)?))
}

/// What a configuration has of a machine.
#[derive(serde::Deserialize)]
struct MachineFile {
    machine: headroom_physics::Machine,
}

fn model(file: Option<&Path>, roots: &Roots) -> Result<PowerModel, Failure> {
    let cores = headroom_node::cpu::online(roots).map_err(Failure::usage)?.len();
    let Some(file) = file else {
        return PowerModel::default_for(Cores::new(cores as f64)).map_err(Failure::usage);
    };
    let at = || file.display().to_string();
    let text = std::fs::read_to_string(file)
        .with_context(|| {
            format!(
                "--machine {}: give a TOML file with the table [machine], as `headroom up --example` shows it",
                file.display()
            )
        })
        .map_err(Failure::usage)?;
    let read: MachineFile = toml::from_str(&text).with_context(at).map_err(Failure::usage)?;
    let figures = read
        .machine
        .figures(cores)
        .with_context(at)
        .map_err(Failure::usage)?;
    PowerModel::new(figures).with_context(at).map_err(Failure::usage)
}

/// A profile of nothing yet.
fn begin(args: &ProfileArgs, target: &Target, machine: &dyn Machine, plan: Plan) -> Result<Profile, Failure> {
    let facts = machine.facts();
    let own = facts.agent.clone().unwrap_or_else(headroom_record::host);
    let service = target.facts(&plan.sizes_bytes)?;
    let meter = machine.meter();
    let mut profile = Profile {
        provenance: origin::provenance(),
        service,
        client_is_local: machine.has_client(),
        ..Profile::new(args.name.clone().unwrap_or(own), plan)
    };
    profile.machine = facts;
    if let Some(meter) = &meter {
        note(&format!("watts: {} ({}): {}", meter.source, meter.name, meter.of));
    }
    profile.meter = meter;
    Ok(profile)
}

/// The profile that is in the file, where it is of the same measurement; a file that is something else is left alone, `--fresh` or not.
fn go_on(args: &ProfileArgs, new: Profile) -> Result<Profile, Failure> {
    let mut kept = match Profile::read(&args.out) {
        Ok(_) | Err(ProfileError::OtherVersion { .. }) if args.fresh => return Ok(new),
        Ok(mut kept) => {
            let failing = kept.forget_failing();
            if failing > 0 {
                say::note!(
                    "{}: {failing} cells with failures are measured anew",
                    args.out.display()
                );
            }
            kept
        }
        Err(error @ ProfileError::OtherVersion { .. }) => {
            return Err(Failure::usage(anyhow!("{error}, or begin anew in it (--fresh)")));
        }
        Err(error) => {
            return Err(Failure::usage(anyhow!(
                "{error}; to write a new one, give another file (--out)"
            )));
        }
    };
    let link = kept.machine.link.as_ref().map(|link| &link.name);
    let differing = match new.differs_from(&kept) {
        None if args.link.is_some() && link.is_some() && args.link.as_ref() != link => {
            Some("the link".to_owned())
        }
        differing => differing,
    };
    let differing = match (&args.name, differing) {
        (Some(name), None) if *name != kept.name => Some(format!("it is called {}", kept.name)),
        (_, differing) => differing,
    };
    match differing {
        Some(differing) => Err(measure::refusal(&args.out, &differing)),
        None => {
            let windows: usize = kept.cells.iter().map(|cell| cell.windows.len()).sum();
            say::note!(
                "{}: goes on after {windows} windows (--fresh begins anew)",
                args.out.display()
            );
            let origin = &new.provenance;
            kept.notes.push(format!(
                "it went on after {windows} windows: {}, by `{}`",
                origin.date, origin.command
            ));
            Ok(kept)
        }
    }
}

/// Whether the machine has the link that is to be counted.
fn check_link(args: &ProfileArgs, machine: &mut dyn Machine) -> Result<(), Failure> {
    let Some(asked) = &args.link else { return Ok(()) };
    let links = machine.read().links;
    let names: Vec<&str> = links.iter().map(|link| link.name.as_str()).collect();
    match names.contains(&asked.as_str()) {
        true => Ok(()),
        false => Err(Failure::usage(anyhow!(
            "--link {asked}: the machine has {}",
            names.join(", ")
        ))),
    }
}

/// Asks for each size once: where none is answered as asked there is nothing to measure.
fn check_answers(args: &ProfileArgs, target: &Target, sizes: &[u64]) -> Result<(), Failure> {
    let mut objections = Vec::new();
    for size in sizes {
        objections.extend(target.objection(*size)?.map(|objection| (*size, objection)));
    }
    if let Some((_, first)) = objections.first().filter(|_| objections.len() == sizes.len()) {
        return Err(Failure::usage(anyhow!(
            "no size is answered as it is asked for: {first}{}",
            remedy(args)
        )));
    }
    for (size, objection) in objections {
        note(&format!(
            "{objection}: the cells of {} will be marked{}",
            size_text(size),
            remedy(args)
        ));
    }
    Ok(())
}

/// Who keeps the cores busy and fills the link, with a note in the profile where nobody does.
///
/// # Errors
/// One that was named does not answer.
fn far_end(args: &ProfileArgs, here: bool, profile: &mut Profile) -> Result<Option<FarEnd>, Failure> {
    if let Some(address) = args.far_end {
        let reached = std::net::TcpStream::connect_timeout(&address, FAR_END_PATIENCE);
        reached
            .with_context(|| {
                format!(
                    "--far-end {address}: start `headroom profile far-end --listen` there, or leave the two baselines out (--no-baselines)"
                )
            })
            .map_err(Failure::usage)?;
        return Ok(Some(FarEnd::at(address)));
    }
    let mut without = |why: String| {
        let missing = format!("no baselines of busy cores and of a full link: {why}");
        if !profile.notes.contains(&missing) {
            note(&missing);
            profile.notes.push(missing);
        }
        None
    };
    Ok(if args.no_baselines {
        without("--no-baselines".to_owned())
    } else if !(here && profile.client_is_local) {
        without("they need `headroom profile far-end` on the machine that serves (--far-end)".to_owned())
    } else {
        match FarEnd::here() {
            Ok(far) => Some(far),
            Err(error) => without(format!("{error:#}")),
        }
    })
}

fn say_plan(profile: &Profile, args: &ProfileArgs) {
    let sizes: Vec<String> = profile
        .plan
        .sizes_bytes
        .iter()
        .map(|size| size_text(*size))
        .collect();
    note(&format!(
        "{} ({}): {} at {} densities, {MIN_WINDOWS} to {MAX_WINDOWS} windows of {} s each, at most {:.0} s",
        profile.service.url,
        profile.service.software,
        sizes.join(", "),
        profile.plan.densities.len(),
        profile.plan.window_s,
        args.within
    ));
}

/// Says something in lines that a terminal has room for.
fn note(text: &str) {
    let lines = broken(text, "", terminal::columns().unwrap_or(usize::MAX));
    say::line(lines.trim_end().to_owned());
}

/// Files of these sizes, of bytes that no compression makes fewer. The folder is made where there is none, but not the one that it is in:
/// a server's is there, and one that is not is a slip of the pen.
fn write_files(folder: &Path, sizes: &[u64]) -> Result<(), Failure> {
    use rand::{Rng, SeedableRng};
    if let Some(above) = folder.parent().filter(|above| !above.as_os_str().is_empty())
        && !above.exists()
    {
        return Err(Failure::usage(anyhow!(
            "--write-files {}: there is no folder {}: give one that the server serves, or make it first",
            folder.display(),
            above.display()
        )));
    }
    for size in sizes {
        let mut bytes = vec![0; *size as usize];
        rand_chacha::ChaCha8Rng::seed_from_u64(*size).fill_bytes(&mut bytes);
        let file = folder.join(size.to_string());
        std::fs::create_dir_all(folder)
            .and_then(|()| std::fs::write(&file, &bytes))
            .with_context(|| {
                format!(
                    "{}: cannot be written: give a folder that you may write to, or run as its owner",
                    file.display()
                )
            })
            .map_err(Failure::usage)?;
    }
    say::note!("{}: {} files", folder.display(), sizes.len());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Command {
        #[command(flatten)]
        profile: ProfileArgs,
    }

    #[test]
    fn what_is_given_twice_or_would_be_ignored_is_refused_with_the_reason() {
        let why = |protocol, words: &str| {
            let words = format!("profile --url http://web1/ {words}");
            let args = <Command as clap::Parser>::try_parse_from(words.split_whitespace()).unwrap();
            plan(&args.profile, protocol, 1)
                .err()
                .map(|error| error.to_string())
        };
        for (protocol, words, part) in [
            (Protocol::Http, "--sizes 1KB,10KB,1024", "1 KB (1024 bytes) twice"),
            (Protocol::Http, "--densities 50,25,50", "50 % twice"),
            (Protocol::Http, "--sets 0.2", "--sets is of memcached"),
            (Protocol::Http, "--keys 7", "--keys is of memcached"),
            (Protocol::Memcached, "--write-files x", "--write-files is of HTTP"),
            (
                Protocol::Memcached,
                "--new-connections",
                "--new-connections is of HTTP",
            ),
        ] {
            let why = why(protocol, words).unwrap_or_default();
            assert!(why.contains(part), "{words}: {why}");
        }
        assert_eq!(why(Protocol::Http, "--write-files x --new-connections"), None);
        assert_eq!(why(Protocol::Memcached, "--sets 0.2 --keys 7"), None);
    }

    #[test]
    fn files_have_their_sizes_as_names() {
        let folder = tempfile::tempdir().unwrap();
        write_files(folder.path(), &[700, 1024]).unwrap();
        let length = |name: &str| std::fs::metadata(folder.path().join(name)).unwrap().len();
        assert_eq!((length("700"), length("1024")), (700, 1024));
        let none = write_files(&folder.path().join("700"), &[1])
            .unwrap_err()
            .to_string();
        assert!(none.contains("700/1: cannot be written"), "{none}");
        let typo = folder.path().join("htlm/sizes");
        let none = write_files(&typo, &[1]).unwrap_err().to_string();
        assert!(none.contains("there is no folder") && !typo.exists(), "{none}");
    }
}
