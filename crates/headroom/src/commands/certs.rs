//! `headroom certs`: the certificates that agents, gateways and the controller show each other.

use clap::{Args, Subcommand};
use headroom_console::Failure;
use headroom_console::say;
use headroom_wire::certs::{Authority, Certificate, Role, Validity, Written, inspect, inspect_dir};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// `headroom certs`.
#[derive(Debug, Args)]
pub struct CertsArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: CertsCommand,
}

/// Where certificates are.
#[derive(Debug, Args)]
pub struct CertsDir {
    /// Folder of the authority and of what it signed.
    #[arg(long, default_value = "certs", value_name = "DIR")]
    pub dir: PathBuf,
}

/// What can be done with certificates. None of it overwrites a file, save `renew` and `revoke`.
#[derive(Debug, Subcommand)]
pub enum CertsCommand {
    /// Make an authority: ca.crt and ca.key.
    Create {
        /// The authority.
        #[command(flatten)]
        dir: CertsDir,
        /// How long it is valid.
        #[arg(long, default_value_t = headroom_wire::certs::AUTHORITY_DAYS, value_name = "DAYS")]
        days: u32,
    },
    /// Make the certificate of one node's agent, or of one gateway's control port.
    IssueNode {
        /// The authority.
        #[command(flatten)]
        dir: CertsDir,
        /// The node's name, as the controller reaches it.
        #[arg(value_name = "NAME")]
        name: String,
        /// Other DNS names and IP addresses under which the controller reaches it. May be given more than once.
        #[arg(long, value_name = "NAME|IP", value_delimiter = ',')]
        also: Vec<String>,
        /// How long it is valid.
        #[arg(long, default_value_t = headroom_wire::certs::CERTIFICATE_DAYS, value_name = "DAYS")]
        days: u32,
    },
    /// Make the controller's certificate, with which every node can be commanded.
    IssueController {
        /// The authority.
        #[command(flatten)]
        dir: CertsDir,
        /// The name of one of many controllers; the files are then called controller-NAME.
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
        /// How long it is valid.
        #[arg(long, default_value_t = headroom_wire::certs::CERTIFICATE_DAYS, value_name = "DAYS")]
        days: u32,
    },
    /// Make the certificate of one that may observe every node and command none.
    IssueReader {
        /// The authority.
        #[command(flatten)]
        dir: CertsDir,
        /// The reader's name.
        #[arg(value_name = "NAME")]
        name: String,
        /// How long it is valid.
        #[arg(long, default_value_t = headroom_wire::certs::CERTIFICATE_DAYS, value_name = "DAYS")]
        days: u32,
    },
    /// Revoke every certificate of a name that was issued until now: writes ca.crl, which nodes and controllers name as
    /// `revoked`.
    Revoke {
        /// The authority.
        #[command(flatten)]
        dir: CertsDir,
        /// The name, as `headroom certs show` prints it, or the stem of its files (node-NAME).
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// Replace a certificate by a new one of the same names and role, with a new key.
    Renew {
        /// The certificate, in the authority's folder.
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// How long the new one is valid.
        #[arg(long, default_value_t = headroom_wire::certs::CERTIFICATE_DAYS, value_name = "DAYS")]
        days: u32,
    },
    /// Say whose each certificate is and for how many more days it is valid.
    Show {
        /// The authority.
        #[command(flatten)]
        dir: CertsDir,
        /// These files instead of the folder's.
        #[arg(value_name = "FILE")]
        files: Vec<PathBuf>,
        /// Say that it ends soon where fewer days than this are left.
        #[arg(long, default_value_t = 30, value_name = "DAYS")]
        soon: u32,
    },
}

/// Makes, renews or shows certificates, and says of each file what it is for.
///
/// # Errors
/// A file that is there already, is missing, or is not what it should be; a name or a validity that is none. Nothing was
/// written then.
pub fn run(args: &CertsArgs) -> Result<(), Failure> {
    match &args.command {
        CertsCommand::Create { dir, days } => {
            let (authority, written) =
                Authority::create(&dir.dir, validity(*days)?).map_err(Failure::usage)?;
            tell(&written)?;
            say::result(format_args!(
                "made {:?}; next: `headroom certs issue-node NAME` for each node, `headroom certs issue-controller` once",
                authority.certificate().subject
            ))?;
        }
        CertsCommand::IssueNode {
            dir,
            name,
            also,
            days,
        } => {
            let written = open(&dir.dir)?.issue_node(name, also, validity(*days)?);
            tell(&written.map_err(Failure::usage)?)?;
        }
        CertsCommand::IssueController { dir, name, days } => {
            let authority = open(&dir.dir)?;
            let written = match name {
                Some(name) => authority.issue_controller_named(name, validity(*days)?),
                None => authority.issue_controller(validity(*days)?),
            };
            tell(&written.map_err(Failure::usage)?)?;
        }
        CertsCommand::IssueReader { dir, name, days } => {
            let written = open(&dir.dir)?.issue_reader(name, validity(*days)?);
            tell(&written.map_err(Failure::usage)?)?;
        }
        CertsCommand::Renew { file, days } => {
            let dir = file.parent().filter(|dir| !dir.as_os_str().is_empty());
            let dir = dir.unwrap_or(Path::new("."));
            let file = dir.join(file.file_name().unwrap_or_default());
            let written = open(dir)?.renew(&file, validity(*days)?);
            tell(&written.map_err(Failure::usage)?)?;
            say::result(
                "what shows it reads it again within 10 s; the old one stays good until it ends or `headroom certs revoke`",
            )?;
        }
        CertsCommand::Revoke { dir, name } => {
            let (revoked, written) = open(&dir.dir)?.revoke(name).map_err(Failure::usage)?;
            tell(&written)?;
            say::result(format_args!("revoked {revoked} certificates of {name:?}"))?;
        }
        CertsCommand::Show { dir, files, soon } => {
            let found = if files.is_empty() {
                inspect_dir(&dir.dir)
            } else {
                files.iter().map(|file| inspect(file)).collect()
            };
            show(&found.map_err(Failure::usage)?, *soon)?;
        }
    }
    Ok(())
}

fn open(dir: &Path) -> Result<Authority, Failure> {
    Authority::open(dir).map_err(|error| {
        let hint = "`headroom certs create` makes an authority; --dir names where it is";
        Failure::usage(anyhow::Error::from(error).context(hint))
    })
}

fn validity(days: u32) -> Result<Validity, Failure> {
    Validity::days(days).map_err(Failure::usage)
}

fn tell(written: &[Written]) -> Result<(), Failure> {
    written.iter().try_for_each(say::result)
}

fn show(certificates: &[Certificate], soon_days: u32) -> Result<(), Failure> {
    if certificates.is_empty() {
        say::result("no certificate is there")?;
    }
    for certificate in certificates {
        let role = match certificate.role {
            Role::Authority => "authority",
            Role::Node => "node",
            Role::Controller => "controller",
            Role::Reader => "reader",
            Role::Client => "client without a role",
            Role::Other => "none of ours",
        };
        let names = match certificate.names.as_slice() {
            [] => String::new(),
            names => format!(", good for {}", names.join(", ")),
        };
        say::result(format_args!(
            "{}: {role} {:?}, signed by {:?}{names}: {}",
            certificate.path.display(),
            certificate.subject,
            certificate.issuer,
            certificate.standing(SystemTime::now(), soon_days)
        ))?;
    }
    Ok(())
}
