//! Parses typed arguments with a table of options.

use std::ffi::OsString;

use super::UsageError;
use super::suggest::nearest;
use super::table::{Flag, FlagKind, OptionStore, OptionTable, ValueSource};
use crate::aliases::{self, Area};

/// An option that ends parsing and prints a text.
pub enum SpecialMode {
    /// The whole help, of `--help`.
    Help,
    /// The short help, of `-h`.
    ShortHelp,
    Version,
}

/// Splits off and returns the arguments after `--`; `None` without `--`.
pub fn split_command(arguments: &mut Vec<OsString>) -> Option<Vec<OsString>> {
    let at = arguments.iter().position(|argument| argument == "--")?;
    Some(arguments.split_off(at).split_off(1))
}

/// Parses typed options into `args`.
///
/// # Errors
/// [`UsageError`] for the first invalid option or value.
pub fn parse<T: OptionStore>(
    args: &mut T,
    table: &OptionTable<T>,
    options: Vec<OsString>,
) -> Result<Option<SpecialMode>, UsageError> {
    let mut parser = lexopt::Parser::from_args(options);
    while let Some(argument) = parser.next().map_err(from_lexopt)? {
        let (flag, name) = match argument {
            lexopt::Arg::Short(short) => (by_short(table, short)?, format!("-{short}")),
            lexopt::Arg::Long(long) => {
                let name = format!("--{long}");
                (by_long(table, &name).ok_or_else(|| unknown(table, &name))?, name)
            }
            lexopt::Arg::Value(value) if args.begins_command(&value) => {
                let rest = parser.raw_args().map_err(from_lexopt)?;
                args.set_command(std::iter::once(value).chain(rest).collect());
                return Ok(None);
            }
            lexopt::Arg::Value(value) => {
                store_positional(args, table, value)?;
                continue;
            }
        };
        args.given().push(flag.long);
        match flag.kind {
            FlagKind::Help if name.starts_with("--") => return Ok(Some(SpecialMode::Help)),
            FlagKind::Help => return Ok(Some(SpecialMode::ShortHelp)),
            FlagKind::Version => return Ok(Some(SpecialMode::Version)),
            // `given` has it.
            FlagKind::Report => {}
            // lexopt reports an attached value in the next iteration.
            FlagKind::Switch(set) | FlagKind::Count(set) => {
                set(args);
                args.record(flag, "", ValueSource::Typed);
            }
            FlagKind::Value(word, _) | FlagKind::Repeatable(word, _) => {
                let value = one_value(&mut parser, &name, word)?;
                store(args, flag, ValueSource::Typed, &name, &value.text)?;
            }
            FlagKind::Optional(words, _) => {
                let value = word_or_first(&mut parser, words)?;
                store(args, flag, ValueSource::Typed, &name, &value)?;
            }
            FlagKind::List(word, _) => {
                let first = one_value(&mut parser, &name, word)?;
                let attached = first.attached;
                store(args, flag, ValueSource::Typed, &name, &first.text)?;
                // `--name=value` is one value; after `--name value` more may follow.
                while !attached
                    && !next_argument(&mut parser).is_some_and(|next| args.begins_command(&next))
                    && let Some(more) = next_value(&mut parser)?
                {
                    store(args, flag, ValueSource::Typed, &name, &more.text)?;
                }
            }
        }
    }
    Ok(None)
}

/// A value, and whether it was written as `--name=value`.
struct OptionValue {
    text: String,
    attached: bool,
}

fn one_value(parser: &mut lexopt::Parser, name: &str, word: &'static str) -> Result<OptionValue, UsageError> {
    if let Some(value) = parser.optional_value() {
        let text = value.into_string().map_err(not_unicode)?;
        return Ok(OptionValue { text, attached: true });
    }
    next_value(parser)?.ok_or_else(|| UsageError::MissingValue {
        option: name.to_owned(),
        word,
    })
}

/// Returns an attached value, the next argument if it is one of these words, or else the first of
/// them.
fn word_or_first(parser: &mut lexopt::Parser, words: &'static str) -> Result<String, UsageError> {
    if let Some(value) = parser.optional_value() {
        return value.into_string().map_err(not_unicode);
    }
    let is_word = |argument: &std::ffi::OsStr| words.split('|').any(|word| argument == word);
    let next = parser.try_raw_args().and_then(|mut rest| rest.next_if(is_word));
    match next {
        Some(word) => word.into_string().map_err(not_unicode),
        None => Ok(first_word(words).to_owned()),
    }
}

