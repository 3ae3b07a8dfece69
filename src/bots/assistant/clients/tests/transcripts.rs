//! Recognisers over Wyoming and HTTP.

use super::super::recognizer::{SpeechRecognizer, TranscriptEvent};
use super::*;
use crate::limits::UTTERANCE_SAMPLES_MAX;
use crate::proto::assistant::services::transcription::RecognizerSettings;

fn recognizer(access: ServiceAccess) -> SpeechRecognizer {
    let settings = RecognizerSettings {
        model: Some("m".to_owned()),
        ..RecognizerSettings::default()
    };
    SpeechRecognizer::new(access, settings)
}

/// The server hears the speech before the utterance has ended.
#[tokio::test]
async fn speech_reaches_a_wyoming_server_while_it_is_spoken() {
    let server = Server::start().await;
    let mut recognition = recognizer(server.access("tcp", None)).start();
    recognition.push_audio(&[1, -2]);
    let mut peer = tokio::select! {
        peer = server.accept() => peer,
        event = recognition.recv() => panic!("{event:?}"),
    };
    let hear = async {
        let (transcribe, start, chunk) = (peer.event().await, peer.event().await, peer.event().await);
        assert_eq!((&*transcribe.0, &transcribe.1), ("transcribe", &json!({"name": "m"})));
        let format = json!({"rate": 16_000, "width": 2, "channels": 1});
        assert_eq!((&*start.0, &start.1), ("audio-start", &format));
        assert_eq!(
            (&*chunk.0, &chunk.1, &chunk.2[..]),
            ("audio-chunk", &format, &[1, 0, 0xFE, 0xFF][..])
        );
    };
    tokio::select! {
        () = hear => {}
        event = recognition.recv() => panic!("{event:?}"),
    }
    recognition.finish();
    recognition.push_audio(&[3]);
    let answer = async {
        assert_eq!(peer.event().await.0, "audio-stop");
        peer.say_event("transcript-chunk", &json!({"text": "Hel"}), &[]).await;
        peer.say_event("transcript-chunk", &json!({"text": "lo."}), &[]).await;
        peer.say_event("other", &json!({"text": "x"}), &[7; 1000]).await;
        peer.say_event("transcript", &json!({"text": "Hello."}), &[]).await;
        peer.end().await;
    };
    let receive = async {
        let events = [
            recognition.recv().await,
            recognition.recv().await,
            recognition.recv().await,
        ];
        let partial = |text: &str| Ok(TranscriptEvent::Partial(text.to_owned()));
        let last = Ok(TranscriptEvent::Final("Hello.".to_owned()));
        assert_eq!(events, [partial("Hel"), partial("Hello."), last]);
    };
    tokio::join!(answer, receive);
}

#[tokio::test]
async fn a_server_may_find_the_end_of_the_utterance_first() {
    let server = Server::start().await;
    let mut recognition = recognizer(server.access("tcp", None)).start();
    recognition.push_audio(&[1; 160]);
    let serve = async {
        let mut peer = server.accept().await;
        peer.event().await;
        peer.say_event("transcript", &json!({"text": "Yes."}), &[]).await;
        peer.end().await;
    };
    let (event, ()) = tokio::join!(recognition.recv(), serve);
    assert_eq!(event, Ok(TranscriptEvent::Final("Yes.".to_owned())));
    // What is said after that is dropped.
    recognition.push_audio(&[1; 160]);
}

#[tokio::test]
async fn an_utterance_has_a_longest_length() {
    let server = Server::start().await;
    let mut recognition = recognizer(server.access("tcp", None)).start();
    for _ in 0..3 {
        recognition.push_audio(&vec![1; UTTERANCE_SAMPLES_MAX / 2]);
    }
    recognition.finish();
    let serve = async {
        let mut peer = server.accept().await;
        let mut bytes = 0;
        loop {
            match peer.event().await {
                (kind, _, payload) if kind == "audio-chunk" => bytes += payload.len(),
                (kind, ..) if kind == "audio-stop" => break,
                _ => {}
            }
        }
        peer.say_event("transcript", &json!({"text": ""}), &[]).await;
        peer.end().await;
        bytes
    };
    let (event, bytes) = tokio::join!(recognition.recv(), serve);
    assert_eq!(
        (event, bytes),
        (Ok(TranscriptEvent::Final(String::new())), 2 * UTTERANCE_SAMPLES_MAX)
    );
}

