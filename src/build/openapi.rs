//! Converts `docs/openapi.yaml` to JSON, which the runner serves at `/openapi.json`.
//!
//! In: YAML in the few forms of that file: block mappings and sequences that are indented by
//! spaces, flow mappings and sequences within a line, plain and single-quoted scalars. Out: JSON
//! without white space, with members in the order of the file; or an error with the number of its
//! line for anything else, such as an anchor, a comment behind a value, or a word that YAML parsers
//! read differently.

/// Converts a document.
///
/// # Errors
/// What is wrong, and where.
pub fn to_json(yaml: &str) -> Result<String, String> {
    let lines = yaml.lines().enumerate().filter_map(|(at, line)| {
        let text = line.trim_start_matches(' ');
        let has_content = !(text.is_empty() || text.starts_with('#'));
        has_content.then(|| YamlLine {
            number: at + 1,
            indent: line.len() - text.len(),
            text: text.trim_end(),
        })
    });
    let mut document = YamlDocument {
        lines: lines.collect(),
        at: 0,
        json: String::new(),
    };
    let converted = document.node(0).and_then(|()| match document.lines.get(document.at) {
        Some(_) => Err("it belongs to no line above".to_owned()),
        None => Ok(()),
    });
    let number = document.lines.get(document.at).map_or(0, |line| line.number);
    converted.map_err(|wrong| format!("line {number}: {wrong}"))?;
    Ok(document.json)
}

struct YamlLine<'y> {
    number: usize,
    indent: usize,
    text: &'y str,
}

struct YamlDocument<'y> {
    lines: Vec<YamlLine<'y>>,
    /// The index of the line that is converted.
    at: usize,
    json: String,
}

impl<'y> YamlDocument<'y> {
    /// Converts the node of the lines with this indentation.
    fn node(&mut self, indent: usize) -> Result<(), String> {
        match self.text(indent) {
            Some(text) if text.starts_with("- ") => self.sequence(indent),
            Some(_) => self.mapping(indent),
            None => Err("a value is missing".to_owned()),
        }
    }

    /// Returns the line that is next, if it has this indentation.
    fn text(&self, indent: usize) -> Option<&'y str> {
        let line = self.lines.get(self.at).filter(|line| line.indent == indent)?;
        Some(line.text)
    }

    fn sequence(&mut self, indent: usize) -> Result<(), String> {
        let mut separator = '[';
        while let Some(item) = self.text(indent).and_then(|text| text.strip_prefix("- ")) {
            self.json.push(separator);
            separator = ',';
            if item.starts_with(['{', '[']) || split_key(item).is_none() {
                self.inline(item)?;
                self.at += 1;
            } else {
                // The members of a mapping are in the column of the first one.
                let line = &mut self.lines[self.at];
                (line.indent, line.text) = (indent + 2, item);
                self.mapping(indent + 2)?;
            }
        }
        self.json.push(']');
        Ok(())
    }

    fn mapping(&mut self, indent: usize) -> Result<(), String> {
        let mut separator = '{';
        while let Some(text) = self.text(indent) {
            let (key, value) = split_key(text).ok_or("it has no key")?;
            self.json.push(separator);
            separator = ',';
            push_text(&mut self.json, &key)?;
            self.json.push(':');
            if value.is_empty() {
                self.at += 1;
                let deeper = self.lines.get(self.at).map(|line| line.indent);
                self.node(deeper.filter(|deeper| *deeper > indent).ok_or("a value is missing")?)?;
            } else {
                self.inline(value)?;
                self.at += 1;
            }
        }
        self.json.push('}');
        Ok(())
    }

    /// Converts a value within a line.
    fn inline(&mut self, text: &str) -> Result<(), String> {
        let mut flow = YamlFlow {
            rest: text,
            json: &mut self.json,
        };
        if text.starts_with(['{', '[', '\'']) {
            flow.value()?;
        } else {
            let plain = std::mem::take(&mut flow.rest);
            flow.plain(plain)?;
        }
        match flow.rest {
            "" => Ok(()),
            rest => Err(format!("`{rest}` stands behind the value")),
        }
    }
}

