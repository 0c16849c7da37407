use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use http::uri::Authority;
use tokio::time::Instant;

/// Where connections were lost a moment ago. A worker that closes one idle connection mostly closes all, and another
/// attempt has to find one that lives.
#[derive(Debug, Clone, Default)]
pub(super) struct Lost(Arc<Mutex<HashMap<Authority, Instant>>>);

/// How long such a place is avoided: as long as it takes for the end of the other connections to be seen.
const MOMENT: Duration = Duration::from_secs(1);
/// How many are remembered.
const MOST: usize = 256;

impl Lost {
    pub(super) fn note(&self, place: Authority) {
        let mut places = self.places();
        if places.len() >= MOST {
            places.retain(|_, at| at.elapsed() < MOMENT);
        }
        if places.len() >= MOST
            && let Some(first) = places.iter().min_by_key(|(_, at)| **at).map(|(place, _)| place.clone())
        {
            places.remove(&first);
        }
        places.insert(place, Instant::now());
    }

    /// Whether a connection was lost there a moment ago.
    pub(super) fn is_recent(&self, place: &Authority) -> bool {
        let mut places = self.places();
        let Some(at) = places.get(place) else { return false };
        let recent = at.elapsed() < MOMENT;
        if !recent {
            places.remove(place);
        }
        recent
    }

    #[cfg(test)]
    pub(super) fn remembered(&self) -> usize {
        self.places().len()
    }

    /// Nothing here panics while it holds the lock; if it ever did, what the lock protects is whole all the same.
    fn places(&self) -> MutexGuard<'_, HashMap<Authority, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
