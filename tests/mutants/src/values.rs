//! Constants of a type, for functions that are made to return one.
//!
//! In: a type. Out: expressions of it. Those that the compiler refuses, because a type has no
//! default for example, are dropped later.

use quote::ToTokens;
use syn::{GenericArgument, PathArguments, Type};

/// The most values of a type, so that tuples stay few.
const VALUES_MAX: usize = 6;

/// Returns expressions of the type `of`; none for `impl Trait` and `!`.
pub fn of(of: &Type) -> Vec<String> {
    let mut values = match of {
        Type::Path(path) => of_path(path),
        Type::Reference(reference) => of_reference(reference),
        Type::Tuple(tuple) => tuple.elems.iter().fold(vec![String::new()], |firsts, element| {
            let nexts = self::of(element);
            firsts
                .iter()
                .flat_map(|first| nexts.iter().map(move |next| format!("{first}{next}, ")))
                .collect()
        }),
        Type::Array(array) => {
            let length = array.len.to_token_stream().to_string();
            return self::of(&array.elem)
                .iter()
                .map(|value| format!("[{value}; {length}]"))
                .collect();
        }
        Type::Paren(inner) => return self::of(&inner.elem),
        _ => Vec::new(),
    };
    if let Type::Tuple(_) = of {
        values = values.iter().map(|value| format!("({})", value.trim_end())).collect();
    }
    values.truncate(VALUES_MAX);
    values
}

fn each(values: &[String], around: impl Fn(&str) -> String) -> Vec<String> {
    values.iter().map(|value| around(value)).collect()
}

fn of_path(path: &syn::TypePath) -> Vec<String> {
    let Some(last) = path.path.segments.last() else {
        return Vec::new();
    };
    let inner: Vec<Vec<String>> = match &last.arguments {
        PathArguments::AngleBracketed(arguments) => arguments
            .args
            .iter()
            .filter_map(|argument| match argument {
                GenericArgument::Type(inner) => Some(self::of(inner)),
                _ => None,
            })
            .collect(),
        _ => Vec::new(),
    };
    let first = inner.first().cloned().unwrap_or_default();
    let all = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    match last.ident.to_string().as_str() {
        "bool" => all(&["true", "false"]),
        "u8" | "u16" | "u32" | "u64" | "u128" | "usize" => all(&["0", "1"]),
        "i8" | "i16" | "i32" | "i64" | "i128" | "isize" => all(&["0", "1", "-1"]),
        "f32" | "f64" => all(&["0.0", "1.0", "-1.0"]),
        "char" => all(&["'x'"]),
        "String" => all(&["String::new()", "\"xyzzy\".into()"]),
        "Option" => [all(&["None"]), each(&first, |value| format!("Some({value})"))].concat(),
        "Result" if inner.is_empty() => all(&["Ok(Default::default())"]),
        "Result" => each(&first, |value| format!("Ok({value})")),
        "Vec" => [all(&["vec![]"]), each(&first, |value| format!("vec![{value}]"))].concat(),
        "Box" | "Arc" | "Rc" => each(&first, |value| format!("{}::new({value})", last.ident)),
        "Cow" => each(&first, |value| format!("std::borrow::Cow::Owned({value}.to_owned())")),
        _ => all(&["Default::default()"]),
    }
}

fn of_reference(reference: &syn::TypeReference) -> Vec<String> {
    match &*reference.elem {
        Type::Path(path) if path.path.is_ident("str") => vec!["\"\"".to_owned(), "\"xyzzy\"".to_owned()],
        Type::Slice(slice) => [
            vec!["Vec::leak(vec![])".to_owned()],
            each(&of(&slice.elem), |value| format!("Vec::leak(vec![{value}])")),
        ]
        .concat(),
        elem => each(&of(elem), |value| format!("Box::leak(Box::new({value}))")),
    }
}
