//! The arguments of `headroom service`.

use clap::{Args, Subcommand};
use std::net::SocketAddr;

/// `headroom service`.
#[derive(Debug, Args)]
pub struct ServiceArgs {
    /// Which.
    #[command(subcommand)]
    pub service: ServiceCommand,
}

/// The built-in services.
#[derive(Debug, Subcommand)]
pub enum ServiceCommand {
    /// A small wiki: renders Markdown pages, CPU-bound, page cost spread over an order of magnitude.
    Wiki {
        /// Address to serve on; port 0 takes a free one, which is printed.
        #[arg(long, default_value = "127.0.0.1:8081", value_name = "ADDR")]
        listen: SocketAddr,
        /// Threads that render.
        #[arg(long, default_value_t = 16, value_name = "N")]
        workers: usize,
        /// Mean CPU time of a page, in milliseconds.
        #[arg(long, default_value_t = 4.0, value_name = "MS")]
        page_cpu_ms: f64,
        /// Stop when standard input is closed: so a service never outlives the program that started it.
        #[arg(long)]
        until_input_closes: bool,
    },
}
