//! Stretches a file of a corpus to a length so that it stays what it is: an element or a member of
//! JSON, the characters of a string, a level of nesting, a line or a word is repeated at its place.
//! A file of another format has a few of its bytes repeated.

use std::ops::Range;

/// Levels of nesting that are read.
const DEPTH_MAX: usize = 64;

/// Where the values of JSON in a file are.
#[derive(Default)]
struct JsonPlaces {
    /// Elements of arrays.
    elements: Vec<Range<usize>>,
    /// Members of objects: what is between the quotes of the key, and the value.
    members: Vec<(Range<usize>, Range<usize>)>,
    /// What is between the quotes of strings that are values.
    strings: Vec<Range<usize>>,
    values: Vec<Range<usize>>,
}

fn skip_space(text: &[u8], at: usize) -> usize {
    let rest = text.get(at..).unwrap_or_default();
    at + rest.iter().take_while(|byte| byte.is_ascii_whitespace()).count()
}

impl JsonPlaces {
    /// Finds every JSON text in a file, which may have other text around it.
    fn find(file: &[u8]) -> JsonPlaces {
        let (mut found, mut at) = (JsonPlaces::default(), 0);
        while at < file.len() {
            let mut places = JsonPlaces::default();
            let end = matches!(file[at], b'{' | b'[')
                .then(|| places.value(file, at, 0))
                .flatten();
            if end.is_some() {
                found.elements.extend(places.elements);
                found.members.extend(places.members);
                found.strings.extend(places.strings);
                found.values.extend(places.values);
            }
            at = end.unwrap_or(at + 1);
        }
        found
    }

    /// Reads a value that begins here. Returns its end.
    fn value(&mut self, text: &[u8], at: usize, depth: usize) -> Option<usize> {
        if depth == DEPTH_MAX {
            return None;
        }
        let end = match text.get(at)? {
            b'{' => self.list(text, at, depth, b'}')?,
            b'[' => self.list(text, at, depth, b']')?,
            b'"' => {
                let end = string(text, at)?;
                self.strings.push(at + 1..end - 1);
                end
            }
            _ => {
                let is_of_word = |byte: &&u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
                let length = text[at..].iter().take_while(is_of_word).count();
                (length > 0).then_some(at + length)?
            }
        };
        self.values.push(at..end);
        Some(end)
    }

    /// Reads an array or an object.
    fn list(&mut self, text: &[u8], at: usize, depth: usize, close: u8) -> Option<usize> {
        let mut at = skip_space(text, at + 1);
        if text.get(at) == Some(&close) {
            return Some(at + 1);
        }
        loop {
            let begin = at;
            let mut key = None;
            if close == b'}' {
                let end = string(text, at)?;
                key = Some(at + 1..end - 1);
                at = skip_space(text, end);
                at = (text.get(at) == Some(&b':')).then(|| skip_space(text, at + 1))?;
            }
            let end = self.value(text, at, depth + 1)?;
            match key {
                Some(key) => self.members.push((key, at..end)),
                None => self.elements.push(begin..end),
            }
            at = skip_space(text, end);
            match text.get(at)? {
                b',' => at = skip_space(text, at + 1),
                found if *found == close => return Some(at + 1),
                _ => return None,
            }
        }
    }
}

/// Reads a string with its quotes. Returns its end.
fn string(text: &[u8], at: usize) -> Option<usize> {
    let mut rest = text.get(at..)?.strip_prefix(b"\"")?.iter().enumerate();
    while let Some((nth, byte)) = rest.next() {
        match byte {
            b'"' => return Some(at + nth + 2),
            b'\\' => drop(rest.next()?),
            b'\n' => return None,
            _ => {}
        }
    }
    None
}

/// Inserts units at a place until the file has a length.
fn insert(file: &[u8], at: usize, length: usize, mut unit: impl FnMut(usize) -> Vec<u8>) -> Vec<u8> {
    let mut stretched = file[..at].to_vec();
    for nth in 0.. {
        let unit = unit(nth);
        if unit.is_empty() || stretched.len() + unit.len() + file.len() - at > length {
            break;
        }
        stretched.extend(unit);
    }
    stretched.extend(&file[at..]);
    stretched
}

fn one<T>(list: &[T], turn: usize) -> Option<&T> {
    list.get(turn % list.len().max(1))
}

/// Returns the lines of a file with their ends.
fn lines(file: &[u8]) -> Vec<Range<usize>> {
    let mut at = 0;
    let ends = file.split_inclusive(|byte| *byte == b'\n').map(|line| {
        let begin = at;
        at += line.len();
        begin..at
    });
    ends.filter(|line| file[line.clone()].ends_with(b"\n") && line.len() > 2)
        .collect()
}

/// Returns a line with a number of its own: its first number, or else a letter of its first word.
fn numbered(line: &[u8], nth: usize) -> Vec<u8> {
    let is_digit = |byte: &u8| byte.is_ascii_digit();
    let at = line.iter().position(is_digit).unwrap_or(1);
    let digits = line[at..].iter().take_while(|byte| is_digit(byte)).count();
    [&line[..at], nth.to_string().as_bytes(), &line[at + digits..]].concat()
}

