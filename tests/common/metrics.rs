//! The metrics page.

use std::collections::BTreeMap;

/// What `/metrics` said. It is about all sidecars of the process; tests that read it run [alone](super::alone).
#[derive(Debug, Clone)]
pub struct Metrics(BTreeMap<String, f64>);

impl Metrics {
    pub fn parse(page: &str) -> Self {
        let line = |line: &str| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        };
        Self(page.lines().filter(|text| !text.starts_with('#')).filter_map(line).collect())
    }

    /// A series, named with its labels; 0 when it is not there yet.
    pub fn get(&self, series: &str) -> f64 {
        self.0.get(series).copied().unwrap_or(0.0)
    }

    pub fn in_flight(&self) -> f64 {
        self.get("disagg_requests_in_flight")
    }

    /// How much counters grew since `before`, without those that did not, by name with its labels.
    pub fn since(&self, before: &Self) -> BTreeMap<String, f64> {
        let grown = self.0.iter().filter(|(name, _)| name.contains("_total"));
        grown
            .map(|(name, now)| (name.clone(), now - before.get(name)))
            .filter(|(_, grown)| *grown != 0.0)
            .collect()
    }
}
