//! Verification of the form of an upload.
//!
//! In: form fields, the grant signer, and the time in milliseconds since 1970. Out: a
//! [`VerifiedUpload`] when the file begins; then [`FileCheck`] checks each piece of the file and
//! its end. Checks run in the order of the source, and the first failure is reported. The policy is
//! parsed after its signature has been verified. Errors never show field values, which may be
//! secrets. Source: `docs/spec/cloud-protocol.md` 4.3; decision I-06.

use std::fmt;

use crate::proto::api_error::ApiError;
use crate::proto::build::Org;
use crate::proto::grant::{self, BUCKET, UploadClaims};
use crate::proto::policy::Policy;
use crate::proto::sign::{GrantSigner, STORE};
use edge_runner_proto::server::multipart::MultipartError;
use edge_runner_proto::uuid::Uuid;

/// 412: the request is not a multipart form (step 1).
pub fn no_form() -> ApiError {
    ApiError::new(
        412,
        "PreconditionFailed",
        "an upload is a POST of \"multipart/form-data\" with a boundary of 1 to 70 characters",
    )
}

/// 400: the form is broken.
pub fn malformed(reason: &'static str) -> ApiError {
    ApiError::new(400, "MalformedPOSTRequest", reason)
}

/// 400: the file exceeds the limit of its policy or of the service.
pub fn too_large(size_max: u64) -> ApiError {
    ApiError::new(
        400,
        "EntityTooLarge",
        format!("the file is larger than the {size_max} bytes that are allowed"),
    )
}

fn invalid_argument(reason: impl Into<String>) -> ApiError {
    ApiError::new(400, "InvalidArgument", reason.into())
}

/// 403: the form is not authorized.
pub fn denied(reason: impl Into<String>) -> ApiError {
    ApiError::new(403, "AccessDenied", reason.into())
}

/// 403: the key that asked for the grant is not valid any more.
pub fn revoked() -> ApiError {
    denied("the key that asked for this grant was revoked; ask for another grant with one that was not")
}

fn expired() -> ApiError {
    denied("Policy expired: the upload has to end before \"expiresAt\"; ask for another grant")
}

impl From<MultipartError> for ApiError {
    fn from(broken: MultipartError) -> ApiError {
        match broken {
            MultipartError::Malformed(reason) => malformed(reason),
            MultipartError::FieldsTooLong => ApiError::new(
                400,
                "MaxPostPreDataLengthExceeded",
                "the fields before the file are longer than 20000 bytes; send the grant's fields and then \"file\"",
            ),
            MultipartError::Files(reason) => ApiError::new(400, "IncorrectNumberOfFilesInPostRequest", reason),
        }
    }
}

/// The fields of a form.
#[derive(Clone, Default)]
pub struct UploadForm {
    fields: Vec<(String, String)>,
}

impl fmt::Debug for UploadForm {
    /// Omits the fields, which authorize the upload.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Form")
            .field("fields", &self.fields.len())
            .finish_non_exhaustive()
    }
}

/// What a verified form authorizes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedUpload {
    pub org: Org,
    pub upload: Uuid,
    /// Milliseconds since 1970 at which the upload is too late.
    pub expires_ms: u64,
    /// Smallest and largest size of the file, in bytes.
    pub size: (u64, u64),
}

impl UploadForm {
    /// Adds a field.
    ///
    /// # Errors
    /// 400 for a duplicate (step 2).
    pub fn add(&mut self, name: &str, value: &[u8]) -> Result<(), ApiError> {
        if self.get(name).is_some() {
            return Err(invalid_argument(format!(
                "the form has the field \"{}\" twice",
                name.escape_default()
            )));
        }
        // Invalid UTF-8 never equals a value of a policy.
        let value = String::from_utf8_lossy(value).into_owned();
        self.fields.push((name.to_owned(), value));
        Ok(())
    }

    fn get(&self, name: &str) -> Option<&str> {
        let mut fields = self.fields.iter();
        fields.find(|(field, _)| field == name).map(|(_, value)| value.as_str())
    }

    /// Returns a required field (step 4).
    fn required(&self, name: &str) -> Result<&str, ApiError> {
        self.get(name).ok_or_else(|| {
            denied(format!(
                "authentication error: the form has no field \"{name}\" before its file; names are case-sensitive"
            ))
        })
    }

