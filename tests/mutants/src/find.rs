//! Finds the mutants of a source file that its tests should notice.
//!
//! In: the text of a Rust file. Out: [`Site`]s, each a range of bytes with the texts that may
//! replace it. The mutants are those of cargo-mutants: another operator, a negation left out, an
//! arm of a `match` left out, a guard that is always true or false, a function that returns a
//! constant.
//! Test code, macros and constants are left alone: a constant cannot ask which mutant is on.

use std::collections::HashMap;
use std::ops::Range;

use quote::ToTokens;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{BinOp, Expr, Pat, ReturnType, UnOp};

use crate::values;

/// What a replacement stands in for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// An expression; the texts are expressions of the same type.
    Expression,
    /// The start of a function's body; the texts are values to return.
    Body,
    /// The guard of an arm; the texts are guards.
    Guard,
    /// The end of a pattern without a guard; the only mutant leaves the arm out.
    Arm,
}

/// A mutant at a site: what it is called, and the text that replaces the original.
#[derive(Clone, Debug)]
pub struct Mutant {
    pub name: String,
    pub text: String,
}

/// A place in a file, and its mutants.
#[derive(Clone, Debug)]
pub struct Site {
    pub place: Place,
    pub bytes: Range<usize>,
    pub line: usize,
    pub mutants: Vec<Mutant>,
}

/// Returns the sites of `text`, which is the file `name`.
pub fn find(name: &str, text: &str) -> syn::Result<Vec<Site>> {
    let file = syn::parse_file(text)?;
    let mut finder = Finder {
        file: name,
        text,
        path: Vec::new(),
        seen: HashMap::new(),
        found: Vec::new(),
    };
    finder.visit_file(&file);
    Ok(finder.found)
}

struct Finder<'a> {
    file: &'a str,
    text: &'a str,
    /// The type and the functions around the current place.
    path: Vec<String>,
    /// How often a name was given: the same mutant twice in a function is numbered.
    seen: HashMap<String, usize>,
    found: Vec<Site>,
}

impl Finder<'_> {
    fn site(&mut self, place: Place, spanned: &impl Spanned, mutants: Vec<(String, String)>) {
        if mutants.is_empty() {
            return;
        }
        let span = spanned.span();
        let mutants = mutants
            .into_iter()
            .map(|(what, text)| Mutant {
                name: self.name(&what),
                text,
            })
            .collect();
        self.found.push(Site {
            place,
            bytes: span.byte_range(),
            line: span.start().line,
            mutants,
        });
    }

    fn name(&mut self, what: &str) -> String {
        let name = format!("{} {}: {what}", self.file, self.path.join("::"));
        let count = self.seen.entry(name.clone()).or_insert(0);
        *count += 1;
        if *count == 1 { name } else { format!("{name} ({count})") }
    }

    fn source(&self, spanned: &impl Spanned) -> &str {
        &self.text[spanned.span().byte_range()]
    }

    /// Mutants of a function's body. `Default::default` returns a constant already.
    fn body(&mut self, signature: &syn::Signature, block: &syn::Block) {
        if block.stmts.is_empty() || signature.unsafety.is_some() {
            return;
        }
        let returned = match &signature.output {
            ReturnType::Default => vec![String::new()],
            ReturnType::Type(_, returned) => values::of(returned),
        };
        let whole = self.source(block).trim_matches(['{', '}']).trim().to_owned();
        let mutants = returned
            .into_iter()
            .filter(|value| *value != whole)
            .map(|value| {
                let shown = if value.is_empty() { "()" } else { &value };
                (format!("return {shown}"), format!("return {value};"))
            })
            .collect();
        self.site(Place::Body, block, mutants);
    }

    fn function(&mut self, attributes: &[syn::Attribute], signature: &syn::Signature, within: impl FnOnce(&mut Self)) {
        if is_test(attributes) || signature.constness.is_some() {
            return;
        }
        self.path.push(signature.ident.to_string());
        within(self);
        self.path.pop();
    }
}

/// Returns whether an item exists only in tests.
fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("test")
            || attribute.path().is_ident("cfg") && attribute.meta.to_token_stream().to_string().contains("test")
    })
}

/// Returns whether `expression` is a chain with a `let`, which no parentheses may enclose.
fn has_let(expression: &Expr) -> bool {
    match expression {
        Expr::Let(_) => true,
        Expr::Binary(binary) if matches!(binary.op, BinOp::And(_)) => has_let(&binary.left) || has_let(&binary.right),
        _ => false,
    }
}

