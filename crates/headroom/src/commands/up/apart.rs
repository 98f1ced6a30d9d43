//! What several services of one process cannot share.

use crate::config::Config;
use headroom_console::Document;
use headroom_console::Failure;
use std::net::SocketAddr;

/// Refuses configurations of which two want one address.
///
/// # Errors
/// The second of the two, by its line.
pub(super) fn apart(configs: &[(Config, Document)]) -> Result<(), Failure> {
    let mut taken: Vec<(SocketAddr, &Document)> = Vec::new();
    for (config, document) in configs {
        let gateway = config.gateway.iter().flat_map(|gateway| {
            let tls = gateway.tls.iter().map(|tls| (tls.listen, "gateway.tls"));
            let clear = gateway.listen.iter().map(|listen| (*listen, "gateway.listen"));
            clear.chain(tls)
        });
        let admin = config.admin.listen.map(|listen| (listen, "admin.listen"));
        for (address, key) in gateway.chain(admin) {
            // The kernel chooses another for each.
            if address.port() == 0 {
                continue;
            }
            let same = |other: &SocketAddr| {
                let any = other.ip().is_unspecified() || address.ip().is_unspecified();
                other.port() == address.port() && (any || other.ip() == address.ip())
            };
            if let Some((other, of)) = taken.iter().find(|(other, _)| same(other)) {
                let why = format!(
                    "{address} is listened on by {} already, as {other}: give each service a port of its own",
                    of.file().display()
                );
                return Err(document.error(key, why).into());
            }
            taken.push((address, document));
        }
    }
    Ok(())
}
