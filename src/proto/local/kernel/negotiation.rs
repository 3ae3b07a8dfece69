//! The form of PCM that a card is set to.
//!
//! In: the rate that is wanted, and a card that refines ranges. Out: the nearest that the card has:
//! 16 bits before more of them, one channel before several, the wanted rate before the usual ones,
//! periods of 10 ms and a buffer of 40 ms. Formats and rates are those that the runner converts.

use std::time::Duration;

use super::CardError;
use super::params::{ACCESS_INTERLEAVED, CardInterval, CardMask, HwParams};

/// Rates to try after the wanted one, in Hz.
const RATES_HZ: [u32; 4] = [16_000, 48_000, 44_100, 32_000];
/// Periods per second, and in a buffer.
const PERIODS_HZ: u32 = 100;
const PERIODS: u32 = 4;

/// A format of samples: signed and little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CardFormat {
    S16,
    S32,
    /// 24 bits in 3 bytes.
    S24In3,
}

impl CardFormat {
    const ALL: [CardFormat; 3] = [CardFormat::S16, CardFormat::S32, CardFormat::S24In3];

    /// Returns the number of `SNDRV_PCM_FORMAT_S16_LE`, `_S32_LE` or `_S24_3LE`.
    fn number(self) -> u32 {
        match self {
            CardFormat::S16 => 2,
            CardFormat::S32 => 10,
            CardFormat::S24In3 => 32,
        }
    }

    /// Returns the bytes of a sample.
    pub fn bytes(self) -> usize {
        match self {
            CardFormat::S16 => 2,
            CardFormat::S32 => 4,
            CardFormat::S24In3 => 3,
        }
    }
}

/// The form of a card's PCM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CardForm {
    pub format: CardFormat,
    pub channels: u32,
    pub rate_hz: u32,
    /// Frames between two interrupts of the card.
    pub period_frames: u32,
    pub buffer_frames: u32,
}

impl CardForm {
    /// Reads what a card was set to.
    ///
    /// # Errors
    /// [`CardError`] for a card that is set to nothing that was asked.
    pub fn of(params: &HwParams) -> Result<CardForm, CardError> {
        let has = |format: &CardFormat| params.has(CardMask::Format, format.number());
        let value = |interval| *params.range(interval).start();
        let form = CardForm {
            format: CardFormat::ALL.into_iter().find(has).ok_or(CardError::Format)?,
            channels: value(CardInterval::Channels),
            rate_hz: value(CardInterval::Rate),
            period_frames: value(CardInterval::Period),
            buffer_frames: value(CardInterval::Buffer),
        };
        match [form.channels, form.rate_hz, form.period_frames, form.buffer_frames].contains(&0) {
            true => Err(CardError::Other(format!("the card has set itself to {form:?}"))),
            false => Ok(form),
        }
    }

    /// Returns the bytes of a frame.
    pub fn frame_bytes(&self) -> usize {
        self.format.bytes() * self.channels as usize
    }

    /// Returns the frames of a time.
    pub fn frames_in(&self, time: Duration) -> u32 {
        (time.as_millis() as u64 * u64::from(self.rate_hz) / 1_000) as u32
    }

    /// Returns the time of frames.
    pub fn length(&self, frames: u32) -> Duration {
        Duration::from_secs(frames.into()) / self.rate_hz
    }
}

/// A card that says which of some ranges it has: `Ok(false)` if it has none of them.
pub type RefineCard<'a> = dyn FnMut(&mut HwParams) -> Result<bool, CardError> + 'a;

/// Chooses what a card is set to, for PCM of this rate.
///
/// # Errors
/// [`CardError`] of a card that fails, or has nothing that the runner converts.
pub fn negotiate(wanted_hz: u32, refine: &mut RefineCard<'_>) -> Result<HwParams, CardError> {
    let mut params = HwParams::any();
    params.set_only(CardMask::Access, ACCESS_INTERLEAVED);
    if !refine(&mut params)? {
        return Err(CardError::Other("it has no interleaved channels".to_owned()));
    }
    let formats = CardFormat::ALL.into_iter().map(|format| {
        let mut tried = params.clone();
        tried.set_only(CardMask::Format, format.number());
        tried
    });
    params = first(formats, refine)?.ok_or(CardError::Format)?;
    params = nearest(params, CardInterval::Channels, 1, refine)?;
    let (least, most) = params.range(CardInterval::Rate).into_inner();
    let rates = [wanted_hz].into_iter().chain(RATES_HZ);
    let rates = rates.map(|rate_hz| with(&params, CardInterval::Rate, rate_hz, rate_hz));
    params = first(rates, refine)?.ok_or(CardError::Rate(least, most))?;
    let period = *params.range(CardInterval::Rate).start() / PERIODS_HZ;
    params = nearest(params, CardInterval::Period, period, refine)?;
    // A card whose periods are longer holds two of them at least.
    let period = period.max(*params.range(CardInterval::Period).start() / 2);
    nearest(params, CardInterval::Buffer, period * PERIODS, refine)
}

fn with(params: &HwParams, interval: CardInterval, least: u32, most: u32) -> HwParams {
    let mut tried = params.clone();
    tried.set_range(interval, least..=most);
    tried
}

/// Returns the first of several that a card has, as it refines it.
fn first(all: impl Iterator<Item = HwParams>, refine: &mut RefineCard<'_>) -> Result<Option<HwParams>, CardError> {
    for mut tried in all {
        if refine(&mut tried)? {
            return Ok(Some(tried));
        }
    }
    Ok(None)
}

/// Sets an interval to the value nearest to the wanted one. What a card takes only as a range, it
/// chooses from that range itself.
fn nearest(
    params: HwParams,
    interval: CardInterval,
    wanted: u32,
    refine: &mut RefineCard<'_>,
) -> Result<HwParams, CardError> {
    let (least, most) = params.range(interval).into_inner();
    let mut values = Vec::new();
    if wanted <= most {
        let above = with(&params, interval, wanted.max(least), most);
        let above = first([above].into_iter(), refine)?;
        values.extend(above.map(|above| *above.range(interval).start()));
    }
    if wanted >= least {
        let below = with(&params, interval, least, wanted.min(most));
        let below = first([below].into_iter(), refine)?;
        values.extend(below.map(|below| *below.range(interval).end()));
    }
    if values.len() == 2 && values[0].abs_diff(wanted) > values[1].abs_diff(wanted) {
        values.swap(0, 1);
    }
    let exact = values.into_iter().map(|value| with(&params, interval, value, value));
    Ok(first(exact, refine)?.unwrap_or(params))
}