    /// Verifies the fields when the file begins (steps 4 to 8).
    ///
    /// # Errors
    /// 400 or 403, as the source lists.
    pub fn verify(&self, signing: &GrantSigner, now_ms: u64) -> Result<VerifiedUpload, ApiError> {
        let key = self.required("key")?;
        let bucket = self.required("bucket")?;
        let policy = self.required("Policy")?;
        let algorithm = self.required("X-Store-Algorithm")?;
        let credential = self.required("X-Store-Credential")?;
        let date = self.required("X-Store-Date")?;
        let token = self.required("X-Store-Security-Token")?;
        let signature = self.required("X-Store-Signature")?;

        if algorithm != STORE.algorithm {
            return Err(invalid_argument(format!(
                "X-Store-Algorithm is not {}",
                STORE.algorithm
            )));
        }
        let scope = CredentialScope::parse(credential, date)?;
        let pair = signing.find(scope.id, now_ms).ok_or_else(|| {
            ApiError::new(
                403,
                "InvalidAccessKeyId",
                "the key of X-Store-Credential does not sign grants now: ask for another grant; the keys change each day, by the \
                 clock of this service",
            )
        })?;
        if !STORE.verifies(
            &pair.secret,
            scope.day,
            scope.region,
            policy.as_bytes(),
            signature.as_bytes(),
        ) {
            return Err(ApiError::new(
                403,
                "SignatureDoesNotMatch",
                "X-Store-Signature is not that of the policy; send every field as the grant has it",
            ));
        }

        let policy = Policy::parse(policy.as_bytes())
            .map_err(|invalid| ApiError::new(400, "InvalidPolicyDocument", invalid.to_string()))?;
        if policy.expires_ms <= now_ms {
            return Err(expired());
        }
        let size = policy
            .check(&self.fields)
            .map_err(|violation| denied(violation.to_string()))?;

        let claims = UploadClaims::verify(token, &pair.secret)
            .ok_or_else(|| denied("X-Store-Security-Token is not one of this service"))?;
        if claims.exp <= now_ms {
            return Err(denied("X-Store-Security-Token is expired; ask for another grant"));
        }
        let named = Org::parse(&claims.org).zip(Uuid::parse(&claims.upload_id));
        match named {
            Some((org, upload)) if bucket == BUCKET && key == grant::archive_key(&org, upload) => Ok(VerifiedUpload {
                org,
                upload,
                expires_ms: policy.expires_ms.min(claims.exp),
                size,
            }),
            _ => Err(denied("bucket or key is not what X-Store-Security-Token was made for")),
        }
    }
}

/// The parts of `X-Store-Credential` (step 5).
struct CredentialScope<'a> {
    id: &'a str,
    day: &'a str,
    region: &'a str,
}

impl<'a> CredentialScope<'a> {
    fn parse(credential: &'a str, date: &str) -> Result<CredentialScope<'a>, ApiError> {
        let date = date.as_bytes();
        let is_date = date.len() == 16
            && date.iter().enumerate().all(|(at, byte)| match at {
                8 => *byte == b'T',
                15 => *byte == b'Z',
                _ => byte.is_ascii_digit(),
            });
        if !is_date {
            return Err(invalid_argument("X-Store-Date is not like 20261121T120000Z"));
        }
        let parts: Vec<&str> = credential.splitn(6, '/').collect();
        match parts[..] {
            [id, day, region, service, terminator]
                if !id.is_empty()
                    && day.as_bytes() == &date[..8]
                    && Org::parse(region).is_some()
                    && service == STORE.service
                    && terminator == STORE.terminator =>
            {
                Ok(CredentialScope { id, day, region })
            }
            _ => Err(invalid_argument(format!(
                "X-Store-Credential is not like KEY/DAY/REGION/{}/{} with the day of X-Store-Date",
                STORE.service, STORE.terminator
            ))),
        }
    }
}

/// Checks the content of the file (steps 9 and 10).
#[derive(Debug)]
pub struct FileCheck {
    size: (u64, u64),
    expires_ms: u64,
    bytes: u64,
    /// The first two bytes, as far as received.
    magic: [u8; 2],
}

/// The magic number of gzip.
const GZIP: [u8; 2] = [0x1f, 0x8b];

impl FileCheck {
    /// Starts a check with the limits of the form. `size_max` caps the limit of the policy.
    pub fn new(verified: &VerifiedUpload, size_max: u64) -> Self {
        FileCheck {
            size: (verified.size.0, verified.size.1.min(size_max)),
            expires_ms: verified.expires_ms,
            bytes: 0,
            magic: [0; 2],
        }
    }

    /// Returns the largest size of the file, in bytes.
    pub fn size_max(&self) -> u64 {
        self.size.1
    }

    /// Checks the next piece.
    ///
    /// # Errors
    /// 400 when the file is too large or is not gzip.
    pub fn handle_data(&mut self, data: &[u8]) -> Result<(), ApiError> {
        for (at, byte) in (self.bytes..2).zip(data) {
            self.magic[at as usize] = *byte;
        }
        self.bytes += data.len() as u64;
        if self.bytes > self.size.1 {
            return Err(too_large(self.size.1));
        }
        if self.bytes >= 2 { self.check_magic() } else { Ok(()) }
    }

    /// Checks the deadline. It is called between pieces, so that a slow upload fails on time.
    ///
    /// # Errors
    /// 403 after the deadline.
    pub fn handle_time(&self, now_ms: u64) -> Result<(), ApiError> {
        match self.expires_ms <= now_ms {
            true => Err(expired()),
            false => Ok(()),
        }
    }

    /// Checks the end of the form and returns the size of the file in bytes.
    ///
    /// # Errors
    /// 400 when the file is too small or is not gzip; 403 after the deadline.
    pub fn handle_end(&self, now_ms: u64) -> Result<u64, ApiError> {
        if self.bytes < self.size.0 {
            let size_min = self.size.0;
            return Err(ApiError::new(
                400,
                "EntityTooSmall",
                format!("the file is smaller than {size_min} bytes"),
            ));
        }
        self.check_magic()?;
        self.handle_time(now_ms)?;
        Ok(self.bytes)
    }

    fn check_magic(&self) -> Result<(), ApiError> {
        match self.magic == GZIP {
            true => Ok(()),
            false => Err(invalid_argument(
                "the file is not gzip: it does not begin with the bytes 1f 8b; send a .tar.gz",
            )),
        }
    }
}

#[cfg(test)]
mod tests;
