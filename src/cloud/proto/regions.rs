//! Regions, as the operator's file lists them.
//!
//! In: the text of the file. Out: [`Regions`]; without a file there is one region, `local`. Rejects
//! invalid JSON, an empty list, duplicate codes, an unlisted `default` and unknown members. Source:
//! decision I-02; `docs/spec/cloud-protocol.md` 6.

use serde_json::{Map, Value, json};

use crate::proto::api_error::ApiError;
use crate::proto::build::Slug;

/// Length of a region's display name in characters.
const REGION_NAME_CHARS_MAX: usize = 100;

/// Largest number of regions.
const REGIONS_MAX: usize = 100;

/// A region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    pub code: Slug,
    pub display_name: String,
    /// Whether the region has builds, if the service has a builder command.
    pub builds: bool,
}

/// A non-empty list of regions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Regions {
    list: Vec<Region>,
    default: usize,
}

impl Default for Regions {
    /// The region of a service without a file.
    fn default() -> Self {
        let local = Region {
            code: Slug::parse("local").expect("it is a name"),
            display_name: "Local".into(),
            builds: true,
        };
        Regions {
            list: vec![local],
            default: 0,
        }
    }
}

impl Regions {
    /// Parses the file.
    ///
    /// # Errors
    /// [`RegionsError`].
    pub fn parse(text: &[u8]) -> Result<Regions, String> {
        const SHAPE: &str =
            r#"it is to be JSON such as {"default":"us-west","regions":[{"code":"us-west","display_name":"US West"}]}"#;
        let json: Value = serde_json::from_slice(text).map_err(|error| format!("{error}; {SHAPE}"))?;
        let Value::Object(file) = json else {
            return Err(SHAPE.into());
        };
        check_members(&file, &["default", "regions"])?;
        let Some(Value::Array(entries)) = file.get("regions") else {
            return Err(format!("`regions` is missing, or no array; {SHAPE}"));
        };
        if entries.is_empty() || entries.len() > REGIONS_MAX {
            return Err(format!("`regions` is to have 1 to {REGIONS_MAX} entries"));
        }
        let mut list: Vec<Region> = Vec::with_capacity(entries.len());
        for (at, entry) in entries.iter().enumerate() {
            let region = parse_region(entry).map_err(|why| format!("region {}: {why}", at + 1))?;
            if list.iter().any(|other| other.code == region.code) {
                return Err(format!(
                    "region {}: the code `{}` is another's already",
                    at + 1,
                    region.code
                ));
            }
            list.push(region);
        }
        let default = match file.get("default") {
            None => 0,
            Some(default) => list
                .iter()
                .position(|region| Some(region.code.as_str()) == default.as_str())
                .ok_or("`default` is to be the code of one of the regions")?,
        };
        Ok(Regions { list, default })
    }

    /// Returns the region with this code.
    pub fn find(&self, code: &str) -> Option<&Region> {
        self.list.iter().find(|region| region.code.as_str() == code)
    }

    /// Returns the default region.
    pub fn default_region(&self) -> &Region {
        &self.list[self.default]
    }

    /// Returns the answer of `GET /regions`.
    pub fn json(&self) -> Value {
        let regions: Vec<Value> = self
            .list
            .iter()
            .map(|region| json!({"code": region.code.as_str(), "display_name": region.display_name}))
            .collect();
        json!({ "regions": regions })
    }
}

/// Parses the body of `POST /builds/upload-url`. An empty body or no member selects the default
/// region.
///
/// # Errors
/// 400, naming the member.
pub fn parse_grant_request(body: &[u8]) -> Result<Option<String>, ApiError> {
    if body.trim_ascii().is_empty() {
        return Ok(None);
    }
    match serde_json::from_slice(body) {
        Ok(Value::Object(mut body)) => match body.remove("region") {
            None => Ok(None),
            Some(Value::String(code)) => Ok(Some(code)),
            Some(_) => Err(ApiError::bad_request("`region` is to be a string")),
        },
        Ok(_) => Err(ApiError::bad_request("the body is to be a JSON object")),
        Err(error) => Err(ApiError::bad_request(format!(
            "the body is to be a JSON object: {error}"
        ))),
    }
}

