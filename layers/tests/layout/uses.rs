//! Finds in a source file which modules of its crate it uses.
//!
//! No full parser: it reads `use` trees and paths that start with `crate` or `super`, after comments and texts have
//! been blanked out. That is enough for code that `rustfmt` has been over.

use std::path::Path;

/// Where a file stands: `mint/layer.rs` is `["mint", "layer"]`, `mint/mod.rs` is `["mint"]`.
pub(crate) fn module_path(file: &Path) -> Vec<String> {
    let mut path: Vec<String> =
        file.with_extension("").iter().map(|part| part.to_str().unwrap().to_owned()).collect();
    path.pop_if(|last| last == "mod");
    path
}

/// The modules at the top of the crate that the file at `here` uses, each with its line, from 1.
pub(crate) fn of_the_crate(source: &str, here: &[String]) -> Vec<(usize, String)> {
    let text = blank(source);
    let mut found = Vec::new();
    for start in ["crate::", "super::"] {
        for (at, _) in text.match_indices(start) {
            let before = text[..at].chars().next_back();
            if before.is_some_and(|it| it.is_alphanumeric() || it == '_' || it == ':' || it == '$') {
                continue;
            }
            let mut rest = &text[at..];
            let mut path = if rest.starts_with("crate::") {
                rest = &rest["crate::".len()..];
                Vec::new()
            } else {
                let mut path = here.to_vec();
                while let Some(next) = rest.strip_prefix("super::") {
                    path.pop();
                    rest = next;
                }
                path
            };
            let line = 1 + text[..at].matches('\n').count();
            let mut add = |names: Vec<(usize, String)>| {
                found.extend(names.into_iter().map(|(further, name)| (line + further, name)));
            };
            if path.is_empty() {
                add(heads(rest));
            } else {
                add(vec![(0, path.swap_remove(0))]);
            }
        }
    }
    found.sort();
    found
}

/// The first names of a use tree: of `a::b` it is `a`, of `{a::b, c}` it is `a` and `c`. Each with the number of lines
/// in front of it.
fn heads(tree: &str) -> Vec<(usize, String)> {
    let Some(group) = tree.strip_prefix('{') else {
        let name: String = tree.chars().take_while(|it| it.is_alphanumeric() || *it == '_').collect();
        // `crate::check` and the like: something of `lib.rs` itself, which is no module.
        return if name.is_empty() { Vec::new() } else { vec![(0, name)] };
    };
    let (mut depth, mut lines, mut expected) = (0, 0, true);
    let mut names = Vec::new();
    for (at, letter) in group.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            '\n' => lines += 1,
            ',' if depth == 0 => expected = true,
            _ if expected && depth == 0 && !letter.is_whitespace() => {
                expected = false;
                names.extend(heads(&group[at..]).into_iter().map(|(_, name)| (lines, name)));
            }
            _ => {}
        }
    }
    names
}

/// The source with spaces instead of comments and texts; lines stay where they are.
fn blank(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(letter) = rest.chars().next() {
        let taken = match letter {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |end| end + 2),
            'r' if rest.starts_with("r\"") || rest.starts_with("r#") => raw_text(rest),
            '"' => text(rest),
            '\'' if rest.starts_with("'\"'") => 3,
            _ => 0,
        };
        if taken == 0 {
            out.push(letter);
            rest = &rest[letter.len_utf8()..];
        } else {
            out.extend(rest[..taken].chars().map(|it| if it == '\n' { '\n' } else { ' ' }));
            rest = &rest[taken..];
        }
    }
    out
}

/// The length of the text that `source` starts with.
fn text(source: &str) -> usize {
    let mut escaped = false;
    for (at, letter) in source.char_indices().skip(1) {
        match letter {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    source.len()
}

/// As [`text`], for `r"..."` and `r#"..."#`; 0 for a raw name such as `r#type`.
fn raw_text(source: &str) -> usize {
    let hashes = source[1..].chars().take_while(|it| *it == '#').count();
    let Some(inside) = source[1 + hashes..].strip_prefix('"') else { return 0 };
    let end = format!("\"{}", "#".repeat(hashes));
    inside.find(&end).map_or(source.len(), |at| 2 + hashes + at + end.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(source: &str, here: &str) -> Vec<(usize, String)> {
        of_the_crate(source, &module_path(Path::new(here)))
    }

    fn only(line: usize, name: &str) -> Vec<(usize, String)> {
        vec![(line, name.to_owned())]
    }

    #[test]
    fn uses_are_found_in_every_form() {
        for source in [
            "use crate::mint;",
            "use crate::mint::MintLayer;",
            "pub(crate) use crate::mint::{MintLayer, Mint};",
            "use crate::{mint::{self, MintLayer}};",
            "fn f(mint: crate::mint::Mint) {}",
            "type T = Vec<crate::mint::Mint>;",
            "/* crate::a */ use crate::mint::Mint; // crate::b",
            "const A: &str = \"crate::a\"; use crate::mint as other;",
            "const A: &str = r#\"\"crate::a\"#; use crate::mint::*;",
            "const A: char = '\"'; use crate::mint::*;",
            "use super::super::mint::Mint;",
        ] {
            assert_eq!(names(source, "context/layer.rs"), only(1, "mint"), "{source}");
        }
    }

    #[test]
    fn lines_are_those_of_the_names() {
        let source =
            "//! crate::a\n\nuse crate::{\n    error::{\n        BoxError,\n    },\n    mint::Mint,\n};\n";
        let expected = vec![(4, "error".to_owned()), (7, "mint".to_owned())];
        assert_eq!(names(source, "context/mod.rs"), expected);
    }

    #[test]
    fn a_module_may_look_at_its_own_parts() {
        assert_eq!(names("use super::Mint;", "mint/layer.rs"), only(1, "mint"));
        assert_eq!(names("use super::mint::Mint;", "context/mod.rs"), only(1, "mint"));
        assert_eq!(names("use super::mint::Mint;", "context/layer.rs"), only(1, "context"));
        assert_eq!(names("use super::super::mint::Mint;", "trtllm/request/error.rs"), only(1, "trtllm"));
        assert_eq!(names("use super::mint::Mint;", "call.rs"), only(1, "mint"));
        assert_eq!(names("let my_crate::x = 1; $crate::y; self::z::q", "call.rs"), vec![]);
    }
}
