//! The table of aliases: names that existing clients, bots and `.env` files use, with their
//! canonical names.
//!
//! In: a name. Out: its canonical name. There are five areas: values of `transport`, options,
//! environment variables, JSON keys and paths. Every name is accepted as input; if both the
//! canonical name and an alias are present, the canonical one takes precedence. Source: the names
//! of the Python development runner, its JavaScript clients and the providers.

/// Where a name is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Area {
    /// A value of `-t` and of `transport` in `/start`.
    Transport,
    /// A long option, with its dashes.
    Option,
    /// An environment variable.
    Variable,
    /// A key of a JSON body, in or out.
    JsonKey,
    /// A path of the HTTP server.
    Path,
}

/// Names of the fields of a Daily room in the response of `/start`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StartNames {
    /// The canonical names.
    Canonical,
    /// The names that existing clients use.
    Alias,
    /// Both.
    #[default]
    Both,
}

/// A canonical name and its aliases.
#[derive(Clone, Copy, Debug)]
pub struct AliasRow {
    pub area: Area,
    pub canonical: &'static str,
    pub aliases: &'static [&'static str],
}

const fn row(area: Area, canonical: &'static str, aliases: &'static [&'static str]) -> AliasRow {
    AliasRow {
        area,
        canonical,
        aliases,
    }
}

/// All names with aliases.
pub const TABLE: &[AliasRow] = &[
    row(Area::Transport, "videoroom", &["daily"]),
    row(Area::Transport, "mediaroom", &["livekit"]),
    row(Area::Transport, "telephony_a", &["twilio"]),
    row(Area::Transport, "telephony_b", &["telnyx"]),
    row(Area::Transport, "telephony_c", &["plivo"]),
    row(Area::Transport, "telephony_d", &["exotel"]),
    row(Area::Option, "--downloads-folder", &["--folder"]),
    row(Area::Option, "--embedded", &["--esp32"]),
    row(Area::Option, "--messaging", &["--whatsapp"]),
    row(Area::Variable, "RUNNER_ALLOWED_ORIGINS", &["PIPECAT_ALLOWED_ORIGINS"]),
    row(Area::Variable, "RUNNER_ICE_SERVERS", &["PIPECAT_ICE_SERVERS"]),
    row(Area::Variable, "RUNNER_UPLOADS_FOLDER", &["PIPECAT_UPLOADS_FOLDER"]),
    row(
        Area::Variable,
        "RUNNER_WS_AUTH",
        &["RUNNER_WEBSOCKET_AUTH", "PIPECAT_WEBSOCKET_AUTH"],
    ),
    row(
        Area::Variable,
        "RUNNER_AGENT_NAME",
        &["MEDIAROOM_AGENT_NAME", "LIVEKIT_AGENT_NAME"],
    ),
    row(Area::Variable, "RUNNER_DEPLOYMENT", &["LIVEKIT_AGENT_DEPLOYMENT"]),
    row(Area::Variable, "VIDEOROOM_API_KEY", &["DAILY_API_KEY"]),
    row(Area::Variable, "VIDEOROOM_API_URL", &["DAILY_API_URL"]),
    row(Area::Variable, "VIDEOROOM_ROOM_URL", &["DAILY_ROOM_URL"]),
    row(Area::Variable, "VIDEOROOM_SAMPLE_ROOM_URL", &["DAILY_SAMPLE_ROOM_URL"]),
    row(Area::Variable, "VIDEOROOM_DIALIN_HMAC", &["PINLESS_HMAC_SECRET"]),
    row(Area::Variable, "MEDIAROOM_URL", &["LIVEKIT_URL"]),
    row(Area::Variable, "MEDIAROOM_API_KEY", &["LIVEKIT_API_KEY"]),
    row(Area::Variable, "MEDIAROOM_API_SECRET", &["LIVEKIT_API_SECRET"]),
    row(Area::Variable, "MEDIAROOM_ROOM_NAME", &["LIVEKIT_ROOM_NAME"]),
    row(Area::Variable, "MESSAGING_TOKEN", &["WHATSAPP_TOKEN"]),
    row(
        Area::Variable,
        "MESSAGING_PHONE_NUMBER_ID",
        &["WHATSAPP_PHONE_NUMBER_ID"],
    ),
    row(Area::Variable, "MESSAGING_APP_SECRET", &["WHATSAPP_APP_SECRET"]),
    row(
        Area::Variable,
        "MESSAGING_WEBHOOK_VERIFICATION_TOKEN",
        &["WHATSAPP_WEBHOOK_VERIFICATION_TOKEN"],
    ),
    row(Area::Variable, "TELCO_A_ACCOUNT_SID", &["TWILIO_ACCOUNT_SID"]),
    row(Area::Variable, "TELCO_A_AUTH_TOKEN", &["TWILIO_AUTH_TOKEN"]),
    row(Area::Variable, "TELCO_B_API_KEY", &["TELNYX_API_KEY"]),
    row(Area::Variable, "TELCO_B_PUBLIC_KEY", &["TELNYX_PUBLIC_KEY"]),
    row(Area::Variable, "TELCO_C_AUTH_ID", &["PLIVO_AUTH_ID"]),
    row(Area::Variable, "TELCO_C_AUTH_TOKEN", &["PLIVO_AUTH_TOKEN"]),
    row(Area::Variable, "CLOUD_API_URL", &["PIPECAT_API_HOST"]),
    row(Area::Variable, "CLOUD_API_KEY", &["PIPECAT_CLOUD_API_KEY"]),
    row(Area::Variable, "REALTIME_URL", &["OPENAI_BASE_URL"]),
    row(Area::Variable, "REALTIME_API_KEY", &["OPENAI_API_KEY"]),
    row(Area::JsonKey, "buildfilePath", &["dockerfilePath"]),
    row(Area::JsonKey, "createVideoroomRoom", &["createDailyRoom"]),
    row(Area::JsonKey, "videoroomRoomProperties", &["dailyRoomProperties"]),
    row(
        Area::JsonKey,
        "videoroomMeetingTokenProperties",
        &["dailyMeetingTokenProperties"],
    ),
    row(Area::JsonKey, "videoroomRoom", &["dailyRoom"]),
    row(Area::JsonKey, "videoroomToken", &["dailyToken"]),
    row(Area::JsonKey, "room_config", &["roomConfig"]),
    row(Area::JsonKey, "videoroom_api_key", &["daily_api_key"]),
    row(Area::JsonKey, "videoroom_api_url", &["daily_api_url"]),
    row(Area::Path, "/messaging", &["/whatsapp"]),
    row(Area::Path, "/mediaroom-webhook", &["/livekit-webhook"]),
    row(Area::Path, "/videoroom", &["/daily"]),
    row(Area::Path, "/videoroom-dialin-webhook", &["/daily-dialin-webhook"]),
];

/// Returns the canonical form of `name`; a name that is not in the table is canonical.
pub fn canonical(area: Area, name: &str) -> &str {
    TABLE
        .iter()
        .find(|row| row.area == area && row.aliases.contains(&name))
        .map_or(name, |row| row.canonical)
}

/// Returns the aliases of a canonical name.
pub fn aliases(area: Area, canonical: &str) -> &'static [&'static str] {
    TABLE
        .iter()
        .find(|row| row.area == area && row.canonical == canonical)
        .map_or(&[], |row| row.aliases)
}

