//! Packs the built-in page: compresses every file of `src/page` that is not Rust into a gzip
//! member in `OUT_DIR`, and generates the table `page.rs` there for `src/page/mod.rs`. The
//! extension of a file determines its content type; an unknown extension fails the build. Packs
//! the package for bots in Python as well ([`pack_python`]), the files of `edge-runner new`
//! ([`pack_new`]), and the description of the HTTP routes ([`pack_openapi`]).
//!
//! The format is gzip (RFC 1952) with the DEFLATE of miniz_oxide. It has no time stamp, so that
//! builds are reproducible.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

use miniz_oxide::deflate::{compress_to_vec, compress_to_vec_zlib};

use crate::openapi::to_json;

/// The highest compression level of miniz_oxide.
const LEVEL: u8 = 10;

/// Packs all of them, as far as the features want them.
pub fn pack() {
    let var = |name| PathBuf::from(env::var(name).expect("cargo sets it for build scripts"));
    let (folder, out) = (var("CARGO_MANIFEST_DIR").join("src/page"), var("OUT_DIR"));
    println!("cargo::rerun-if-changed=src/page");
    pack_python(&var("CARGO_MANIFEST_DIR").join("src/io/process/python"), &out);
    if env::var_os("CARGO_FEATURE_NEW").is_some() {
        pack_new(&var("CARGO_MANIFEST_DIR").join("src/cli/new/kinds"), &out);
    }
    if env::var_os("CARGO_FEATURE_PAGE").is_none() {
        return;
    }

    let mut table = String::from("static ASSETS: &[Asset] = &[\n");
    let has_setup = env::var_os("CARGO_FEATURE_SETUP").is_some();
    for path in files(&folder) {
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .expect("names are UTF-8");
        if name.starts_with("setup") && !has_setup {
            continue;
        }
        let identity = fs::read(&path).expect("a listed file can be read");
        writeln!(table, "    {},", packed(name, &identity, &out)).expect("writing to a string cannot fail");
    }
    let description = match env::var_os("CARGO_FEATURE_CALLS") {
        Some(_) => format!("Some({})", pack_openapi(&var("CARGO_MANIFEST_DIR"), &out)),
        None => "None".to_owned(),
    };
    writeln!(table, "];\nstatic OPENAPI: Option<Asset> = {description};").expect("writing to a string cannot fail");
    fs::write(out.join("page.rs"), table).expect("OUT_DIR can be written");
}

/// Compresses a file into `out`. Returns its `Asset` in Rust.
fn packed(name: &str, identity: &[u8], out: &Path) -> String {
    let crc = crc32(identity);
    fs::write(out.join(format!("{name}.gz")), gzip(identity, crc)).expect("OUT_DIR can be written");
    format!(
        "Asset {{ name: {name:?}, content_type: {:?}, etag: {:?}, identity_bytes: {}, \
         gzip: include_bytes!(concat!(env!(\"OUT_DIR\"), {:?})) }}",
        content_type(name),
        format!("W/\"{crc:08x}-{:x}\"", identity.len()),
        identity.len(),
        format!("/{name}.gz"),
    )
}

/// Packs the description of the routes, as JSON. Returns its `Asset` in Rust.
fn pack_openapi(root: &Path, out: &Path) -> String {
    let file = root.join("docs/openapi.yaml");
    println!("cargo::rerun-if-changed={}", file.display());
    let yaml = fs::read_to_string(&file).expect("the description is part of the package");
    let json = to_json(&yaml).unwrap_or_else(|wrong| panic!("docs/openapi.yaml: {wrong}"));
    packed("openapi.json", json.as_bytes(), out)
}

