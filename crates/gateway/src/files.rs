//! What is wrong with a file, in words: PEM files of certificates and keys, and others.

use std::io;

use rustls::pki_types::pem::Error;

/// Why a file cannot be read, as the end of a sentence.
pub(crate) fn unreadable(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "there is no such file".to_owned(),
        io::ErrorKind::IsADirectory => "it is a folder".to_owned(),
        io::ErrorKind::PermissionDenied => "this user may not read it".to_owned(),
        _ => error.to_string(),
    }
}

/// Why nothing of a kind could be read from a PEM file.
pub(crate) fn not_pem(error: &Error, kind: &str) -> String {
    match error {
        Error::Io(error) => format!("cannot be read: {}", unreadable(error)),
        Error::NoItemsFound => format!(
            "it holds no {kind} in PEM, or an encrypted one, for which nobody could give a passphrase here (`openssl pkey -in FILE -out \
             NEW` decrypts a key)"
        ),
        // What the headers of an encrypted key of the old form (RFC 1421) look like to who expects base64.
        Error::Base64Decode(_) if kind.contains("key") => format!(
            "not a {kind} in PEM: {error}; where it is encrypted, `openssl pkey -in FILE -out NEW` decrypts it, for nobody could give a \
             passphrase here"
        ),
        error => format!("not a {kind} in PEM: {error}"),
    }
}

/// Why a chain and a private key are no pair.
pub(crate) fn no_pair(error: &rustls::Error, certificate: &std::path::Path) -> String {
    let certificate = certificate.display();
    match error {
        rustls::Error::InconsistentKeys(_) => format!(
            "it does not fit the certificate in {certificate}: they are of two different keys; give the key that the certificate was \
             issued for"
        ),
        error => {
            let why = certificate_objection(error);
            format!("it cannot be used with the certificate in {certificate}: {why}")
        }
    }
}

/// What is wrong with a certificate, in words where rustls has none.
fn certificate_objection(error: &rustls::Error) -> String {
    // What webpki says passes through rustls as an error without a type.
    let said = error.to_string();
    match said.contains("UnsupportedCertVersion") {
        true => "it is an X.509 certificate of version 1, and version 3 is needed: issue it with an extension, such as subjectAltName"
            .to_owned(),
        false => said,
    }
}

/// Why a handshake with a client has failed, where that was its certificate.
pub(crate) fn refused_certificate(error: &io::Error) -> Option<String> {
    match error.get_ref()?.downcast_ref::<rustls::Error>()? {
        rustls::Error::NoCertificatesPresented => {
            Some("the client has shown no certificate, and must (`tls.require`)".to_owned())
        }
        error @ rustls::Error::InvalidCertificate(_) => Some(format!(
            "the client's certificate was refused: {}",
            certificate_objection(error)
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};

    #[test]
    fn what_is_wrong_with_a_file_is_said_in_words() {
        let folder = tempfile::tempdir().unwrap();
        let key =
            |path: &std::path::Path| not_pem(&PrivateKeyDer::from_pem_file(path).unwrap_err(), "private key");
        assert_eq!(
            key(&folder.path().join("none")),
            "cannot be read: there is no such file"
        );
        assert_eq!(key(folder.path()), "cannot be read: it is a folder");
        let empty = folder.path().join("empty");
        std::fs::write(&empty, "").unwrap();
        assert!(key(&empty).starts_with("it holds no private key in PEM, or an encrypted one"));
        std::fs::write(
            &empty,
            "-----BEGIN CERTIFICATE-----\n*\n-----END CERTIFICATE-----\n",
        )
        .unwrap();
        let error = CertificateDer::from_pem_file(&empty).unwrap_err();
        let said = not_pem(&error, "certificate");
        assert!(said.starts_with("not a certificate in PEM: "), "{said}");
    }
}
