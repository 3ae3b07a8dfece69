//! Plays WAV files and tones to the caller, at the rate of the bot's speech.

use super::{ToneSegment, Wav, tones};
use crate::bot::{MediaError, Output};

/// Queues the sound of a WAV file as the bot's speech, and waits while the queue is full.
///
/// # Errors
/// [`MediaError`] once the session is over.
pub async fn play(output: &Output, wav: &Wav) -> Result<(), MediaError> {
    output.send_audio(&wav.resampled(output.rate_hz())).await
}

/// Queues tones as the bot's speech, and waits while the queue is full.
///
/// The tones of keys reach a machine at the far end on every transport, where no [`PhoneCall`]
/// sends keys.
///
/// ```
/// # use edge_runner::{Audio, BotError, RunnerArguments};
/// use edge_runner::kit::{TONE_GAP, ToneSegment, dtmf_tone, play_tones};
///
/// async fn bot(mut args: RunnerArguments) -> Result<(), BotError> {
///     let media = args.media(Audio::at(8_000))?;
///     let keys = "42#".chars().filter_map(dtmf_tone);
///     let gap = ToneSegment::silence(TONE_GAP);
///     let tones: Vec<ToneSegment> = keys.flat_map(|tone| [tone, gap]).collect();
///     play_tones(media.output(), &tones).await?;
///     Ok(())
/// }
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
/// # runtime.unwrap().block_on(async {
/// # let mut call = edge_runner::testing::Caller::client().call(bot);
/// # call.join();
/// # assert_eq!(call.hear(std::time::Duration::from_millis(600)).await.0.len(), 4_800);
/// # });
/// ```
///
/// # Errors
/// [`MediaError`] once the session is over.
///
/// [`PhoneCall`]: super::PhoneCall
pub async fn play_tones(output: &Output, sounds: &[ToneSegment]) -> Result<(), MediaError> {
    output.send_audio(&tones(sounds, output.rate_hz())).await
}
