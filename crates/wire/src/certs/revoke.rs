//! Certificates that are good no more before they end: the list of what was issued, and the revocation list.

use super::{Authority, CertError, Role, Written, files, inspect_dir, is_there};
use rcgen::{
    CertificateRevocationListParams, KeyIdMethod, RevocationReason, RevokedCertParams, SerialNumber,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};
use time::OffsetDateTime;
use x509_parser::prelude::{CertificateRevocationList, FromDer, X509Certificate};

/// A list is good for so long; nobody refuses an older one, which is better than none.
const LIST_LIFE: Duration = Duration::from_secs(3650 * 86_400);
/// The most certificates that one list revokes.
const MAX_REVOKED: usize = 10_000;

impl Authority {
    fn issued_file(&self) -> PathBuf {
        self.dir.join("issued")
    }

    /// Notes a certificate: its serial number, the stem of its files, its name.
    pub(super) fn note_issued(
        &self,
        stem: &str,
        subject: &str,
        der: &CertificateDer<'_>,
    ) -> Result<(), CertError> {
        let (_, parsed) = X509Certificate::from_der(der).map_err(|error| {
            let why = format!("what was made cannot be read: {error}");
            CertError::unusable(&self.dir.join(format!("{stem}.crt")), why)
        })?;
        let line = format!("{} {stem} {subject}\n", hex(parsed.raw_serial()));
        files::append(&self.issued_file(), &line)
    }

    /// Revokes every certificate of a name that was issued until now (`web1`, `controller`), or of a file's stem
    /// (`node-web1`): a stolen one that was renewed since is among them. Writes `ca.crl` anew; one that is issued to this
    /// name afterwards is good. How many were revoked by this, and the file.
    ///
    /// # Errors
    /// [`CertError`]: nobody has that name, or a file that cannot be read or written. Nothing is changed then.
    pub fn revoke(&self, name: &str) -> Result<(usize, Vec<Written>), CertError> {
        let mut serials = BTreeSet::new();
        let issued = self.issued_file();
        if is_there(&issued) {
            for (number, line) in (1..).zip(files::read(&issued)?.lines()) {
                let mut words = line.splitn(3, ' ');
                let (Some(serial), Some(stem), Some(subject)) = (words.next(), words.next(), words.next())
                else {
                    return Err(CertError::unusable(
                        &issued,
                        format!("line {number} is not what was written: {line:?}"),
                    ));
                };
                if name == subject || name == stem {
                    let serial = unhex(serial).ok_or_else(|| {
                        CertError::unusable(&issued, format!("line {number} has no serial number"))
                    })?;
                    serials.insert(serial);
                }
            }
        }
        for certificate in inspect_dir(&self.dir)? {
            let stem = certificate.path.file_stem().and_then(|stem| stem.to_str());
            let ours = certificate.issuer == self.certificate.subject && certificate.role != Role::Authority;
            if ours && (certificate.subject == name || stem == Some(name)) {
                serials.insert(certificate.serial);
            }
        }
        if serials.is_empty() {
            return Err(CertError::BadName {
                name: name.into(),
                what: "name of a certificate that was issued here",
                expected: "`headroom certs show` tells the names; give --dir for another directory",
            });
        }
        let (number, mut revoked) = self.revoked()?;
        let before = revoked.len();
        let now = OffsetDateTime::now_utc();
        for serial in serials {
            if !revoked.iter().any(|one| one.serial_number.as_ref() == serial) {
                revoked.push(RevokedCertParams {
                    serial_number: SerialNumber::from_slice(&serial),
                    revocation_time: now,
                    reason_code: Some(RevocationReason::Unspecified),
                    invalidity_date: None,
                });
            }
        }
        let added = revoked.len() - before;
        let crl = self.list_file();
        if revoked.len() > MAX_REVOKED {
            return Err(CertError::unusable(
                &crl,
                format!("it would have more than {MAX_REVOKED} entries: make a new authority"),
            ));
        }
        let list = CertificateRevocationListParams {
            this_update: now - super::SKEW,
            next_update: OffsetDateTime::from(SystemTime::now() + LIST_LIFE),
            crl_number: SerialNumber::from(number + 1),
            issuing_distribution_point: None,
            revoked_certs: revoked,
            key_identifier_method: KeyIdMethod::Sha256,
        };
        files::replace(&crl, &list.signed_by(&self.issuer)?.pem()?)?;
        let purpose = "tells which certificates are good no more. Copy it to every node and to the controller (their setting \
                       `revoked`); they read it again by themselves"
            .into();
        let written = Written {
            path: crl,
            purpose,
            secret: false,
        };
        Ok((added, vec![written]))
    }

    fn list_file(&self) -> PathBuf {
        self.dir.join("ca.crl")
    }

    /// The number of the list that is there, and what it revokes; 0 and nothing where there is none.
    fn revoked(&self) -> Result<(u64, Vec<RevokedCertParams>), CertError> {
        let path = self.list_file();
        if !is_there(&path) {
            return Ok((0, Vec::new()));
        }
        let text = files::read(&path)?;
        let der = CertificateRevocationListDer::from_pem_slice(text.as_bytes())
            .map_err(|error| CertError::unusable(&path, format!("it holds no revocation list: {error}")))?;
        let (_, list) = CertificateRevocationList::from_der(&der).map_err(|error| {
            CertError::unusable(&path, format!("its revocation list cannot be read: {error}"))
        })?;
        let number = list
            .crl_number()
            .and_then(|number| number.to_u64_digits().first().copied());
        let entries = list.iter_revoked_certificates().take(MAX_REVOKED).map(|one| {
            let revoked = OffsetDateTime::from_unix_timestamp(one.revocation_date.timestamp());
            Ok(RevokedCertParams {
                serial_number: SerialNumber::from_slice(one.raw_serial()),
                revocation_time: revoked.map_err(|error| CertError::unusable(&path, error.to_string()))?,
                reason_code: Some(RevocationReason::Unspecified),
                invalidity_date: None,
            })
        });
        Ok((number.unwrap_or(0), entries.collect::<Result<_, CertError>>()?))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    if text.is_empty() || !text.len().is_multiple_of(2) || !text.is_ascii() {
        return None;
    }
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn serial_numbers_survive_their_text(serial in proptest::collection::vec(any::<u8>(), 1..21)) {
            prop_assert_eq!(unhex(&hex(&serial)), Some(serial));
        }
    }

    #[test]
    fn what_is_no_serial_number_is_none() {
        for text in ["", "1", "zz", "0+", "äö"] {
            assert_eq!(unhex(text), None, "{text:?}");
        }
    }
}
