//! How a Prometheus knows who asks: by a token or by a name and password, and in TLS by a client's certificate. What is secret
//! comes from files, and stands in no message.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use headroom_client::{authorities, tls};
use http::HeaderValue;
use rustls::ClientConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The longest secret that is read, bytes.
const SECRET_MAX: u64 = 16 << 10;

/// What a request is sent with, read from its file for each period: what is written there anew holds from the next on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credentials {
    /// `Authorization: Bearer` (RFC 6750, section 2.1).
    Token {
        /// The file that has the token alone.
        file: PathBuf,
    },
    /// `Authorization: Basic` (RFC 7617).
    Password {
        /// The name, without a colon.
        user: String,
        /// The file that has the password alone.
        file: PathBuf,
    },
}

impl Credentials {
    /// The file that is secret.
    pub fn file(&self) -> &Path {
        match self {
            Self::Token { file } | Self::Password { file, .. } => file,
        }
    }

    /// The value of `Authorization`, marked as sensitive.
    ///
    /// # Errors
    /// What is wrong with the file, without what is in it.
    pub(super) fn header(&self) -> Result<HeaderValue, String> {
        let secret = secret(self.file())?;
        let text = match self {
            Self::Token { .. } => format!("Bearer {secret}"),
            Self::Password { user, .. } => format!("Basic {}", STANDARD.encode(format!("{user}:{secret}"))),
        };
        let mut header = HeaderValue::from_str(&text).map_err(|_| {
            let file = self.file().display();
            format!("{file}: it has characters that no token has; write the token alone, on one line")
        })?;
        header.set_sensitive(true);
        Ok(header)
    }

    /// What has the server known who asks, where it refuses.
    pub(super) fn refused(credentials: Option<&Self>) -> String {
        match credentials {
            None => "it wants to know who asks: give token_file, or user and password_file".to_owned(),
            Some(Self::Token { file }) => format!(
                "it refuses the token in {}: write a valid one there",
                file.display()
            ),
            Some(Self::Password { user, file }) => format!(
                "it refuses {user:?} with the password in {}: correct user, or write the right password there",
                file.display()
            ),
        }
    }
}

/// What a file has, without the line end.
fn secret(path: &Path) -> Result<String, String> {
    let name = path.display();
    let cannot = |error| format!("{name} cannot be read: {error}; may this user read it?");
    let file = File::open(path).map_err(cannot)?;
    let mut bytes = Vec::new();
    file.take(SECRET_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(cannot)?;
    if bytes.len() as u64 > SECRET_MAX {
        return Err(format!(
            "{name} is longer than 16 KiB: it must have the secret alone"
        ));
    }
    let text =
        String::from_utf8(bytes).map_err(|_| format!("{name} is no text: it must have the secret alone"))?;
    let text = text.trim_end_matches(['\n', '\r']);
    match text {
        "" => Err(format!("{name} is empty: write the secret there")),
        _ if text.contains(['\n', '\r']) => {
            Err(format!("{name} has several lines: it must have the secret alone"))
        }
        _ => Ok(text.to_owned()),
    }
}

/// How a server of `https` is known, and how this client is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificate authorities (PEM); `None` for the system's.
    pub ca_file: Option<PathBuf>,
    /// A client's certificate, with those between it and its authority (PEM), and its key (PEM).
    pub client: Option<(PathBuf, PathBuf)>,
    /// The name that the server's certificate must have, where that is not the address's.
    pub server_name: Option<String>,
}

impl TlsFiles {
    /// Files or a name are given.
    pub(super) fn is_any(&self) -> bool {
        *self != Self::default()
    }

    /// The files, read.
    ///
    /// # Errors
    /// A file, and what is wrong with it.
    pub(super) fn read(&self) -> Result<ClientConfig, (PathBuf, String)> {
        let roots = authorities(self.ca_file.as_deref()).map_err(|(path, what)| {
            let what = format!("there are no certificate authorities: {what}; name a PEM file");
            (path.to_owned(), what)
        })?;
        let config = tls().with_root_certificates(roots);
        let Some((certificate, key)) = &self.client else {
            return Ok(config.with_no_client_auth());
        };
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(certificate)
            .and_then(Iterator::collect)
            .map_err(|error| {
                (
                    certificate.clone(),
                    format!("it has no certificate: {error}; name a PEM file"),
                )
            })?;
        if chain.is_empty() {
            return Err((
                certificate.clone(),
                "it has no certificate: name a PEM file".to_owned(),
            ));
        }
        let private = PrivateKeyDer::from_pem_file(key).map_err(|error| {
            (
                key.clone(),
                format!("it has no private key: {error}; name a PEM file"),
            )
        })?;
        config.with_client_auth_cert(chain, private).map_err(|error| {
            let what = format!("it does not go with {}: {error}", certificate.display());
            (key.clone(), what)
        })
    }

    /// The name that the server's certificate must have.
    pub(super) fn name(&self) -> Result<Option<ServerName<'static>>, String> {
        let name = self.server_name.clone().map(ServerName::try_from).transpose();
        name.map_err(|error| error.to_string())
    }
}

/// A warning where everybody on this machine can read a file that is secret.
pub(super) fn readable_by_all(path: &Path) -> Option<String> {
    let mode = path.metadata().ok()?.permissions().mode();
    (mode & 0o004 != 0).then(|| {
        let path = path.display();
        format!("warning: everybody on this machine can read the secret in {path}: chmod o= {path}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(text: &[u8]) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("secret");
        std::fs::write(&file, text).unwrap();
        (folder, file)
    }

    #[test]
    fn the_header_is_as_the_rfcs_have_it() {
        let (_folder, file) = written(b"mF_9.B5f-4.1JqM\n");
        let token = Credentials::Token { file };
        assert_eq!(token.header().unwrap(), "Bearer mF_9.B5f-4.1JqM");
        // RFC 7617, section 2.
        let (_folder, file) = written(b"open sesame");
        let user = "Aladdin".to_owned();
        let header = Credentials::Password { user, file }.header().unwrap();
        assert_eq!(header, "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
        assert!(header.is_sensitive() && !format!("{header:?}").contains("QWx"));
    }

    #[test]
    fn what_is_no_secret_is_refused_without_being_shown() {
        for (text, word) in [
            (&b""[..], "empty"),
            (b"\n", "empty"),
            (b"hidden\nhidden2", "several lines"),
            (b"hidden\x01", "characters"),
            (b"hidden\xff", "no text"),
            (&[b'h'; 20_000], "16 KiB"),
        ] {
            let (_folder, file) = written(text);
            let error = Credentials::Token { file: file.clone() }.header().unwrap_err();
            assert!(
                error.contains(word) && error.contains(&*file.to_string_lossy()),
                "{error}"
            );
            assert!(!error.contains("hidden"), "{error}");
        }
        let file = PathBuf::from("/nonexistent/token");
        let error = Credentials::Token { file }.header().unwrap_err();
        assert!(error.contains("/nonexistent/token"), "{error}");
    }

    #[test]
    fn a_secret_that_everybody_can_read_is_warned_of() {
        let (_folder, file) = written(b"x");
        let set = |mode| std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        set(0o640);
        assert_eq!(readable_by_all(&file), None);
        set(0o644);
        assert!(readable_by_all(&file).unwrap().contains("chmod"));
    }
}
