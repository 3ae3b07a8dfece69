//! What the kernel is asked of a sound card, and what it answers: `struct snd_pcm_hw_params`.
//!
//! In: ranges of what is wanted. Out: ranges that the card has, after the system call
//! `SNDRV_PCM_IOCTL_HW_REFINE`, and single values after `SNDRV_PCM_IOCTL_HW_PARAMS`. The layout is
//! that of processors of 32 or 64 bits; it has no time, and so is the same with 64-bit time.
//! Source: `include/uapi/sound/asound.h` of Linux.

use std::ffi::c_ulong;
use std::ops::RangeInclusive;

/// The number of `SNDRV_PCM_IOCTL_HW_REFINE` in the group [`IOCTL_GROUP`].
pub const IOCTL_HW_REFINE: u8 = 0x10;
/// The number of `SNDRV_PCM_IOCTL_HW_PARAMS`.
pub const IOCTL_HW_PARAMS: u8 = 0x11;
/// The number of `SNDRV_PCM_IOCTL_PREPARE`, which takes no argument.
pub const IOCTL_PREPARE: u8 = 0x40;
/// The group of the system calls of PCM.
pub const IOCTL_GROUP: u8 = b'A';

/// `SNDRV_PCM_ACCESS_RW_INTERLEAVED`: `read` and `write` move whole frames.
pub const ACCESS_INTERLEAVED: u32 = 3;

/// The masks that are set: `SNDRV_PCM_HW_PARAM_ACCESS` and the next ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum CardMask {
    Access,
    Format,
}

/// The intervals that are set, counted from `SNDRV_PCM_HW_PARAM_FIRST_INTERVAL`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum CardInterval {
    Channels = 2,
    /// In Hz.
    Rate = 3,
    /// In frames.
    Period = 5,
    /// In frames.
    Buffer = 9,
}

const MASKS: usize = 3 + 5;
const INTERVALS: usize = 12 + 9;

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mask([u32; 8]);

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Interval {
    min: u32,
    max: u32,
    /// Bit 0: without `min` itself. Bit 1: without `max`. Bit 2: whole numbers only. Bit 3: empty.
    flags: u32,
}

/// `struct snd_pcm_hw_params`.
#[repr(C)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HwParams {
    flags: u32,
    masks: [Mask; MASKS],
    intervals: [Interval; INTERVALS],
    /// The parameters to refine, and those that have changed.
    requested: u32,
    changed: u32,
    info: u32,
    significant_bits: u32,
    rate_numerator: u32,
    rate_denominator: u32,
    fifo_frames: c_ulong,
    sync: [u8; 16],
    reserved: [u8; 48],
}

impl HwParams {
    /// Returns everything that a card could have.
    pub fn any() -> HwParams {
        HwParams {
            flags: 0,
            masks: [Mask([u32::MAX; 8]); MASKS],
            intervals: [Interval {
                min: 0,
                max: u32::MAX,
                flags: 0,
            }; INTERVALS],
            requested: u32::MAX,
            changed: 0,
            info: u32::MAX,
            significant_bits: 0,
            rate_numerator: 0,
            rate_denominator: 0,
            fifo_frames: 0,
            sync: [0; 16],
            reserved: [0; 48],
        }
    }

    /// Whether a mask has this bit.
    pub fn has(&self, mask: CardMask, bit: u32) -> bool {
        let Mask(words) = &self.masks[mask as usize];
        words[bit as usize / 32] & (1 << (bit % 32)) != 0
    }

    /// Leaves one bit in a mask.
    pub fn set_only(&mut self, mask: CardMask, bit: u32) {
        let Mask(words) = &mut self.masks[mask as usize];
        *words = [0; 8];
        words[bit as usize / 32] = 1 << (bit % 32);
        self.requested = u32::MAX;
    }

    /// Returns the whole numbers of an interval.
    pub fn range(&self, interval: CardInterval) -> RangeInclusive<u32> {
        let Interval { min, max, flags } = self.intervals[interval as usize];
        min.saturating_add(flags & 1)..=max.saturating_sub((flags >> 1) & 1)
    }

    /// Sets an interval, with both ends.
    pub fn set_range(&mut self, interval: CardInterval, range: RangeInclusive<u32>) {
        let interval = &mut self.intervals[interval as usize];
        (interval.min, interval.max) = range.into_inner();
        interval.flags &= !3;
        self.requested = u32::MAX;
    }
}

#[cfg(test)]
mod tests {
    use std::mem::{offset_of, size_of};

    use super::*;

    /// The numbers of both system calls contain the size: 0xc2604110 and 0xc25c4110 in the tables
    /// of `strace` for processors of 64 and 32 bits.
    #[test]
    fn the_layout_is_that_of_the_kernel() {
        let long = size_of::<usize>();
        assert_eq!(size_of::<HwParams>(), if long == 8 { 0x260 } else { 0x25c });
        assert_eq!(offset_of!(HwParams, masks), 4);
        assert_eq!(offset_of!(HwParams, intervals), 260);
        assert_eq!(offset_of!(HwParams, requested), 512);
        assert_eq!(offset_of!(HwParams, info), 520);
        assert_eq!(offset_of!(HwParams, fifo_frames), 536);
        assert_eq!(offset_of!(HwParams, sync), 536 + long);
        assert_eq!(size_of::<Interval>(), 12);
        // SNDRV_PCM_HW_PARAM_CHANNELS is 10, RATE 11, PERIOD_SIZE 13, BUFFER_SIZE 17; the first of
        // all is 8.
        let numbers = [
            CardInterval::Channels,
            CardInterval::Rate,
            CardInterval::Period,
            CardInterval::Buffer,
        ];
        assert_eq!(numbers.map(|interval| 8 + interval as usize), [10, 11, 13, 17]);
    }

    #[test]
    fn masks_have_bits_in_words() {
        let mut params = HwParams::any();
        assert!(params.has(CardMask::Format, 0) && params.has(CardMask::Format, 255));
        params.set_only(CardMask::Format, 32);
        assert!(params.has(CardMask::Format, 32));
        assert!(!params.has(CardMask::Format, 0) && !params.has(CardMask::Format, 33));
        assert!(params.has(CardMask::Access, ACCESS_INTERLEAVED), "the other mask stays");
    }

    #[test]
    fn open_ends_are_no_part_of_a_range() {
        let mut params = HwParams::any();
        params.set_range(CardInterval::Period, 160..=170);
        params.intervals[CardInterval::Period as usize].flags |= 3;
        assert_eq!(params.range(CardInterval::Period), 161..=169);
        params.set_range(CardInterval::Period, 160..=170);
        assert_eq!(params.range(CardInterval::Period), 160..=170);
    }
}
