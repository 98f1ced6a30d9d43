//! Whether a URL is the auction site, before visitors are sent there.

use anyhow::anyhow;
use headroom_client::ClientError;
use headroom_console::Failure;
use headroom_workload::auction::{Page, Place};
use http::Uri;
use std::time::Duration;

/// How long the home page is waited for.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest page of the site is much shorter.
const MAX_BYTES: usize = 1 << 20;

/// Asks for the site's home page. Another page than that is refused, for no page of a visitor would be answered right; where no page
/// comes the service may be starting, or be what is to be overloaded, and the load itself will say so.
pub(super) fn is_auction(url: &str) -> Result<(), Failure> {
    let home = Place::of(Page::Home);
    let uri: Uri = url
        .parse()
        .map_err(|error| Failure::Usage(anyhow!("--url {url}: {error}; write http://127.0.0.1:8082/")))?;
    let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
        // What no load can be sent to is refused with it.
        return Ok(());
    };
    let page = format!("{scheme}://{authority}{}", home.target());
    let found = match headroom_client::get(&page, PATIENCE, MAX_BYTES) {
        Ok(body) if String::from_utf8_lossy(&body).contains(&home.marker()) => return Ok(()),
        Ok(_) => "its home page is another".to_owned(),
        Err(ClientError::Status(status)) if status.is_client_error() || status.is_redirection() => {
            format!("it answers \"{status}\" to GET {}", home.target())
        }
        Err(ClientError::Body { .. }) => "its home page is longer than 1 MiB".to_owned(),
        Err(_) => return Ok(()),
    };
    Err(Failure::Usage(anyhow!(
        "--url {url} is not the auction site that --auction visits: {found}. Start it, as `headroom service auction --listen \
         127.0.0.1:8082`, and give --url http://127.0.0.1:8082/, or a gateway's in front of it; for another site leave --auction out"
    )))
}
