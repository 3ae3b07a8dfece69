//! Corrects the declined sections of an answer: video, and audio without a supported codec.
//!
//! In: an answer and the offer. Out: the corrected answer. [`super::write_answer`] writes port 0
//! and format 0 and leaves the section out of the bundle, but RFC 3264 section 6 requires an
//! offered format. A section that the offer bundles stays in the bundle as inactive; outside it
//! would need its own transport, for which aiortc waits forever. A section that is not bundled, or
//! that the offer stops, keeps port 0. Sources: RFC 3264 section 6, RFC 9143 sections 7.3 and
//! 7.3.3, RFC 8829 section 5.3.1.

use std::collections::HashSet;

use super::section::is_direction;

const GROUP: &str = "a=group:BUNDLE";

/// A section that was taken out of an offer, and that an answer declines (RFC 3264 section 6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclinedSection {
    /// Its place in the offer.
    pub index: usize,
    /// Its lines in the answer.
    pub lines: String,
}

/// Puts the declined sections into an answer, in the places of the offer, and removes a bundle that
/// it must not have.
pub fn insert_declined_sections(answer: &str, declined: &[DeclinedSection], has_bundle: bool) -> String {
    if declined.is_empty() && has_bundle {
        return answer.to_owned();
    }
    let (head, sections) = parse(answer);
    let mut sections: Vec<String> = sections
        .iter()
        .map(|section| section.lines.iter().flat_map(|line| [*line, "\r\n"]).collect())
        .collect();
    for DeclinedSection { index, lines } in declined {
        sections.insert((*index).min(sections.len()), lines.clone());
    }
    let head = head.iter().filter(|line| has_bundle || !line.starts_with(GROUP));
    let head: String = head.flat_map(|line| [*line, "\r\n"]).collect();
    head + &sections.concat()
}

/// The lines of a section.
struct SdpSection<'a> {
    lines: Vec<&'a str>,
}

impl<'a> SdpSection<'a> {
    fn value(&self, prefix: &str) -> Option<&'a str> {
        self.lines.iter().find_map(|line| line.strip_prefix(prefix))
    }

    fn has(&self, line: &str) -> bool {
        self.lines.contains(&line)
    }

    fn word(&self, nth: usize) -> Option<&'a str> {
        self.lines.first().and_then(|media| media.split(' ').nth(nth))
    }

    fn is_rejected(&self) -> bool {
        self.word(1) == Some("0")
    }
}

/// Splits a description into its session lines and its sections.
fn parse(text: &str) -> (Vec<&str>, Vec<SdpSection<'_>>) {
    let mut head = Vec::new();
    let mut sections: Vec<SdpSection<'_>> = Vec::new();
    for line in text.lines() {
        if line.starts_with("m=") {
            sections.push(SdpSection { lines: Vec::new() });
        }
        sections
            .last_mut()
            .map_or(&mut head, |section| &mut section.lines)
            .push(line);
    }
    (head, sections)
}

fn bundled_mids<'a>(head: &[&'a str]) -> HashSet<&'a str> {
    let groups = head.iter().filter_map(|line| line.strip_prefix(GROUP));
    groups.flat_map(str::split_whitespace).collect()
}

/// Corrects the declined sections of an answer to a client.
pub fn rewrite_declined_sections(answer: &str, offer: &str) -> String {
    rewrite(answer, offer, true)
}

/// Writes an offered format into each declined section, and leaves them out of the bundle, as
/// media-room servers expect.
pub fn name_rejected_formats(answer: &str, offer: &str) -> String {
    rewrite(answer, offer, false)
}