/// Packs the package for bots in Python into one program for an interpreter's standard input: a
/// statement that unpacks the sources of its modules, and the file that imports them. Its text is
/// ASCII, and compressed as zlib (RFC 1950) in base 64.
fn pack_python(folder: &Path, out: &Path) {
    println!("cargo::rerun-if-changed={}", folder.display());
    let read = |path: &Path| fs::read_to_string(path).expect("a listed file can be read");
    let mut sources = String::new();
    let is_module = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "py");
    for path in files(&folder.join("edge_runner")).into_iter().filter(is_module) {
        let stem = path
            .file_stem()
            .and_then(|stem| stem.to_str())
            .expect("names are UTF-8");
        let name = match stem {
            "__init__" => "edge_runner".to_owned(),
            module => format!("edge_runner.{module}"),
        };
        writeln!(sources, "{name}\n{}\0", read(&path).trim_end()).expect("writing to a string cannot fail");
    }
    let packed = base64(&compress_to_vec_zlib(sources.as_bytes(), LEVEL));
    let program = format!(
        "import base64, zlib\nSOURCES = dict(\n    part.split(\"\\n\", 1) for part in \
         zlib.decompress(base64.b64decode(\"{packed}\")).decode().split(\"\\0\\n\") if part\n)\n{}",
        read(&folder.join("start.py"))
    );
    fs::write(out.join("edge_runner.py"), program).expect("OUT_DIR can be written");
}

/// Packs the files of new bots: for each its path below `folder`, a line feed, its text, and a zero
/// byte; compressed together, since they resemble each other.
fn pack_new(folder: &Path, out: &Path) {
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut packed = Vec::new();
    for path in files_below(folder) {
        let name = path.strip_prefix(folder).expect("a path below the folder");
        let name = name.to_str().expect("names are UTF-8");
        // Files of these names here would be read by cargo and git.
        let name = name
            .replace("manifest.toml", "Cargo.toml")
            .replace("gitignore", ".gitignore");
        packed.extend_from_slice(name.as_bytes());
        packed.push(b'\n');
        packed.extend(fs::read(&path).expect("a listed file can be read"));
        packed.push(0);
    }
    fs::write(out.join("new.deflate"), compress_to_vec(&packed, LEVEL)).expect("OUT_DIR can be written");
}

/// Returns the files of a folder and of those in it, sorted by path. What tests of the files leave
/// behind is not one of them.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("the folder is there") {
        let path = entry.expect("a folder can be listed").path();
        match path.is_dir() {
            true if path.ends_with("__pycache__") => {}
            true => found.extend(files_below(&path)),
            false => found.push(path),
        }
    }
    found.sort();
    found
}

/// Base 64 of RFC 4648.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for part in bytes.chunks(3) {
        let number = part
            .iter()
            .fold(0_usize, |number, byte| (number << 8) | usize::from(*byte))
            << (8 * (3 - part.len()));
        for digit in 0..4 {
            text.push(match digit <= part.len() {
                true => char::from(DIGITS[(number >> (18 - 6 * digit)) & 63]),
                false => '=',
            });
        }
    }
    text
}

/// Returns the files of the page, sorted by name, because `read_dir` has no defined order.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .expect("the page's folder is there")
        .map(|entry| entry.expect("a folder can be listed").path())
        .filter(|path| path.extension().is_some_and(|ending| ending != "rs"))
        .collect();
    files.sort();
    files
}

fn content_type(name: &str) -> &'static str {
    match name.rsplit_once('.').map(|(_, ending)| ending) {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("webmanifest") => "application/manifest+json",
        Some("json") => "application/json",
        _ => panic!("{name}: the page knows html, css, js, svg, png, webmanifest and json"),
    }
}

fn gzip(identity: &[u8], crc: u32) -> Vec<u8> {
    // Magic, DEFLATE, no flags, no time, best compression, unknown system.
    let mut gzip = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 2, 255];
    gzip.extend(compress_to_vec(identity, LEVEL));
    gzip.extend(crc.to_le_bytes());
    gzip.extend(u32::try_from(identity.len()).expect("a page is small").to_le_bytes());
    gzip
}

/// CRC-32 of RFC 1952, section 8, bit by bit, which is fast enough for a page.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0_u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg())
        })
    })
}