fn parse_region(entry: &Value) -> Result<Region, String> {
    let Value::Object(entry) = entry else {
        return Err(r#"it is to be an object such as {"code":"us-west","display_name":"US West"}"#.into());
    };
    check_members(entry, &["code", "display_name", "builds"])?;
    let code = entry
        .get("code")
        .and_then(Value::as_str)
        .and_then(Slug::parse)
        .ok_or("`code` is to be 1 to 63 letters, digits, `.`, `_` and `-`, the first a letter or a digit")?;
    let display_name = match entry.get("display_name") {
        None => code.as_str().to_owned(),
        Some(Value::String(name))
            if !name.is_empty()
                && name.chars().count() <= REGION_NAME_CHARS_MAX
                && !name.chars().any(char::is_control) =>
        {
            name.clone()
        }
        Some(_) => {
            return Err(format!(
                "`display_name` is to be text of 1 to {REGION_NAME_CHARS_MAX} characters"
            ));
        }
    };
    let builds = match entry.get("builds") {
        None => true,
        Some(Value::Bool(builds)) => *builds,
        Some(_) => return Err("`builds` is to be true or false".into()),
    };
    Ok(Region {
        code,
        display_name,
        builds,
    })
}

/// Rejects unknown members: a misspelt `builds` would enable builds.
fn check_members(object: &Map<String, Value>, known: &[&str]) -> Result<(), String> {
    match object.keys().find(|name| !known.contains(&name.as_str())) {
        None => Ok(()),
        Some(name) => {
            let name: String = name.chars().filter(|letter| !letter.is_control()).take(40).collect();
            Err(format!("`{name}` is no member; there are `{}`", known.join("`, `")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Regions, String> {
        Regions::parse(text.as_bytes())
    }

    /// C-076 to C-079: the answer lists codes and names in the order of the file.
    #[test]
    fn regions_are_listed_as_clients_read_them() {
        let regions = read(
            r#"{"default":"us-west","regions":[{"code":"eu-central","display_name":"EU \u00fc","builds":false},
               {"code":"us-west","display_name":"US West"},{"code":"x"}]}"#,
        )
        .expect("usable");
        assert_eq!(
            regions.json(),
            json!({"regions": [
                {"code": "eu-central", "display_name": "EU \u{fc}"},
                {"code": "us-west", "display_name": "US West"},
                {"code": "x", "display_name": "x"},
            ]})
        );
        assert_eq!(regions.default_region().code.as_str(), "us-west");
        let builds = |code| regions.find(code).map(|region| region.builds);
        assert_eq!(
            (builds("eu-central"), builds("us-west"), builds("US-WEST")),
            (Some(false), Some(true), None)
        );
    }

    /// I-02: the default is the first region, or `local` without a file.
    #[test]
    fn there_is_always_a_default() {
        let regions = read(r#"{"regions":[{"code":"b"},{"code":"a"}]}"#).expect("usable");
        assert_eq!(regions.default_region().code.as_str(), "b");
        let local = Regions::default();
        assert_eq!(local.default_region().code.as_str(), "local");
        assert_eq!(
            local.json(),
            json!({"regions": [{"code": "local", "display_name": "Local"}]})
        );
    }

    /// C-029, C-030: the region is optional; anything but a string is rejected.
    #[test]
    fn a_grant_may_name_no_region() {
        for body in ["", " \n", "{}", r#"{"other":1}"#] {
            assert_eq!(parse_grant_request(body.as_bytes()), Ok(None), "{body}");
        }
        assert_eq!(
            parse_grant_request(br#"{"region":"us-west"}"#),
            Ok(Some("us-west".into()))
        );
        for body in [
            "[]",
            "null",
            "{",
            r#"{"region":7}"#,
            r#"{"region":null}"#,
            "region=us-west",
        ] {
            assert_eq!(parse_grant_request(body.as_bytes()).expect_err(body).status, 400);
        }
    }

    /// I-02: messages name the member and the valid form.
    #[test]
    fn unusable_files_are_refused() {
        let many: Vec<_> = (0..=REGIONS_MAX).map(|at| format!(r#"{{"code":"r{at}"}}"#)).collect();
        let long = "x".repeat(REGION_NAME_CHARS_MAX + 1);
        for (text, says) in [
            ("", "it is to be JSON such as"),
            ("regions: us-west", "it is to be JSON such as"),
            ("[]", "it is to be JSON such as"),
            ("{}", "`regions` is missing"),
            (r#"{"regions":{}}"#, "`regions` is missing"),
            (r#"{"regions":[]}"#, "1 to"),
            (&format!(r#"{{"regions":[{}]}}"#, many.join(",")), "1 to"),
            (r#"{"regions":["us-west"]}"#, "region 1: it is to be an object"),
            (r#"{"regions":[{"display_name":"x"}]}"#, "region 1: `code`"),
            (r#"{"regions":[{"code":"us west"}]}"#, "region 1: `code`"),
            (r#"{"regions":[{"code":"../x"}]}"#, "region 1: `code`"),
            (
                r#"{"regions":[{"code":"a"},{"code":"a"}]}"#,
                "region 2: the code `a` is another's",
            ),
            (
                r#"{"regions":[{"code":"a","display_name":""}]}"#,
                "region 1: `display_name`",
            ),
            (
                r#"{"regions":[{"code":"a","display_name":7}]}"#,
                "region 1: `display_name`",
            ),
            (
                &format!(r#"{{"regions":[{{"code":"a","display_name":"{long}"}}]}}"#),
                "region 1: `display_name`",
            ),
            (r#"{"regions":[{"code":"a","builds":"no"}]}"#, "region 1: `builds`"),
            (
                r#"{"regions":[{"code":"a","build":false}]}"#,
                "region 1: `build` is no member",
            ),
            (r#"{"regions":[{"code":"a"}],"default":"b"}"#, "`default`"),
            (r#"{"regions":[{"code":"a"}],"default":null}"#, "`default`"),
            (
                r#"{"regions":[{"code":"a"}],"defaults":"a"}"#,
                "`defaults` is no member",
            ),
        ] {
            let why = read(text).expect_err(says);
            assert!(why.contains(says), "{text}: {why}");
        }
        assert!(read(&format!(r#"{{"regions":[{}]}}"#, many[1..].join(","))).is_ok());
    }
}
