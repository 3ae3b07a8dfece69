//! What the user can change: whether the microphone is muted, and the volume of the loudspeaker.
//!
//! In: what the user wants. Out: the state, which lasts beyond a session, and a line that says what
//! has changed.

use super::console::UserWish;
use super::options::VOLUME_MAX;

/// By how much a key changes the volume, in percent.
const VOLUME_STEP: u8 = 10;

/// What the user has set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalControls {
    is_muted: bool,
    volume_percent: u8,
}

impl LocalControls {
    /// Begins with a volume in percent, at most [`VOLUME_MAX`].
    pub fn new(volume_percent: u8) -> Self {
        LocalControls {
            is_muted: false,
            volume_percent: volume_percent.min(VOLUME_MAX),
        }
    }

    /// Returns whether the microphone is muted.
    pub fn is_muted(self) -> bool {
        self.is_muted
    }

    /// Returns the factor of the samples. Its square makes the steps sound alike: 50 % is 12 dB
    /// below 100 %.
    pub fn gain(self) -> f32 {
        (f32::from(self.volume_percent) / f32::from(VOLUME_MAX)).powi(2)
    }

    /// Handles what the user wants, and returns what has changed.
    pub fn handle_wish(&mut self, wish: &UserWish) -> Option<String> {
        match wish {
            UserWish::Mute => {
                self.is_muted = !self.is_muted;
                let state = if self.is_muted { "muted" } else { "on" };
                return Some(format!("the microphone is {state}"));
            }
            UserWish::Louder => self.volume_percent = (self.volume_percent + VOLUME_STEP).min(VOLUME_MAX),
            UserWish::Quieter => self.volume_percent = self.volume_percent.saturating_sub(VOLUME_STEP),
            UserWish::Begin | UserWish::End | UserWish::BeginOrEnd | UserWish::Say(_) => return None,
        }
        Some(format!("the volume is {} %", self.volume_percent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_mute_and_change_the_volume_within_its_bounds() {
        let mut controls = LocalControls::new(95);
        let said = |controls: &mut LocalControls, wish| controls.handle_wish(&wish).expect("a change");
        assert_eq!(said(&mut controls, UserWish::Louder), "the volume is 100 %");
        assert_eq!(said(&mut controls, UserWish::Louder), "the volume is 100 %");
        assert!((controls.gain() - 1.0).abs() < 1e-6);
        for _ in 0..5 {
            said(&mut controls, UserWish::Quieter);
        }
        assert!((controls.gain() - 0.25).abs() < 1e-6, "{}", controls.gain());
        for _ in 0..6 {
            said(&mut controls, UserWish::Quieter);
        }
        assert_eq!(controls.gain().to_bits(), 0);
        assert_eq!(said(&mut controls, UserWish::Mute), "the microphone is muted");
        assert!(controls.is_muted());
        assert_eq!(said(&mut controls, UserWish::Mute), "the microphone is on");
        assert_eq!(controls.handle_wish(&UserWish::BeginOrEnd), None);
        assert_eq!(LocalControls::new(255), LocalControls::new(100));
    }
}
