//! Voices over Wyoming and HTTP.

use super::super::synthesizer::{SpeechSynthesizer, VoiceEvent};
use super::*;
use crate::limits::SPEECH_MAX;
use crate::proto::assistant::services::speech::{VoiceSettings, wav_header};

fn voice(access: ServiceAccess) -> SpeechSynthesizer {
    let settings = VoiceSettings {
        voice: Some("v".to_owned()),
        ..VoiceSettings::default()
    };
    SpeechSynthesizer::new(access, settings)
}

/// Returns all samples with their rates, and the failure.
async fn collect(mut session: ServiceSession<VoiceEvent>) -> (Vec<(i16, u32)>, Option<ServiceFailure>) {
    let mut received = Vec::new();
    loop {
        match session.recv().await {
            Ok(VoiceEvent::Audio { pcm, rate_hz }) => received.extend(pcm.into_iter().map(|sample| (sample, rate_hz))),
            Ok(VoiceEvent::Done) => return (received, None),
            Err(failure) => return (received, Some(failure)),
        }
    }
}

#[tokio::test]
async fn a_wyoming_server_speaks_at_its_own_rate() {
    let server = Server::start().await;
    let format = json!({"rate": 22_050, "width": 2, "channels": 1, "timestamp": null});
    let serve = async {
        let mut peer = server.accept().await;
        let asked = peer.event().await;
        peer.say_event("audio-start", &format, &[]).await;
        // A sample that is cut in two.
        peer.say_event("audio-chunk", &format, &[1, 0, 0xFE]).await;
        peer.say_event("audio-chunk", &format, &[0xFF]).await;
        peer.say_event("audio-stop", &json!({"timestamp": null}), &[]).await;
        peer.end().await;
        asked
    };
    let session = voice(server.access("tcp", None)).start("Hello.");
    let (spoken, (kind, data, _)) = tokio::join!(collect(session), serve);
    assert_eq!(spoken, (vec![(1, 22_050), (-2, 22_050)], None));
    assert_eq!(
        (&*kind, data),
        ("synthesize", json!({"text": "Hello.", "voice": {"name": "v"}}))
    );
}

#[tokio::test]
async fn a_connection_that_ends_before_the_speech_is_a_failure() {
    let server = Server::start().await;
    let format = json!({"rate": 16_000, "width": 2, "channels": 1});
    let mut whole = Vec::new();
    write_event(&mut whole, "audio-start", &format, &[]);
    write_event(&mut whole, "audio-chunk", &format, &[1, 0]);
    write_event(&mut whole, "audio-stop", &Value::Null, &[]);
    for end in 0..=whole.len() {
        let serve = async {
            let mut peer = server.accept().await;
            peer.event().await;
            peer.say(&whole[..end]).await;
        };
        let session = voice(server.access("tcp", None)).start("Hello.");
        let ((_, failure), ()) = tokio::join!(collect(session), serve);
        assert_eq!(
            failure,
            (end < whole.len()).then_some(ServiceFailure::CutShort),
            "{end}"
        );
    }
}

#[tokio::test]
async fn what_a_wyoming_server_cannot_speak_is_a_failure() {
    let server = Server::start().await;
    let wrong = ServiceFailure::Malformed("audio that is no 16-bit PCM of 8 to 48 kHz");
    for (kind, data, failure) in [
        (
            "error",
            json!({"text": "words", "code": "VoiceNotFoundError"}),
            Some(ServiceFailure::UnknownModel),
        ),
        (
            "audio-start",
            json!({"rate": 22_050, "width": 4, "channels": 1}),
            Some(wrong.clone()),
        ),
        (
            "audio-start",
            json!({"rate": 1, "width": 2, "channels": 1}),
            Some(wrong.clone()),
        ),
        (
            "audio-chunk",
            json!({"rate": 8_000, "width": 2, "channels": 9}),
            Some(wrong),
        ),
        (
            "audio-start",
            json!({"rate": 8_000, "width": 2}),
            Some(ServiceFailure::CutShort),
        ),
        ("audio-stop", json!({}), None),
    ] {
        let serve = async {
            let mut peer = server.accept().await;
            peer.event().await;
            peer.say_event(kind, &data, &[]).await;
        };
        let session = voice(server.access("tcp", None)).start("Hello.");
        let (spoken, ()) = tokio::join!(collect(session), serve);
        assert_eq!(spoken, (Vec::new(), failure), "{kind} {data}");
    }
}

#[tokio::test]
async fn an_http_service_speaks_wav_or_pcm() {
    let server = Server::start().await;
    let pcm = [1, 0, 0xFE, 0xFF];
    let wav = [&wav_header(16_000, 0)[..], &pcm].concat();
    let text = |content_type: &str, body: &[u8]| {
        let mut response = http("200 OK", content_type, "").into_bytes();
        response.extend_from_slice(body);
        response
    };
    let no_wav = ServiceFailure::Malformed("audio that is no WAV file");
    let no_audio = ServiceFailure::Malformed("audio that is neither PCM nor WAV");
    let spoken = |rate_hz| vec![(1, rate_hz), (-2, rate_hz)];
    for (response, rate_hz, received, failure) in [
        (text("audio/wav", &wav), None, spoken(16_000), None),
        (text("audio/x-wav", &wav), Some(24_000), spoken(16_000), None),
        (text("audio/pcm", &pcm), Some(24_000), spoken(24_000), None),
        (text("application/octet-stream", &pcm), None, vec![], Some(no_wav)),
        (text("audio/mpeg", &pcm), Some(24_000), vec![], Some(no_audio)),
        (
            text("application/json", b"{\"error\":{\"code\":401}}"),
            None,
            vec![],
            Some(ServiceFailure::RefusedKey),
        ),
        (
            http("400 No", "application/json", "{}").into_bytes(),
            None,
            vec![],
            Some(ServiceFailure::Rejected(400)),
        ),
    ] {
        let settings = VoiceSettings {
            pcm_rate_hz: rate_hz,
            ..VoiceSettings::default()
        };
        let session = SpeechSynthesizer::new(server.access("http", None), settings).start("Hello.");
        let serve = async {
            let mut peer = server.accept().await;
            let request = peer.request().await;
            peer.say(&response).await;
            request
        };
        let (spoken, (head, asked)) = tokio::join!(collect(session), serve);
        assert_eq!(spoken, (received, failure), "{}", String::from_utf8_lossy(&response));
        assert!(head.starts_with("POST /v1/audio/speech HTTP/1.1\r\n"), "{head}");
        let format = if rate_hz.is_some() { "pcm" } else { "wav" };
        let asked: Value = serde_json::from_slice(&asked).expect("JSON");
        assert_eq!(asked, json!({"input": "Hello.", "response_format": format}));
    }
}

/// Nothing is kept of it: the limit only ends what would never end.
#[tokio::test]
async fn endless_speech_is_cut_off() {
    let server = Server::start().await;
    let session = voice(server.access("http", None)).start("Hello.");
    let serve = async {
        let mut peer = server.accept().await;
        peer.request().await;
        peer.say(http("200 OK", "audio/wav", "").as_bytes()).await;
        peer.say(&wav_header(8_000, 0)).await;
        while peer.0.write_all(&[0; 65_536]).await.is_ok() {}
    };
    let ((spoken, failure), ()) = tokio::join!(collect(session), serve);
    let length = Duration::from_secs(spoken.len() as u64 / 8_000);
    assert!(
        length >= SPEECH_MAX && length < SPEECH_MAX + Duration::from_secs(60),
        "{length:?}"
    );
    assert_eq!(failure, None);
}