/// Returns the operators that replace `operator`.
fn others(operator: &BinOp) -> &'static [&'static str] {
    match operator {
        BinOp::Eq(_) => &["!="],
        BinOp::Ne(_) => &["=="],
        BinOp::Lt(_) => &["==", ">", "<="],
        BinOp::Gt(_) => &["==", "<", ">="],
        BinOp::Le(_) => &[">", "<"],
        BinOp::Ge(_) => &["<", ">"],
        BinOp::And(_) => &["||"],
        BinOp::Or(_) => &["&&"],
        BinOp::Add(_) => &["-", "*"],
        BinOp::Sub(_) => &["+", "/"],
        BinOp::Mul(_) => &["+", "/"],
        BinOp::Div(_) => &["%", "*"],
        BinOp::Rem(_) => &["/", "+"],
        BinOp::Shl(_) => &[">>"],
        BinOp::Shr(_) => &["<<"],
        BinOp::BitAnd(_) => &["|", "^"],
        BinOp::BitOr(_) => &["&", "^"],
        BinOp::BitXor(_) => &["|", "&"],
        BinOp::AddAssign(_) => &["-=", "*="],
        BinOp::SubAssign(_) => &["+=", "/="],
        BinOp::MulAssign(_) => &["+=", "/="],
        BinOp::DivAssign(_) => &["%=", "*="],
        BinOp::RemAssign(_) => &["/=", "+="],
        BinOp::ShlAssign(_) => &[">>="],
        BinOp::ShrAssign(_) => &["<<="],
        BinOp::BitAndAssign(_) => &["|=", "^="],
        BinOp::BitOrAssign(_) => &["&=", "^="],
        BinOp::BitXorAssign(_) => &["|=", "&="],
        _ => &[],
    }
}

/// Returns a type or trait as it is written, without spaces.
fn plain(tokens: &impl ToTokens) -> String {
    tokens.to_token_stream().to_string().replace(' ', "")
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.function(&item.attrs, &item.sig, |finder| {
            finder.body(&item.sig, &item.block);
            finder.visit_block(&item.block);
        });
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.function(&item.attrs, &item.sig, |finder| {
            if item.sig.ident != "default" {
                finder.body(&item.sig, &item.block);
            }
            finder.visit_block(&item.block);
        });
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        let Some(block) = &item.default else { return };
        self.function(&item.attrs, &item.sig, |finder| {
            finder.body(&item.sig, block);
            finder.visit_block(block);
        });
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_test(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if is_test(&item.attrs) {
            return;
        }
        let of = plain(&item.self_ty);
        self.path.push(match &item.trait_ {
            Some((_, implemented, _)) => format!("<{} for {of}>", plain(implemented)),
            None => of,
        });
        visit::visit_item_impl(self, item);
        self.path.pop();
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.path.push(item.ident.to_string());
        visit::visit_item_trait(self, item);
        self.path.pop();
    }

    fn visit_expr_binary(&mut self, binary: &'ast syn::ExprBinary) {
        if !has_let(&Expr::Binary(binary.clone())) {
            let (left, right) = (self.source(&binary.left), self.source(&binary.right));
            let is_assignment = plain(&binary.op).ends_with('=')
                && !matches!(binary.op, BinOp::Eq(_) | BinOp::Ne(_) | BinOp::Le(_) | BinOp::Ge(_));
            let mutants = others(&binary.op)
                .iter()
                .map(|other| {
                    let text = if is_assignment {
                        format!("{left} {other} {right}")
                    } else {
                        format!("({left}) {other} ({right})")
                    };
                    (format!("{} becomes {other}", plain(&binary.op)), text)
                })
                .collect();
            self.site(Place::Expression, binary, mutants);
        }
        visit::visit_expr_binary(self, binary);
    }

    fn visit_expr_unary(&mut self, unary: &'ast syn::ExprUnary) {
        if matches!(unary.op, UnOp::Not(_) | UnOp::Neg(_)) {
            let operand = self.source(&unary.expr).to_owned();
            let mutant = (format!("without {}", plain(&unary.op)), operand);
            self.site(Place::Expression, unary, vec![mutant]);
        }
        visit::visit_expr_unary(self, unary);
    }

    fn visit_expr_match(&mut self, expression: &'ast syn::ExprMatch) {
        let has_rest = expression
            .arms
            .iter()
            .any(|arm| matches!(arm.pat, Pat::Wild(_)) && arm.guard.is_none());
        for arm in &expression.arms {
            let shown = self.source(&arm.pat).split_whitespace().collect::<Vec<_>>().join(" ");
            let leave_out = (format!("without the arm {shown}"), "false".to_owned());
            let removable = has_rest && !matches!(arm.pat, Pat::Wild(_));
            match &arm.guard {
                Some((_, guard)) if !has_let(guard) => {
                    let always = (format!("the guard of {shown} holds"), "true".to_owned());
                    let never = (format!("the guard of {shown} fails"), "false".to_owned());
                    self.site(Place::Guard, guard, vec![always, never]);
                }
                None if removable => self.site(Place::Arm, &arm.pat, vec![leave_out]),
                _ => {}
            }
        }
        visit::visit_expr_match(self, expression);
    }

    fn visit_expr_repeat(&mut self, repeat: &'ast syn::ExprRepeat) {
        self.visit_expr(&repeat.expr);
    }

    fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}
    fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}
    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}
    fn visit_trait_item_const(&mut self, _: &'ast syn::TraitItemConst) {}
    fn visit_expr_const(&mut self, _: &'ast syn::ExprConst) {}
    fn visit_variant(&mut self, _: &'ast syn::Variant) {}
    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}
    fn visit_type(&mut self, _: &'ast syn::Type) {}
    fn visit_pat(&mut self, _: &'ast Pat) {}
    fn visit_generic_argument(&mut self, _: &'ast syn::GenericArgument) {}
}