/// Calls `look` with the canonical name, then with each alias, and returns the first result.
pub fn first<'n, T>(area: Area, canonical: &'n str, mut look: impl FnMut(&'n str) -> Option<T>) -> Option<T> {
    look(canonical).or_else(|| aliases(area, canonical).iter().copied().find_map(look))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_resolves_aliases_and_keeps_unknown_names() {
        for row in TABLE {
            assert_eq!(canonical(row.area, row.canonical), row.canonical);
            for alias in row.aliases {
                assert_eq!(canonical(row.area, alias), row.canonical);
            }
        }
        assert_eq!(canonical(Area::Transport, "webrtc"), "webrtc");
        // Areas are separate: an alias of a transport is not one of a path.
        assert_eq!(canonical(Area::Path, "daily"), "daily");
        assert_eq!(canonical(Area::Path, "/daily"), "/videoroom");
    }

    #[test]
    fn names_are_unique_in_an_area() {
        let names = |row: &AliasRow| {
            std::iter::once(row.canonical)
                .chain(row.aliases.iter().copied())
                .collect::<Vec<_>>()
        };
        for (i, row) in TABLE.iter().enumerate() {
            for other in TABLE[i + 1..].iter().filter(|other| other.area == row.area) {
                for name in names(row) {
                    assert!(!names(other).contains(&name), "{name} is listed twice");
                }
            }
        }
    }

    #[test]
    fn first_prefers_the_canonical_name() {
        let both = |name: &str| match name {
            "VIDEOROOM_API_KEY" => Some("canonical"),
            "DAILY_API_KEY" => Some("alias"),
            _ => None,
        };
        assert_eq!(first(Area::Variable, "VIDEOROOM_API_KEY", both), Some("canonical"));
        let only_alias = |name: &str| (name == "DAILY_API_KEY").then_some("alias");
        assert_eq!(first(Area::Variable, "VIDEOROOM_API_KEY", only_alias), Some("alias"));
        assert_eq!(first(Area::Variable, "VIDEOROOM_API_URL", both), None);
    }
}
