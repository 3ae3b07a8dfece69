//! How the program came onto this machine, and so what updates it.
//!
//! In: an [`InstallFacts`]. Out: an [`InstallKind`]. A file that another tool installed is not
//! replaced: the tool would bring it back, or call it damaged.

use std::fmt;
use std::path::{Component, Path};

/// What is known of the installation.
#[derive(Clone, Copy, Debug)]
pub struct InstallFacts<'a> {
    /// The file of the program, without symbolic links.
    pub program: &'a Path,
    /// Whether the program has a bot of its own, in place of the built-in ones.
    pub has_own_bot: bool,
    /// Whether dpkg lists the file.
    pub is_packaged: bool,
    /// Whether this machine runs an image of `boards/image`.
    pub is_board_image: bool,
    /// Whether a wheel was installed beside it.
    pub is_of_wheel: bool,
    /// Whether `cargo install` put it there.
    pub is_of_cargo: bool,
    /// Whether it is in cargo's folder of a build.
    pub is_of_build: bool,
}

/// Who replaces the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstallKind {
    /// This program, by the archive of a release.
    Download,
    /// This program, by the Debian package of a release.
    BoardImage,
    /// Another tool.
    Foreign(OtherTool),
}

/// What installed the program, and what updates it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OtherTool {
    name: &'static str,
    command: &'static str,
}

impl fmt::Display for OtherTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "This program was installed by {}, so update it by: {}",
            self.name, self.command
        )
    }
}

const fn tool(name: &'static str, command: &'static str) -> OtherTool {
    OtherTool { name, command }
}

const NPM: OtherTool = tool(
    "npm",
    "npm install edge-bot-runner@latest (with -g if it is installed globally)",
);
const PIPX: OtherTool = tool("pipx", "pipx upgrade edge-bot-runner");
const UV: OtherTool = tool("uv", "uv tool upgrade edge-bot-runner");
const PIP: OtherTool = tool("pip", "pip install --upgrade edge-bot-runner");
const CARGO: OtherTool = tool("cargo", "cargo install --locked edge-runner");
const BUILD: OtherTool = tool("a build from source", "cargo build --release, in a newer source");
const CONTAINER: OtherTool = tool("a container image", "a container of the image of the new version");
const OWN: OtherTool = tool("its own build", "a build with the new version of the crate edge-runner");
const DEBIAN: OtherTool = tool(
    "a Debian package",
    concat!(
        "curl -fsSLO ",
        env!("CARGO_PKG_REPOSITORY"),
        "/releases/latest/download/install.sh && sudo sh install.sh --deb"
    ),
);

impl InstallFacts<'_> {
    /// Returns who replaces the program.
    pub fn kind(&self) -> InstallKind {
        let has = |names: &[&str]| {
            let components: Vec<&str> = self.program.components().filter_map(name).collect();
            components.windows(names.len()).any(|part| part == names)
        };
        let other = if self.has_own_bot {
            OWN
        } else if self.program == Path::new("/edge-runner") {
            CONTAINER
        } else if has(&["node_modules"]) {
            NPM
        } else if self.is_packaged {
            match self.is_board_image {
                true => return InstallKind::BoardImage,
                false => DEBIAN,
            }
        } else if self.is_of_wheel {
            match (has(&["pipx", "venvs"]), has(&["uv", "tools"])) {
                (true, _) => PIPX,
                (_, true) => UV,
                _ => PIP,
            }
        } else if self.is_of_cargo {
            CARGO
        } else if self.is_of_build {
            BUILD
        } else {
            return InstallKind::Download;
        };
        InstallKind::Foreign(other)
    }
}

fn name(component: Component<'_>) -> Option<&str> {
    match component {
        Component::Normal(name) => name.to_str(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_installation_has_its_tool() {
        let nothing = InstallFacts {
            program: Path::new(""),
            has_own_bot: false,
            is_packaged: false,
            is_board_image: false,
            is_of_wheel: false,
            is_of_cargo: false,
            is_of_build: false,
        };
        let wheel = InstallFacts {
            is_of_wheel: true,
            ..nothing
        };
        let packaged = InstallFacts {
            is_packaged: true,
            ..nothing
        };
        for (program, facts, kind) in [
            ("/usr/local/bin/edge-runner", nothing, InstallKind::Download),
            ("/home/a/.local/bin/edge-runner", nothing, InstallKind::Download),
            ("/usr/bin/edge-runner", packaged, InstallKind::Foreign(DEBIAN)),
            (
                "/usr/bin/edge-runner",
                InstallFacts {
                    is_board_image: true,
                    ..packaged
                },
                InstallKind::BoardImage,
            ),
            (
                "/usr/local/bin/edge-runner",
                InstallFacts {
                    is_board_image: true,
                    ..nothing
                },
                InstallKind::Download,
            ),
            ("/home/a/venv/bin/edge-runner", wheel, InstallKind::Foreign(PIP)),
            (
                "/home/a/.local/share/pipx/venvs/edge-bot-runner/bin/edge-runner",
                wheel,
                InstallKind::Foreign(PIPX),
            ),
            (
                "/home/a/.local/share/uv/tools/edge-bot-runner/bin/edge-runner",
                wheel,
                InstallKind::Foreign(UV),
            ),
            (
                "/usr/lib/node_modules/edge-bot-runner/node_modules/edge-bot-runner-linux-x64/edge-runner",
                nothing,
                InstallKind::Foreign(NPM),
            ),
            (
                "/home/a/.cargo/bin/edge-runner",
                InstallFacts {
                    is_of_cargo: true,
                    ..nothing
                },
                InstallKind::Foreign(CARGO),
            ),
            (
                "/src/target/release/edge-runner",
                InstallFacts {
                    is_of_build: true,
                    ..nothing
                },
                InstallKind::Foreign(BUILD),
            ),
            ("/edge-runner", nothing, InstallKind::Foreign(CONTAINER)),
            (
                "/usr/local/bin/kitchen-bot",
                InstallFacts {
                    has_own_bot: true,
                    ..nothing
                },
                InstallKind::Foreign(OWN),
            ),
        ] {
            let facts = InstallFacts {
                program: Path::new(program),
                ..facts
            };
            assert_eq!(facts.kind(), kind, "{facts:?}");
        }
        assert!(DEBIAN.to_string().contains("Debian package, so update it by: curl "));
    }
}