fn rewrite(answer: &str, offer: &str, keeps_bundled: bool) -> String {
    let (offered_head, offered) = parse(offer);
    let (head, mut sections) = parse(answer);
    let (offered_bundle, mut bundle) = (bundled_mids(&offered_head), bundled_mids(&head));
    // An answer without accepted sections has no bundle.
    let has_bundle = keeps_bundled && !bundle.is_empty();
    let mut written = Vec::new();
    for (at, section) in sections.iter_mut().enumerate() {
        let Some(offered) = offered.get(at).filter(|_| section.is_rejected()) else {
            continue;
        };
        if section.word(0) == Some("m=application") {
            continue;
        }
        let (Some(format), Some(profile), Some(kind)) = (offered.word(3), section.word(2), section.word(0)) else {
            continue;
        };
        let mid = section.value("a=mid:").filter(|mid| offered_bundle.contains(mid));
        let is_stopped = offered.is_rejected() && !offered.has("a=bundle-only");
        let stays = mid.filter(|_| has_bundle && !is_stopped);
        bundle.extend(stays);
        let port = if stays.is_some() { "9" } else { "0" };
        let map = format!("a=rtpmap:{format} ");
        let map = offered.lines.iter().find(|line| line.starts_with(&map));
        let map = map.copied().filter(|map| !section.has(map));
        if stays.is_some() {
            section
                .lines
                .retain(|line| !line.strip_prefix("a=").is_some_and(is_direction));
            let wanted = ["a=inactive", "a=rtcp-mux"].into_iter();
            let wanted: Vec<&str> = wanted.filter(|line| !section.has(line)).collect();
            section.lines.extend(wanted);
        }
        section.lines.extend(map);
        written.push((at, format!("{kind} {port} {profile} {format}")));
    }
    let mids: Vec<&str> = sections.iter().filter_map(|section| section.value("a=mid:")).collect();
    let mids: String = mids
        .into_iter()
        .filter(|mid| bundle.contains(mid))
        .flat_map(|mid| [" ", mid])
        .collect();
    let mut text = String::with_capacity(answer.len() + 64);
    let mut push = |line: &str| {
        text.push_str(line);
        text.push_str("\r\n");
    };
    for line in head {
        if line.starts_with(GROUP) {
            push(&format!("{GROUP}{mids}"));
        } else {
            push(line);
        }
    }
    for (at, section) in sections.iter().enumerate() {
        let media = written.iter().find(|(written, _)| *written == at);
        for (number, line) in section.lines.iter().enumerate() {
            match media {
                Some((_, media)) if number == 0 => push(media),
                _ => push(line),
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declined_sections_are_put_into_their_places() {
        let answer = "v=0\r\na=group:BUNDLE 1\r\na=x\r\nm=audio 9 A 1\r\na=mid:1\r\nm=video 9 B 2\r\n";
        let text = |index, lines: &str| DeclinedSection {
            index,
            lines: lines.to_owned(),
        };
        let declined = [text(0, "m=text 0 T 1\r\n"), text(3, "m=image 0 I 2\r\n")];
        assert_eq!(
            insert_declined_sections(answer, &declined, true),
            "v=0\r\na=group:BUNDLE 1\r\na=x\r\nm=text 0 T 1\r\nm=audio 9 A 1\r\na=mid:1\r\nm=video 9 B 2\r\n\
             m=image 0 I 2\r\n"
        );
        assert_eq!(
            insert_declined_sections(answer, &[], false),
            answer.replace("a=group:BUNDLE 1\r\n", "")
        );
        assert_eq!(insert_declined_sections(answer, &[], true), answer);
    }

    const HEAD: &str = "v=0\r\no=- 1 2 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\n";

    fn sections(head: &str, sections: &[&str]) -> String {
        let text = [&[HEAD, head], sections].concat().join("");
        text.replace('\n', "\r\n").replace("\r\r", "\r")
    }

    const ANSWERED: [&str; 2] = [
        "m=audio 9 UDP/TLS/RTP/SAVPF 111\na=mid:0\na=sendrecv\n",
        "m=video 0 UDP/TLS/RTP/SAVPF 0\na=mid:1\na=sendonly\n",
    ];

    fn declined(group: &str, video: &str) -> String {
        let offer = sections(group, &["m=audio 9 UDP/TLS/RTP/SAVPF 111\na=mid:0\n", video]);
        rewrite_declined_sections(&sections("a=group:BUNDLE 0\n", &ANSWERED), &offer)
    }

    const VIDEO: &str = "m=video 9 UDP/TLS/RTP/SAVPF 96 97\na=mid:1\na=sendrecv\na=rtpmap:96 VP8/90000\n";

    /// A bundled section stays in the bundle, with an offered format.
    #[test]
    fn a_bundled_section_stays_in_the_bundle() {
        let wanted = sections(
            "a=group:BUNDLE 0 1\n",
            &[
                ANSWERED[0],
                "m=video 9 UDP/TLS/RTP/SAVPF 96\na=mid:1\na=inactive\na=rtcp-mux\na=rtpmap:96 VP8/90000\n",
            ],
        );
        let video = declined("a=group:BUNDLE 0 1\n", VIDEO);
        assert_eq!(video, wanted);
        let bundle_only = VIDEO
            .replace("video 9", "video 0")
            .replace("a=mid:1", "a=bundle-only\na=mid:1");
        assert_eq!(declined("a=group:BUNDLE 0 1\n", &bundle_only), wanted);
    }

    /// Sections that are not bundled, or that the offer stops, are rejected.
    #[test]
    fn any_other_section_is_rejected() {
        let wanted = sections(
            "a=group:BUNDLE 0\n",
            &[
                ANSWERED[0],
                "m=video 0 UDP/TLS/RTP/SAVPF 96\na=mid:1\na=sendonly\na=rtpmap:96 VP8/90000\n",
            ],
        );
        assert_eq!(declined("a=group:BUNDLE 0\n", VIDEO), wanted);
        assert_eq!(declined("", VIDEO), wanted);
        let stopped = VIDEO.replace("video 9", "video 0");
        assert_eq!(declined("a=group:BUNDLE 0 1\n", &stopped), wanted);
    }

    /// An answer without a bundle does not get one.
    #[test]
    fn no_bundle_is_invented() {
        let offer = sections(
            "a=group:BUNDLE 0 1\n",
            &["m=audio 9 UDP/TLS/RTP/SAVPF 111\na=mid:0\n", VIDEO],
        );
        let answer = rewrite_declined_sections(&sections("", &ANSWERED), &offer);
        assert!(answer.contains("m=video 0 UDP/TLS/RTP/SAVPF 96\r\n") && !answer.contains("BUNDLE"));
    }

    /// A second pass changes nothing, nor does the offer of another answer.
    #[test]
    fn rewriting_is_idempotent() {
        let once = declined("a=group:BUNDLE 0 1\n", VIDEO);
        let offer = sections(
            "a=group:BUNDLE 0 1\n",
            &["m=audio 9 UDP/TLS/RTP/SAVPF 111\na=mid:0\n", VIDEO],
        );
        assert_eq!(rewrite_declined_sections(&once, &offer), once);
        assert_eq!(rewrite_declined_sections("m=video 0 a 0\n", ""), "m=video 0 a 0\r\n");
        assert_eq!(rewrite_declined_sections("m=\nm", "m=\n"), "m=\r\nm\r\n");
    }
}
