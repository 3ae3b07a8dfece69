//! Regions, as the operator's file lists them.
//!
//! In: the text of the file. Out: [`Regions`]; without a file there is one region, `local`. Rejects
//! invalid JSON, an empty list, duplicate codes, an unlisted `default` and unknown members. Source:
//! decision I-02; `docs/spec/cloud-protocol.md` 6.

use std::fmt;

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

/// Why the file of regions is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegionsError {
    Json(String),
    NotAnObject,
    NoRegions,
    /// The list is empty or longer than `REGIONS_MAX`.
    Count,
    /// `default` is not a listed code.
    Default,
    Member(UnknownMember),
    /// An entry, counted from 0.
    Region {
        at: usize,
        source: RegionError,
    },
}

/// Why an entry is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegionError {
    NotAnObject,
    Code,
    DuplicateCode(Slug),
    DisplayName,
    Builds,
    Member(UnknownMember),
}

/// An object has a member that is not defined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownMember {
    name: String,
    known: &'static [&'static str],
}

impl fmt::Display for RegionsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHAPE: &str =
            r#"it must be JSON such as {"default":"us-west","regions":[{"code":"us-west","display_name":"US West"}]}"#;
        match self {
            RegionsError::Json(error) => write!(f, "{error}; {SHAPE}"),
            RegionsError::NotAnObject => f.write_str(SHAPE),
            RegionsError::NoRegions => write!(f, "`regions` is missing or not an array; {SHAPE}"),
            RegionsError::Count => write!(f, "`regions` must have 1 to {REGIONS_MAX} entries"),
            RegionsError::Default => f.write_str("`default` must be the code of one of the regions"),
            RegionsError::Member(error) => error.fmt(f),
            RegionsError::Region { at, source } => write!(f, "region {}: {source}", at + 1),
        }
    }
}

impl std::error::Error for RegionsError {}

impl fmt::Display for RegionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RegionError::NotAnObject => {
                f.write_str(r#"it must be an object such as {"code":"us-west","display_name":"US West"}"#)
            }
            RegionError::Code => {
                f.write_str("`code` must be 1 to 63 letters, digits, `.`, `_` and `-`, the first a letter or a digit")
            }
            RegionError::DuplicateCode(code) => write!(f, "the code `{code}` is used twice"),
            RegionError::DisplayName => {
                write!(
                    f,
                    "`display_name` must be text of 1 to {REGION_NAME_CHARS_MAX} characters"
                )
            }
            RegionError::Builds => f.write_str("`builds` must be true or false"),
            RegionError::Member(error) => error.fmt(f),
        }
    }
}

impl fmt::Display for UnknownMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is not a known member; there are `{}`",
            self.name,
            self.known.join("`, `")
        )
    }
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
    pub fn parse(text: &[u8]) -> Result<Regions, RegionsError> {
        let json: Value = serde_json::from_slice(text).map_err(|error| RegionsError::Json(error.to_string()))?;
        let Value::Object(file) = json else {
            return Err(RegionsError::NotAnObject);
        };
        check_members(&file, &["default", "regions"]).map_err(RegionsError::Member)?;
        let Some(Value::Array(entries)) = file.get("regions") else {
            return Err(RegionsError::NoRegions);
        };
        if entries.is_empty() || entries.len() > REGIONS_MAX {
            return Err(RegionsError::Count);
        }
        let mut list: Vec<Region> = Vec::with_capacity(entries.len());
        for (at, entry) in entries.iter().enumerate() {
            let region = parse_region(entry).map_err(|source| RegionsError::Region { at, source })?;
            if list.iter().any(|other| other.code == region.code) {
                let source = RegionError::DuplicateCode(region.code);
                return Err(RegionsError::Region { at, source });
            }
            list.push(region);
        }
        let default = match file.get("default") {
            None => 0,
            Some(default) => list
                .iter()
                .position(|region| Some(region.code.as_str()) == default.as_str())
                .ok_or(RegionsError::Default)?,
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
            Some(_) => Err(ApiError::bad_request("`region` must be a string")),
        },
        Ok(_) => Err(ApiError::bad_request("the body must be a JSON object")),
        Err(error) => Err(ApiError::bad_request(format!(
            "the body must be a JSON object: {error}"
        ))),
    }
}

fn parse_region(entry: &Value) -> Result<Region, RegionError> {
    let Value::Object(entry) = entry else {
        return Err(RegionError::NotAnObject);
    };
    check_members(entry, &["code", "display_name", "builds"]).map_err(RegionError::Member)?;
    let code = entry
        .get("code")
        .and_then(Value::as_str)
        .and_then(Slug::parse)
        .ok_or(RegionError::Code)?;
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
            return Err(RegionError::DisplayName);
        }
    };
    let builds = match entry.get("builds") {
        None => true,
        Some(Value::Bool(builds)) => *builds,
        Some(_) => return Err(RegionError::Builds),
    };
    Ok(Region {
        code,
        display_name,
        builds,
    })
}

/// Rejects unknown members: a misspelt `builds` would enable builds.
fn check_members(object: &Map<String, Value>, known: &'static [&str]) -> Result<(), UnknownMember> {
    match object.keys().find(|name| !known.contains(&name.as_str())) {
        None => Ok(()),
        Some(name) => {
            let name: String = name.chars().filter(|letter| !letter.is_control()).take(40).collect();
            Err(UnknownMember { name, known })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Regions, String> {
        Regions::parse(text.as_bytes()).map_err(|error| error.to_string())
    }

    /// C-076 to C-079: the answer lists codes and names in the order of the file.
    #[test]
    fn regions_are_listed_in_order() {
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
    fn a_grant_request_may_omit_the_region() {
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
    fn invalid_region_files_are_rejected() {
        let many: Vec<_> = (0..=REGIONS_MAX).map(|at| format!(r#"{{"code":"r{at}"}}"#)).collect();
        let long = "x".repeat(REGION_NAME_CHARS_MAX + 1);
        for (text, says) in [
            ("", "it must be JSON such as"),
            ("regions: us-west", "it must be JSON such as"),
            ("[]", "it must be JSON such as"),
            ("{}", "`regions` is missing"),
            (r#"{"regions":{}}"#, "`regions` is missing"),
            (r#"{"regions":[]}"#, "1 to"),
            (&format!(r#"{{"regions":[{}]}}"#, many.join(",")), "1 to"),
            (r#"{"regions":["us-west"]}"#, "region 1: it must be an object"),
            (r#"{"regions":[{"display_name":"x"}]}"#, "region 1: `code`"),
            (r#"{"regions":[{"code":"us west"}]}"#, "region 1: `code`"),
            (r#"{"regions":[{"code":"../x"}]}"#, "region 1: `code`"),
            (
                r#"{"regions":[{"code":"a"},{"code":"a"}]}"#,
                "region 2: the code `a` is used twice",
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
                "region 1: `build` is not a known member",
            ),
            (r#"{"regions":[{"code":"a"}],"default":"b"}"#, "`default`"),
            (r#"{"regions":[{"code":"a"}],"default":null}"#, "`default`"),
            (
                r#"{"regions":[{"code":"a"}],"defaults":"a"}"#,
                "`defaults` is not a known member",
            ),
        ] {
            let reason = read(text).expect_err(says);
            assert!(reason.contains(says), "{text}: {reason}");
        }
        assert!(read(&format!(r#"{{"regions":[{}]}}"#, many[1..].join(","))).is_ok());
    }
}
