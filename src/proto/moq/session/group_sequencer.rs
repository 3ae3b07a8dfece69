//! Numbers the packets of a track whose groups may arrive in any order.
//!
//! In: the group of each frame, in the order of arrival, and the ends of groups. Out: sequence
//! numbers for the jitter buffer. They are consecutive for packets that are, with a number left out
//! for each missing packet. With one packet per group, as most peers send, the number follows the
//! group. Where groups have several, each missing or unfinished group counts as many packets as the
//! last complete one; a guess that is too high costs a short wait, and no concealment, because the
//! timestamps show no gap.

use std::collections::VecDeque;

/// Groups that are remembered. Peers drop a group after 500 ms, which is 25 groups of 20 ms.
const GROUPS_MAX: usize = 64;
/// Missing groups that are counted as lost packets. More are a pause of the publisher.
const MISSING_MAX: u64 = 64;
/// Packets per group that are expected of a missing group: 1 s.
const PACKETS_PER_GROUP_MAX: u64 = 50;
/// The number of the first packet, with as many before it for earlier groups that arrive late.
const FIRST_SEQUENCE: u64 = 1 << 32;

struct NumberedGroup {
    group: u64,
    /// The number of its first packet.
    start: u64,
    packets: u64,
    is_complete: bool,
}

/// Numbers the packets of one subscription.
pub struct GroupSequencer {
    /// By ascending group.
    groups: VecDeque<NumberedGroup>,
    /// Packets of the last complete group.
    packets_per_group: u64,
}

impl Default for GroupSequencer {
    fn default() -> Self {
        GroupSequencer {
            groups: VecDeque::new(),
            packets_per_group: 1,
        }
    }
}

impl GroupSequencer {
    /// Returns the number of the next packet of a group. `None` if packets of later groups have all
    /// numbers that were left out: it comes too late.
    pub fn next(&mut self, group: u64) -> Option<u64> {
        let place = self.groups.partition_point(|each| each.group < group);
        let following = match self.groups.get(place) {
            Some(known) if known.group == group => self.groups.get(place + 1),
            following => following,
        };
        let limit = following.map_or(u64::MAX, |following| following.start);
        if let Some(known) = self.groups.get_mut(place).filter(|each| each.group == group) {
            let sequence = known.start + known.packets;
            known.packets += 1;
            return (sequence < limit).then_some(sequence);
        }
        let start = self.start_of(group, place);
        if start >= limit {
            return None;
        }
        self.groups.insert(
            place,
            NumberedGroup {
                group,
                start,
                packets: 1,
                is_complete: false,
            },
        );
        if self.groups.len() > GROUPS_MAX {
            self.groups.pop_front();
        }
        Some(start)
    }

    /// Handles the end of a group. A group that was aborted may lack packets.
    pub fn handle_group_ended(&mut self, group: u64, is_reset: bool) {
        let place = self.groups.partition_point(|each| each.group < group);
        if let Some(known) = self
            .groups
            .get_mut(place)
            .filter(|each| each.group == group && !is_reset)
        {
            known.is_complete = true;
            self.packets_per_group = known.packets.min(PACKETS_PER_GROUP_MAX);
        }
    }

    /// Returns the number of the first packet of a new group at this place.
    fn start_of(&self, group: u64, place: usize) -> u64 {
        let before = place.checked_sub(1).and_then(|before| self.groups.get(before));
        let first_free = before.map_or(0, |before| before.start + before.packets);
        if let Some(following) = self.groups.get(place) {
            let distance = (following.group - group).saturating_mul(self.packets_per_group);
            return following.start.saturating_sub(distance).max(first_free);
        }
        let Some(before) = before else {
            return FIRST_SEQUENCE;
        };
        let missing = (group - before.group - 1).min(MISSING_MAX) * self.packets_per_group;
        let of_before = match before.is_complete {
            true => before.packets,
            false => before.packets.max(self.packets_per_group),
        };
        before.start + of_before + missing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers from the first one on.
    fn numbers(sequencer: &mut GroupSequencer, groups: &[u64]) -> Vec<Option<i64>> {
        groups
            .iter()
            .map(|group| sequencer.next(*group).map(|it| it as i64 - FIRST_SEQUENCE as i64))
            .collect()
    }

    #[test]
    fn one_packet_per_group_follows_the_groups() {
        let mut sequencer = GroupSequencer::default();
        let got = numbers(&mut sequencer, &[100, 101, 103, 102, 106, 105, 99]);
        assert_eq!(got, [0, 1, 3, 2, 6, 5, -1].map(Some));
        assert_eq!(numbers(&mut sequencer, &[101]), [None], "no number is left");
    }

    /// Pipecat's encoder flushes its last packets into one group.
    #[test]
    fn a_group_with_more_packets_moves_the_later_ones() {
        let mut sequencer = GroupSequencer::default();
        assert_eq!(numbers(&mut sequencer, &[0, 1, 1, 1]), [0, 1, 2, 3].map(Some));
        sequencer.handle_group_ended(1, false);
        assert_eq!(numbers(&mut sequencer, &[2]), [Some(4)]);
        sequencer.handle_group_ended(2, false);
        assert_eq!(numbers(&mut sequencer, &[4, 3, 5, 7]), [6, 5, 7, 9].map(Some));
    }

    #[test]
    fn groups_of_several_packets_leave_numbers_for_what_is_missing() {
        let mut sequencer = GroupSequencer::default();
        assert_eq!(numbers(&mut sequencer, &[0, 0, 0]), [0, 1, 2].map(Some));
        sequencer.handle_group_ended(0, false);
        // The second packet of group 1 is retransmitted after group 2 begins; group 3 is missing.
        let got = numbers(&mut sequencer, &[1, 2, 1, 2, 1, 2, 4, 4]);
        assert_eq!(got, [3, 6, 4, 7, 5, 8, 12, 13].map(Some));
        assert_eq!(
            numbers(&mut sequencer, &[3, 3, 3, 3]),
            [Some(9), Some(10), Some(11), None]
        );
        // An aborted group says nothing about the others.
        sequencer.handle_group_ended(4, true);
        assert_eq!(numbers(&mut sequencer, &[5]), [Some(15)]);
    }

    /// One endless group is as good as any.
    #[test]
    fn a_single_group_counts_its_packets() {
        let mut sequencer = GroupSequencer::default();
        let got = numbers(&mut sequencer, &[7; 1_000]);
        assert!(got.iter().zip(0..).all(|(number, expected)| *number == Some(expected)));
    }

    #[test]
    fn any_groups_are_accepted_and_bounded() {
        let mut sequencer = GroupSequencer::default();
        let mut state = 5_u64;
        let mut numbered = 0;
        for round in 0..20_000_u64 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let group = match state >> 62 {
                0 => state >> 2,
                1 => u64::MAX >> 2,
                _ => round / 3 + (state >> 60),
            };
            numbered += u32::from(sequencer.next(group).is_some());
            sequencer.handle_group_ended(state >> 50, false);
            assert!(sequencer.groups.len() <= GROUPS_MAX);
        }
        assert!(numbered > 1_000);
    }
}
