//! What the modules `call_control` and `prompts` give to `services`, each in a build with its
//! feature.

use std::sync::Arc;

use crate::bot::RunnerArguments;
use crate::bot::media::Output;
use crate::io::running::ModuleFuture;
use crate::kit::Wav;
use crate::proto::process::CallRequest;

/// Does a request about a call, or says why not.
pub(super) type PerformCall =
    Arc<dyn Fn(CallRequest, Output) -> ModuleFuture<'static, Result<(), String>> + Send + Sync>;
/// Returns the speech of a text, or why there is none.
pub(super) type SpeakPrompt = Arc<dyn Fn(String) -> PromptFuture + Send + Sync>;
/// Returns what does the requests about the call of a session.
pub(super) type CallOf = fn(&RunnerArguments) -> PerformCall;
/// Returns the voice of a session, if the runner has one.
pub(super) type VoiceOf = fn(&RunnerArguments) -> Option<SpeakPrompt>;
/// The speech of a text, or why there is none.
pub(super) type PromptFuture = ModuleFuture<'static, Result<Arc<Wav>, String>>;