/// Returns a file stretched in several ways, and what was repeated. `turn` selects the places, so
/// that the files of a corpus have different ones.
pub fn stretched(file: &[u8], length: usize, turn: usize) -> Vec<(&'static str, Vec<u8>)> {
    let mut all = Vec::new();
    let json = JsonPlaces::find(file);
    if let Some(element) = one(&json.elements, turn) {
        let unit = [&file[element.clone()], b","].concat();
        all.push(("an element", insert(file, element.start, length, |_| unit.clone())));
    }
    if let Some((key, value)) = one(&json.members, turn) {
        let unit = |key: &[u8]| [b"\"", key, b"\":", &file[value.clone()], b","].concat();
        let at = key.start - 1;
        let same = unit(&file[key.clone()]);
        all.push(("a member", insert(file, at, length, |_| same.clone())));
        let other = |nth: usize| unit(format!("{nth}").as_bytes());
        all.push(("a member of other names", insert(file, at, length, other)));
    }
    if let Some(text) = one(&json.strings, turn) {
        // A character as a whole: no part of an escape or of several bytes.
        let first = file[text.clone()].iter().copied().find(u8::is_ascii_alphanumeric);
        let first = first.unwrap_or(b'a');
        all.push(("a character", insert(file, text.start, length, |_| vec![first])));
    }
    if let Some(value) = one(&json.values, turn) {
        for (what, open, close) in [
            ("an array around it", "[", "]"),
            ("an object around it", "{\"a\":", "}"),
        ] {
            let levels = length.saturating_sub(file.len()) / (open.len() + close.len());
            let (opened, closed) = (open.repeat(levels), close.repeat(levels));
            let nested = [
                &file[..value.start],
                opened.as_bytes(),
                &file[value.clone()],
                closed.as_bytes(),
                &file[value.end..],
            ];
            all.push((what, nested.concat()));
        }
    }
    let is_text = std::str::from_utf8(file).is_ok();
    if let Some(line) = one(&lines(file), turn).filter(|_| is_text) {
        let unit = &file[line.clone()];
        all.push(("a line", insert(file, line.start, length, |_| unit.to_vec())));
        all.push((
            "a line with a number",
            insert(file, line.start, length, |nth| numbered(unit, nth)),
        ));
    }
    let is_separator = |byte: &u8| b" ;,&/".contains(byte);
    let separators: Vec<usize> = (0..file.len()).filter(|at| is_separator(&file[*at])).collect();
    if let Some(end) = one(&separators, turn).filter(|_| is_text) {
        let before = &file[..*end];
        let is_edge = |byte: &u8| is_separator(byte) || byte.is_ascii_whitespace();
        let begin = before.iter().rposition(is_edge).map_or(0, |at| at + 1);
        let word = &file[begin..=*end];
        all.push(("a word", insert(file, begin, length, |_| word.to_vec())));
    }
    // Of other formats, and of what was not recognised.
    let places: &[usize] = if is_text { &[1 + turn % 7] } else { &[1, 3, 5, 7] };
    for at in places {
        let begin = file.len() * at / 8;
        let part = &file[begin..file.len().min(begin + 8)];
        all.push(("a part", insert(file, begin, length, |_| part.to_vec())));
    }
    all
}

#[test]
fn stretched_json_is_json() {
    let text = br#"{"a": [1, {"b\"": "x\\\"y"}, []], "c": "", "d": {"e": -1.5e3, "f": null}}"#;
    for turn in 0..24 {
        for (what, stretched) in stretched(text, 2_000, turn) {
            let is_valid = serde_json::from_slice::<serde_json::Value>(&stretched).is_ok();
            // A word may be any part of the text; the parser reads only some levels.
            let is_checked = !what.contains("around") && !["a word", "a part"].contains(&what);
            assert!(
                is_valid || !is_checked,
                "{what}: {}",
                String::from_utf8_lossy(&stretched)
            );
            assert!(stretched.len() > 1_800 && stretched.len() <= 2_000, "{what}");
        }
    }
    let nested = stretched(text, 200, 0);
    let (_, nested) = nested
        .iter()
        .find(|(what, _)| what.contains("array"))
        .expect("it has values");
    assert!(serde_json::from_slice::<serde_json::Value>(nested).is_ok());
}

#[test]
fn lines_and_words_are_repeated_where_they_are() {
    let text = b"v=0\r\na=candidate:1 1 udp\r\n";
    let of = |name: &str, turn| {
        let all = stretched(text, 80, turn);
        let (_, found) = all.into_iter().find(|(what, _)| *what == name).expect("it has lines");
        String::from_utf8(found).expect("text")
    };
    assert!(of("a line", 1).starts_with("v=0\r\na=candidate:1 1 udp\r\na=candidate:1 1 udp\r\n"));
    assert!(of("a line with a number", 1).starts_with("v=0\r\na=candidate:0 1 udp\r\na=candidate:1 1 udp\r\n"));
    assert!(of("a word", 0).starts_with("v=0\r\na=candidate:1 a=candidate:1 "));
}
