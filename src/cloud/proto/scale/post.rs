//! Upload grants of an object store: presigned POST with the names of AWS.
//!
//! In: credentials, the bucket, [`GrantTerms`], the time. Out: a grant whose form the store itself
//! accepts. The conditions are those of the service's own grants, the token is there only with
//! temporary credentials. Source: Amazon S3 API Reference, "POST Object" and "POST Policy".

use serde::Serialize;

use crate::proto::grant::{CONTENT_TYPE, GrantTerms, UploadGrant, archive_key};
use crate::proto::policy;
use crate::proto::scale::sigv4::{StoreCredentials, credential};
use crate::proto::sign::S3;
use edge_runner_proto::time;

/// The form fields except `file`.
#[derive(Clone, PartialEq, Eq, Serialize)]
pub struct StoreFields {
    key: String,
    bucket: String,
    #[serde(rename = "Content-Type")]
    content_type: &'static str,
    #[serde(rename = "Policy")]
    policy: String,
    #[serde(rename = "X-Amz-Algorithm")]
    algorithm: &'static str,
    #[serde(rename = "X-Amz-Credential")]
    credential: String,
    #[serde(rename = "X-Amz-Date")]
    date: String,
    #[serde(rename = "X-Amz-Security-Token", skip_serializing_if = "Option::is_none")]
    token: Option<String>,
    #[serde(rename = "X-Amz-Signature")]
    signature: String,
}

/// Issues a grant. `region` is the store's, `now_ms` the time of the signature.
pub fn issue(
    by: &StoreCredentials,
    bucket: &str,
    region: &str,
    terms: &GrantTerms<'_>,
    now_ms: u64,
) -> UploadGrant<StoreFields> {
    let date = time::compact(now_ms);
    let key = archive_key(terms.org, terms.upload);
    let credential = credential(by, region, &date);
    let token = by.token.as_ref().map(|token| token.expose().to_owned());
    let mut fields = vec![
        ("bucket", bucket),
        ("key", &key),
        ("Content-Type", CONTENT_TYPE),
        ("X-Amz-Algorithm", S3.algorithm),
        ("X-Amz-Credential", &credential),
        ("X-Amz-Date", &date),
    ];
    fields.extend(token.iter().map(|token| ("X-Amz-Security-Token", token.as_str())));
    let policy = policy::encode(terms.expires_ms, &fields, (1, terms.size_max), 3);
    let signature = S3.sign(by.secret.expose(), &date[..8], region, policy.as_bytes());
    UploadGrant {
        upload_id: terms.upload.to_string(),
        upload_url: terms.url.to_owned(),
        upload_fields: StoreFields {
            key,
            bucket: bucket.to_owned(),
            content_type: CONTENT_TYPE,
            policy,
            algorithm: S3.algorithm,
            credential,
            date,
            token,
            signature,
        },
        expires_at: time::iso_ms(terms.expires_ms),
    }
}

#[cfg(test)]
mod tests {
    use data_encoding::BASE64;
    use serde_json::{Value, json};

    use super::*;
    use crate::proto::build::Slug;
    use edge_runner_proto::config::{Secret, SecretBytes};
    use edge_runner_proto::uuid::Uuid;

    const NOW_MS: u64 = 1_795_262_400_000; // 2026-11-21T12:00:00Z

    fn grant(token: Option<&str>) -> Value {
        let by = StoreCredentials {
            id: "AKIAEXAMPLE".into(),
            secret: SecretBytes::new("store-secret-for-tests"),
            token: token.map(Secret::new),
        };
        let terms = GrantTerms {
            org: &Slug::parse("org-7").expect("a name"),
            upload: Uuid::parse("0b9e3f52-6a1d-4c55-9d0e-2f6a0c7d1e11").expect("a UUID"),
            region: &Slug::parse("us-west").expect("a name"),
            url: "https://contexts.s3.eu-central-1.amazonaws.com/",
            size_max: 524_288_000,
            expires_ms: NOW_MS + 900_000,
        };
        let grant = issue(&by, "contexts", "eu-central-1", &terms, NOW_MS);
        serde_json::to_value(&grant).expect("JSON")
    }

    #[test]
    fn a_grant_has_the_names_of_the_store() {
        let grant = grant(None);
        let fields = grant["uploadFields"].as_object().expect("fields");
        assert_eq!(fields["key"], "org-7/0b9e3f52-6a1d-4c55-9d0e-2f6a0c7d1e11.tar.gz");
        assert_eq!(fields["bucket"], "contexts");
        assert_eq!(fields["Content-Type"], "application/gzip");
        assert_eq!(fields["X-Amz-Algorithm"], "AWS4-HMAC-SHA256");
        assert_eq!(
            fields["X-Amz-Credential"],
            "AKIAEXAMPLE/20261121/eu-central-1/s3/aws4_request"
        );
        assert_eq!(fields["X-Amz-Date"], "20261121T120000Z");
        assert_eq!(fields["X-Amz-Signature"].as_str().expect("hex").len(), 64);
        assert!(!fields.contains_key("X-Amz-Security-Token"));
        let policy = BASE64
            .decode(fields["Policy"].as_str().expect("text").as_bytes())
            .expect("base64");
        let policy: Value = serde_json::from_slice(&policy).expect("JSON");
        assert_eq!(policy["expiration"], "2026-11-21T12:15:00.000Z");
        assert_eq!(policy["conditions"][3], json!(["content-length-range", 1, 524_288_000]));
        // Each field but the policy and the signature has a condition.
        assert_eq!(
            policy["conditions"].as_array().expect("a list").len(),
            fields.len() - 2 + 1
        );
    }

    #[test]
    fn temporary_credentials_add_their_token() {
        let grant = grant(Some("session"));
        assert_eq!(grant["uploadFields"]["X-Amz-Security-Token"], "session");
        let policy = grant["uploadFields"]["Policy"].as_str().expect("text");
        let policy = BASE64.decode(policy.as_bytes()).expect("base64");
        let policy: Value = serde_json::from_slice(&policy).expect("JSON");
        assert_eq!(policy["conditions"][7], json!({"X-Amz-Security-Token": "session"}));
    }
}