/// Returns the first of the words that an option takes: what it means without a value.
pub(crate) fn first_word(words: &'static str) -> &'static str {
    words.split('|').next().unwrap_or_default()
}

fn next_argument(parser: &mut lexopt::Parser) -> Option<OsString> {
    parser.try_raw_args()?.peek().map(OsString::from)
}

/// Returns the next argument unless it is an option. A negative number is a value: the setter of
/// its option reports it.
fn next_value(parser: &mut lexopt::Parser) -> Result<Option<OptionValue>, UsageError> {
    let Some(mut rest) = parser.try_raw_args() else {
        return Ok(None);
    };
    let value = rest.next_if(|argument| {
        let bytes = argument.as_encoded_bytes();
        bytes.len() < 2 || bytes[0] != b'-' || bytes[1].is_ascii_digit()
    });
    let text = value
        .map(|value| value.into_string().map_err(not_unicode))
        .transpose()?;
    Ok(text.map(|text| OptionValue { text, attached: false }))
}

/// Passes a value to the setter of an option. `name` is that of the option, of its variable, or
/// of its entry in the file of settings.
pub(crate) fn store<T: OptionStore>(
    args: &mut T,
    flag: &'static Flag<T>,
    source: ValueSource,
    name: &str,
    value: &str,
) -> Result<(), UsageError> {
    if let FlagKind::Value(_, set)
    | FlagKind::Optional(_, set)
    | FlagKind::Repeatable(_, set)
    | FlagKind::List(_, set) = flag.kind
    {
        set(args, value.to_owned()).map_err(|wants| UsageError::value(name, value, wants))?;
        args.record(flag, value, source);
    }
    Ok(())
}

fn by_short<T>(table: &OptionTable<T>, short: char) -> Result<&'static Flag<T>, UsageError> {
    let found = table.flags().find(|flag| flag.short == Some(short));
    found.ok_or_else(|| UsageError::UnknownShortOption {
        given: short,
        known: table.flags().filter_map(|flag| flag.short).collect(),
    })
}

fn by_long<T>(table: &OptionTable<T>, name: &str) -> Option<&'static Flag<T>> {
    let canonical = aliases::canonical(Area::Option, name);
    table.flags().find(|flag| flag.long == canonical)
}

fn unknown<T>(table: &OptionTable<T>, given: &str) -> UsageError {
    let names = table
        .flags()
        .flat_map(|flag| std::iter::once(flag.long).chain(aliases::aliases(Area::Option, flag.long).iter().copied()));
    let name = given.split('=').next().unwrap_or_default();
    let nearest = nearest(name, names).map(|name| format!("`{name}`"));
    UsageError::UnknownOption {
        given: given.to_owned(),
        nearest,
    }
}

/// Stores the positional argument, if the table takes one.
fn store_positional<T: OptionStore>(args: &mut T, table: &OptionTable<T>, value: OsString) -> Result<(), UsageError> {
    match (table.argument, &*args.argument()) {
        (Some(_), None) => {
            *args.argument() = Some(value);
            Ok(())
        }
        (Some(word), Some(_)) => Err(UsageError::Combination(format!(
            "unexpected argument `{}`: only one {word} is allowed",
            value.to_string_lossy()
        ))),
        (None, _) => Err(UsageError::UnexpectedArgument(
            value.into_string().map_err(not_unicode)?,
        )),
    }
}

/// Returns the error about an argument that is not Unicode.
pub fn not_unicode(value: OsString) -> UsageError {
    UsageError::NotUnicode(value.to_string_lossy().into_owned())
}

/// Converts the errors of lexopt. The others are made above, where the placeholder of the value is
/// known.
pub fn from_lexopt(error: lexopt::Error) -> UsageError {
    match error {
        lexopt::Error::UnexpectedValue { option, .. } => UsageError::UnexpectedValue { option },
        lexopt::Error::NonUnicodeValue(value) => not_unicode(value),
        other => UsageError::Combination(other.to_string()),
    }
}