#[tokio::test]
async fn faults_of_a_wyoming_server_are_failures() {
    let server = Server::start().await;
    for (bytes, failure) in [
        (&b""[..], ServiceFailure::CutShort),
        (
            b"{\"type\":\"transcript\",\"data_length\":9}\n{",
            ServiceFailure::CutShort,
        ),
        (
            b"HTTP/1.1 400 Bad Request\r\n\r\n",
            ServiceFailure::Malformed("an event is no JSON"),
        ),
        (
            b"{\"type\":\"a\",\"payload_length\":1000000000}\n",
            ServiceFailure::Malformed("an event is too long"),
        ),
        (
            b"{\"type\":\"error\",\"data\":{\"text\":\"the words\",\"code\":\"KeyError\"}}\n",
            ServiceFailure::Fault,
        ),
    ] {
        let mut recognition = recognizer(server.access("tcp", None)).start();
        recognition.finish();
        let serve = async {
            let mut peer = server.accept().await;
            peer.event().await;
            peer.event().await;
            peer.event().await;
            peer.say(bytes).await;
        };
        let (event, ()) = tokio::join!(recognition.recv(), serve);
        assert_eq!(event, Err(failure), "{}", String::from_utf8_lossy(bytes));
    }
}

/// No limit runs while the caller speaks.
#[tokio::test(start_paused = true)]
async fn a_silent_recogniser_is_given_up_after_the_end_of_the_utterance() {
    let server = Server::start().await;
    let recognizer = recognizer(server.access("tcp", None));
    for limit in [SERVICE_FIRST_BYTE_COLD, SERVICE_FIRST_BYTE_WARM] {
        let mut recognition = recognizer.start();
        let peer = tokio::select! {
            peer = server.accept() => peer,
            event = recognition.recv() => panic!("{event:?}"),
        };
        assert!(
            tokio::time::timeout(Duration::from_secs(3_600), recognition.recv())
                .await
                .is_err()
        );
        recognition.finish();
        let ended = Instant::now();
        assert_eq!(
            recognition.recv().await,
            Err(ServiceFailure::TimedOut(ServiceStep::Begin))
        );
        assert!(ended.elapsed() >= limit && ended.elapsed() < limit + Duration::from_secs(1));
        drop(peer);
    }
}

#[tokio::test]
async fn an_http_service_gets_the_whole_utterance() {
    let server = Server::start().await;
    let deltas = "data: {\"type\":\"transcript.text.delta\",\"delta\":\"Hel\"}\n\ndata: \
                  {\"type\":\"transcript.text.done\",\"text\":\"Hello.\"}\n\n";
    let last = TranscriptEvent::Final("Hello.".to_owned());
    for (response, events) in [
        (
            http("200 OK", "application/json", r#"{"text":"Hello."}"#),
            vec![Ok(last)],
        ),
        (
            http("200 OK", "text/event-stream", deltas),
            vec![
                Ok(TranscriptEvent::Partial("Hel".to_owned())),
                Ok(TranscriptEvent::Final("Hello.".to_owned())),
            ],
        ),
        (
            http("200 OK", "text/event-stream", &deltas[..40]),
            vec![Err(ServiceFailure::CutShort)],
        ),
        (
            http("413 No", "application/json", "{}"),
            vec![Err(ServiceFailure::TooLong)],
        ),
    ] {
        let mut recognition = recognizer(server.access("http", Some("hunter2"))).start();
        recognition.push_audio(&[1, -2]);
        recognition.finish();
        let receive = async {
            for event in events {
                assert_eq!(recognition.recv().await, event);
            }
        };
        let ((), (head, form)) = tokio::join!(receive, server.respond(&response));
        assert!(head.starts_with("POST /v1/audio/transcriptions HTTP/1.1\r\n"), "{head}");
        assert!(head.contains("\r\nauthorization: Bearer hunter2\r\n"), "{head}");
        let boundary = head.split("boundary=").nth(1).and_then(|rest| rest.lines().next());
        let boundary = boundary.expect("a boundary");
        let end = [&[1, 0, 0xFE, 0xFF], format!("\r\n--{boundary}--\r\n").as_bytes()].concat();
        assert!(form.starts_with(format!("--{boundary}\r\n").as_bytes()) && form.ends_with(&end));
    }
}
