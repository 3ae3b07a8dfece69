//! Serial numbers of tokens, with one bit each for their use.
//!
//! In: the expiry time of a number, in seconds since the key was created. Out: the next number, and
//! its [`SerialState`] later. Numbers are issued in order of expiry, and their bits are stored in
//! pages; a page is removed when its last number has expired. A number without a bit counts as
//! expired, so removing a page makes no token usable again. Past `RECORDED_TOKENS_MAX`, the
//! oldest page is removed early, and its tokens expire with it.

use std::collections::VecDeque;

/// Tokens whose use is recorded, one bit each; past it, the oldest expire early. It takes 1 MiB and
/// lasts for 28,000 tokens a second over `TOKEN_LIFE`, more than `/start` answers.
const RECORDED_TOKENS_MAX: usize = 8 * 1024 * 1024;

const WORDS: usize = 64;
/// Numbers on a page: half a kilobyte of bits.
const PAGE: u64 = (WORDS * u64::BITS as usize) as u64;
const PAGES_MAX: usize = RECORDED_TOKENS_MAX / PAGE as usize;

/// The state of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SerialState {
    /// It was not issued.
    Unknown,
    Fresh,
    Used,
    Expired,
}

/// The issued numbers that have not expired.
#[derive(Debug, Default)]
pub(super) struct Serials {
    pages: VecDeque<SerialPage>,
    /// The first number of the first page.
    first: u64,
    next: u64,
}

#[derive(Debug)]
struct SerialPage {
    /// Time at which the last of its numbers expires.
    expires: u64,
    used: [u64; WORDS],
}

impl Serials {
    /// Issues the next number.
    pub fn issue(&mut self, expires: u64) -> u64 {
        let serial = self.next;
        self.next += 1;
        match self.pages.back_mut().filter(|_| !serial.is_multiple_of(PAGE)) {
            Some(page) => page.expires = page.expires.max(expires),
            None => {
                if self.pages.len() == PAGES_MAX {
                    self.drop_first();
                }
                self.pages.push_back(SerialPage {
                    expires,
                    used: [0; WORDS],
                });
            }
        }
        serial
    }

    /// Removes the pages whose numbers have all expired, except the current one.
    pub fn expire(&mut self, second: u64) {
        while self.pages.len() > 1 && self.pages[0].expires <= second {
            self.drop_first();
        }
    }

    pub fn state(&self, serial: u64) -> SerialState {
        if serial >= self.next {
            return SerialState::Unknown;
        }
        match self.locate(serial) {
            None => SerialState::Expired,
            Some((page, word, bit)) if self.pages[page].used[word] & bit == 0 => SerialState::Fresh,
            Some(_) => SerialState::Used,
        }
    }

    /// Marks a number as used.
    pub fn redeem(&mut self, serial: u64) {
        if let Some((page, word, bit)) = self.locate(serial) {
            self.pages[page].used[word] |= bit;
        }
    }

    /// Returns the page, the word and the bit of a number.
    fn locate(&self, serial: u64) -> Option<(usize, usize, u64)> {
        let at = serial.checked_sub(self.first)?;
        let (page, on_page) = (usize::try_from(at / PAGE).ok()?, at % PAGE);
        let (word, bit) = (on_page / u64::from(u64::BITS), on_page % u64::from(u64::BITS));
        (page < self.pages.len()).then_some((page, word as usize, 1 << bit))
    }

    fn drop_first(&mut self) {
        if self.pages.pop_front().is_some() {
            self.first += PAGE;
        }
    }

    /// Returns the memory of the bits, in bytes.
    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        self.pages.capacity() * size_of::<SerialPage>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_used_once_and_its_neighbours_stay_fresh() {
        let mut serials = Serials::default();
        let given: Vec<u64> = (0..3 * PAGE).map(|_| serials.issue(300)).collect();
        assert!(given.iter().copied().eq(0..3 * PAGE));
        for used in [0, 63, 64, PAGE - 1, PAGE, 3 * PAGE - 1] {
            serials.redeem(used);
        }
        for serial in given {
            let used = [0, 63, 64, PAGE - 1, PAGE, 3 * PAGE - 1].contains(&serial);
            assert_eq!(serials.state(serial) == SerialState::Used, used, "{serial}");
        }
        for unknown in [3 * PAGE, u64::MAX] {
            assert_eq!(serials.state(unknown), SerialState::Unknown);
        }
    }

    /// A number that is redeemed again does not become fresh.
    #[test]
    fn a_used_number_stays_used() {
        let mut serials = Serials::default();
        let serial = serials.issue(300);
        for _ in 0..3 {
            serials.redeem(serial);
            assert_eq!(serials.state(serial), SerialState::Used);
        }
    }

    /// A number that was not issued cannot be redeemed in advance.
    #[test]
    fn a_number_is_redeemed_after_it_is_issued() {
        let mut serials = Serials::default();
        serials.redeem(0);
        assert_eq!(serials.state(0), SerialState::Unknown);
        for expected in 0..=PAGE {
            assert_eq!(serials.issue(300), expected);
            serials.redeem(PAGE);
        }
        assert_eq!(serials.state(0), SerialState::Fresh);
        assert_eq!(
            serials.state(PAGE),
            SerialState::Used,
            "the last call came after its issue"
        );
    }

    /// A page is removed with its last number; its numbers then count as expired, used or not.
    #[test]
    fn removed_numbers_count_as_expired() {
        let mut serials = Serials::default();
        for serial in 0..PAGE {
            serials.issue(300 + serial);
        }
        serials.redeem(1);
        let later = serials.issue(9_000);
        serials.expire(300 + PAGE - 2);
        assert_eq!(
            (serials.state(0), serials.state(1)),
            (SerialState::Fresh, SerialState::Used)
        );
        serials.expire(300 + PAGE - 1);
        assert_eq!(
            (serials.state(0), serials.state(1)),
            (SerialState::Expired, SerialState::Expired)
        );
        serials.expire(u64::MAX);
        assert_eq!(
            serials.state(later),
            SerialState::Fresh,
            "its page is the one that is filled"
        );
        serials.redeem(0);
        serials.redeem(u64::MAX);
        assert_eq!(serials.state(later), SerialState::Fresh);
    }

    /// 17,000 used tokens a second for the lifetime of a token: every number is known until it
    /// expires, within 1 MiB and the page headers.
    #[test]
    fn a_flood_of_five_minutes_takes_one_bit_per_token() {
        let mut serials = Serials::default();
        for second in 0..600 {
            serials.expire(second);
            for _ in 0..17_000 {
                let serial = serials.issue(second + 300);
                serials.redeem(serial);
            }
        }
        let first_live = 300 * 17_000;
        assert_eq!(serials.state(first_live), SerialState::Used);
        assert!(serials.bytes() <= 1_100_000, "{} bytes", serials.bytes());
    }

    /// Past the limit, the oldest numbers expire, and new ones are issued.
    #[test]
    fn past_the_cap_the_oldest_numbers_expire() {
        let mut serials = Serials::default();
        let cap = RECORDED_TOKENS_MAX as u64;
        for _ in 0..cap {
            serials.issue(300);
        }
        assert_eq!(serials.state(0), SerialState::Fresh);
        let newest = serials.issue(300);
        assert_eq!(
            (serials.state(PAGE - 1), serials.state(PAGE)),
            (SerialState::Expired, SerialState::Fresh)
        );
        assert_eq!((newest, serials.state(newest)), (cap, SerialState::Fresh));
        for _ in 0..cap {
            serials.issue(300);
        }
        assert!(serials.bytes() <= 1_100_000, "{} bytes", serials.bytes());
    }
}
