//! The arguments of `headroom certs`.

use clap::{Args, Subcommand};
use std::path::PathBuf;

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
        /// Where.
        #[command(flatten)]
        dir: CertsDir,
        /// How long it is valid.
        #[arg(long, default_value_t = headroom_wire::certs::AUTHORITY_DAYS, value_name = "DAYS")]
        days: u32,
    },
    /// Make the certificate of one node's agent, or of one gateway's control port.
    IssueNode {
        /// Where.
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
        /// Where.
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
        /// Where.
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
        /// Where.
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
        /// Where.
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
