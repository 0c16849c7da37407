//! Which schema generation a release of the engine speaks.

use std::fmt;

/// A generation of the request and reply models.
///
/// The order is the order of age, so `generation >= Generation::G3` asks "has
/// this worker the fields that came with G3".
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Generation {
    /// 1.0 to 1.2.x, and 1.3.0 before rc3: no global request id.
    G0,
    /// 1.3.0rc3 to rc9.
    G1,
    /// 1.3.0rc10 to rc13: log probabilities of the first token, no `ctx_usage`.
    G2Early,
    /// 1.3.0rc14 to rc20: with `ctx_usage`. Only rc13 (without) and rc24 (with)
    /// are firm; the border between is an estimate.
    G2Late,
    /// 1.3.0rc21 to rc24.
    G3,
    /// 1.3.0rc25 to the last 1.3.
    G4,
    /// 1.4.0rc0 and newer: the newest schema known.
    G4n,
}

impl Generation {
    /// All generations, oldest first.
    pub const ALL: [Self; 7] =
        [Self::G0, Self::G1, Self::G2Early, Self::G2Late, Self::G3, Self::G4, Self::G4n];

    /// The generation of a release such as `1.3.0rc24` or `1.3.0rc24.post1`.
    ///
    /// # Errors
    ///
    /// Says what is wrong when the text does not start with `X.Y` in digits.
    pub fn of_release(release: &str) -> Result<Self, String> {
        let bad = || format!("release {release:?} is not like 1.3.0rc24");
        let mut parts = release.trim().splitn(3, '.');
        let major: u32 = parts.next().and_then(digits).ok_or_else(bad)?.0;
        let (minor, after_minor) = parts.next().and_then(digits).ok_or_else(bad)?;
        let (patch, rest) = match parts.next() {
            Some(patch) => digits(patch).ok_or_else(bad)?,
            None if after_minor.is_empty() => (0, ""),
            None => return Err(bad()),
        };
        // Without a candidate number it is the final release, newer than all of them.
        let candidate = rest
            .strip_prefix("rc")
            .map(|rc| digits(rc).map(|(n, _)| n).ok_or_else(bad))
            .transpose()?
            .unwrap_or(u32::MAX);
        Ok(match (major, minor, patch, candidate) {
            (0, ..) | (1, 0..=2, ..) | (1, 3, 0, 0..=2) => Self::G0,
            (1, 3, 0, 3..=9) => Self::G1,
            (1, 3, 0, 10..=13) => Self::G2Early,
            (1, 3, 0, 14..=20) => Self::G2Late,
            (1, 3, 0, 21..=24) => Self::G3,
            (1, 3, ..) => Self::G4,
            _ => Self::G4n,
        })
    }

    /// The generation named `g0`, `g1`, `g2-early`, `g2`, `g3`, `g4` or `g4n`.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Some(match name.to_ascii_lowercase().as_str() {
            "g0" => Self::G0,
            "g1" => Self::G1,
            "g2-early" | "g2early" => Self::G2Early,
            "g2" | "g2-late" | "g2late" => Self::G2Late,
            "g3" => Self::G3,
            "g4" => Self::G4,
            "g4n" => Self::G4n,
            _ => return None,
        })
    }

    /// A release of this generation, for tests that go through all of them.
    #[must_use]
    pub const fn sample_release(self) -> &'static str {
        match self {
            Self::G0 => "1.2.1",
            Self::G1 => "1.3.0rc5",
            Self::G2Early => "1.3.0rc12",
            Self::G2Late => "1.3.0rc20",
            Self::G3 => "1.3.0rc24",
            Self::G4 => "1.3.0rc27",
            Self::G4n => "1.4.0rc2",
        }
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::G0 => "G0",
            Self::G1 => "G1",
            Self::G2Early => "G2 (early)",
            Self::G2Late => "G2 (late)",
            Self::G3 => "G3",
            Self::G4 => "G4",
            Self::G4n => "G4n",
        })
    }
}

/// The number at the front of a text, and the rest.
fn digits(text: &str) -> Option<(u32, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, rest) = text.split_at(end);
    number.parse().ok().map(|number| (number, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_map_to_generations() {
        let table = [
            ("0.21.0", Generation::G0),
            ("1.0", Generation::G0),
            ("1.2.1", Generation::G0),
            ("1.3.0rc2", Generation::G0),
            ("1.3.0rc3", Generation::G1),
            ("1.3.0rc9.post1", Generation::G1),
            ("1.3.0rc10", Generation::G2Early),
            ("1.3.0rc13", Generation::G2Early),
            ("1.3.0rc20", Generation::G2Late),
            ("1.3.0rc22", Generation::G3),
            ("1.3.0rc24+cu13", Generation::G3),
            ("1.3.0rc29", Generation::G4),
            ("1.3.0", Generation::G4),
            ("1.3.1", Generation::G4),
            ("1.4.0rc0", Generation::G4n),
            ("2.0.0", Generation::G4n),
        ];
        for (release, generation) in table {
            assert_eq!(Generation::of_release(release), Ok(generation), "{release}");
        }
        for generation in Generation::ALL {
            assert_eq!(Generation::of_release(generation.sample_release()), Ok(generation));
        }
        for bad in ["", "1", "x.y", "1.3.0rcX", "1.3x", "99999999999.1"] {
            assert!(Generation::of_release(bad).is_err(), "{bad}");
        }
    }
}
