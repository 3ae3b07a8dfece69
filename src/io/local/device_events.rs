//! What happens to a microphone and to a loudspeaker, by a command or a card of the kernel.

/// What happens to a microphone.
pub enum MicrophoneEvent {
    /// It has started, for the first time or again.
    Started,
    Bytes(Vec<u8>),
    /// It has lost audio after its last bytes.
    Overrun,
    Failed,
}

/// What happens to a loudspeaker.
pub enum LoudspeakerEvent {
    /// It has run dry.
    Underrun,
    /// Its command has ended, or its card has failed, and what it had is lost.
    Failed,
}
