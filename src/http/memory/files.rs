//! Pages of mapped files, most of which are code that only start-up or a call needs.
//!
//! The kernel maps 16 pages where one is touched, so that start-up, which touches a few functions
//! here and there, leaves most of the program in the memory of the process. Unmapped pages stay in
//! the kernel's cache while there is room, and are mapped again when they are touched. Source:
//! proc(5), `/proc/pid/smaps`; madvise(2), `MADV_DONTNEED`.

use std::fs;
use std::ops::Range;
use std::ptr::with_exposed_provenance_mut;

use rustix::mm::{Advice, madvise};

/// Unmaps the pages of mapped files that this process cannot write and has not written. Takes about
/// a millisecond. Returns the number of mappings; none where the kernel has no `smaps`.
pub fn unmap() -> usize {
    let smaps = fs::read_to_string("/proc/self/smaps").unwrap_or_default();
    let is_unmapped = |range: &Range<usize>| {
        let start = with_exposed_provenance_mut(range.start);
        // SAFETY: no page of the range is anonymous, and none can be written. So each has what the
        // file has, from which the kernel maps it again.
        unsafe { madvise(start, range.len(), Advice::LinuxDontNeed) }.is_ok()
    };
    unwritten(&smaps).iter().filter(|range| is_unmapped(range)).count()
}

/// Returns the ranges of private mappings of files that are not writable and have no page of their
/// own. Relocated data, which is read-only later, and code with a debugger's breakpoints have some.
fn unwritten(smaps: &str) -> Vec<Range<usize>> {
    let (mut found, mut mapping) = (Vec::new(), None);
    for line in smaps.lines() {
        if let Some(range) = file_mapping(line) {
            mapping = range;
        } else if let Some(value) = line.strip_prefix("Anonymous:") {
            found.extend(mapping.take().filter(|_| value.trim() == "0 kB"));
        }
    }
    found
}

/// Reads the first line of a mapping: the outer option is `None` for other lines, the inner one for
/// mappings that are writable, shared, or of no file.
fn file_mapping(line: &str) -> Option<Option<Range<usize>>> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let start = usize::from_str_radix(start, 16).ok()?;
    let end = usize::from_str_radix(end, 16).ok()?;
    let (permissions, inode) = (words.next()?, words.nth(2)?);
    let is_file = permissions.starts_with('r') && permissions.ends_with('p') && inode != "0";
    Some((is_file && !permissions.contains('w') && start < end).then_some(start..end))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "\
55c49000-55c93000 r-xp 002d9000 fe:00 9977867                    /usr/bin/edge-runner
Size:              10252 kB
Rss:                7148 kB
Anonymous:             0 kB
VmFlags: rd ex mr mw me dw
55c93000-55c9f000 r--p 00cdb000 fe:00 9977867                    /usr/bin/edge-runner
Rss:                 412 kB
Anonymous:           412 kB
55c9f000-55ca0000 rw-p 00d44000 fe:00 9977867                    /usr/bin/edge-runner
Anonymous:             0 kB
7fef0000-7fef2000 r--s 00000000 fe:00 12                         /var/lib/shared
Anonymous:             0 kB
7fef5000-7fefb000 r-xp 00026000 fe:00 326269                     /a folder/libc.so.6 (deleted)
Anonymous:             0 kB
7ffd9000-7ffdb000 r-xp 00000000 00:00 0                          [vdso]
Anonymous:             0 kB
";

    #[test]
    fn only_unwritten_mappings_of_files_are_unmapped() {
        assert_eq!(unwritten(SMAPS), [0x55c4_9000..0x55c9_3000, 0x7fef_5000..0x7fef_b000]);
    }

    #[test]
    fn rubbish_has_no_mapping() {
        for text in [
            "",
            "-",
            "x-y r-xp 0 0 1 /f\nAnonymous: 0 kB",
            "20-10 r-xp 0 0 1 /f\nAnonymous: 0 kB",
            "Anonymous: 0 kB",
        ] {
            assert_eq!(unwritten(text), [], "{text}");
        }
    }

    /// The code of this test is among what is unmapped, and goes on.
    #[test]
    fn the_program_goes_on_without_its_pages() {
        let smaps = fs::read_to_string("/proc/self/smaps").expect("readable");
        let here = the_program_goes_on_without_its_pages as *const () as usize;
        assert!(unwritten(&smaps).iter().any(|range| range.contains(&here)));
        assert!(unmap() > 0);
    }
}