/// Splits a line at the colon behind its key.
fn split_key(text: &str) -> Option<(String, &str)> {
    let (key, rest) = match text.strip_prefix('\'') {
        Some(quoted) => split_quoted(quoted)?,
        None => {
            let end = text
                .match_indices(':')
                .map(|(at, _)| at)
                .find(|at| text[at + 1..].is_empty() || text[at + 1..].starts_with(' '))?;
            (text[..end].to_owned(), &text[end..])
        }
    };
    Some((key, rest.strip_prefix(':')?.trim_start()))
}

/// Splits a text behind its opening quote: what is quoted, and what stands behind.
fn split_quoted(text: &str) -> Option<(String, &str)> {
    let (mut quoted, mut rest) = (String::new(), text);
    loop {
        let (part, behind) = rest.split_once('\'')?;
        quoted += part;
        match behind.strip_prefix('\'') {
            Some(more) => (quoted, rest) = (quoted + "'", more),
            None => return Some((quoted, behind)),
        }
    }
}

/// The values of a line, from the next one on.
struct YamlFlow<'y, 'j> {
    rest: &'y str,
    json: &'j mut String,
}

impl YamlFlow<'_, '_> {
    fn value(&mut self) -> Result<(), String> {
        if let Some(rest) = self.rest.strip_prefix('{') {
            self.rest = rest;
            return self.members('}', |flow| {
                let (key, rest) = split_key(flow.rest).ok_or("a member has no key")?;
                push_text(flow.json, &key)?;
                flow.json.push(':');
                flow.rest = rest;
                flow.value()
            });
        }
        if let Some(rest) = self.rest.strip_prefix('[') {
            self.rest = rest;
            return self.members(']', Self::value);
        }
        if let Some(quoted) = self.rest.strip_prefix('\'') {
            let (text, rest) = split_quoted(quoted).ok_or("a quote is missing")?;
            self.rest = rest;
            return push_text(self.json, &text);
        }
        let end = self.rest.find([',', '{', '}', '[', ']']).unwrap_or(self.rest.len());
        let (plain, rest) = self.rest.split_at(end);
        self.rest = rest;
        self.plain(plain.trim())
    }

    /// Converts what stands between brackets; the first one was read.
    fn members(&mut self, end: char, mut member: impl FnMut(&mut Self) -> Result<(), String>) -> Result<(), String> {
        self.json.push(if end == '}' { '{' } else { '[' });
        let mut is_first = true;
        loop {
            self.rest = self.rest.trim_start();
            if let Some(rest) = self.rest.strip_prefix(end) {
                self.rest = rest;
                self.json.push(end);
                return Ok(());
            }
            if !is_first {
                self.rest = self.rest.strip_prefix(',').ok_or("a comma is missing")?.trim_start();
                self.json.push(',');
            }
            is_first = false;
            member(self)?;
        }
    }

    /// Converts a scalar without quotes: a literal of JSON, or a text.
    fn plain(&mut self, text: &str) -> Result<(), String> {
        let is_special = text.is_empty() || text.starts_with(['"', '|', '>', '&', '*', '!', '%', '@', '`', '#', '?']);
        let is_word = ["yes", "no", "on", "off", "y", "n", "~"].contains(&text.to_lowercase().as_str());
        if is_special || is_word || text.contains(": ") || text.contains(" #") || text.starts_with("- ") {
            return Err(format!("`{text}` needs single quotes"));
        }
        let digits = text.strip_prefix('-').unwrap_or(text);
        let is_number = !digits.is_empty()
            && digits.split('.').count() <= 2
            && digits
                .split('.')
                .all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))
            && (digits == "0" || digits.starts_with("0.") || !digits.starts_with('0'));
        match is_number || ["true", "false", "null"].contains(&text) {
            true => self.json.push_str(text),
            false => push_text(self.json, text)?,
        }
        Ok(())
    }
}

/// Appends a text as JSON.
fn push_text(json: &mut String, text: &str) -> Result<(), String> {
    json.push('"');
    for letter in text.chars() {
        match letter {
            '"' | '\\' => json.extend(['\\', letter]),
            letter if letter.is_control() => return Err("a text has a control character".to_owned()),
            letter => json.push(letter),
        }
    }
    json.push('"');
    Ok(())
}
