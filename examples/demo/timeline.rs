//! What happened when, at which hop.

use std::{
    sync::{Arc, Mutex},
    time::Instant,
};

/// Notes of one request, from several tasks.
#[derive(Debug, Clone)]
pub(crate) struct Timeline {
    start: Instant,
    notes: Arc<Mutex<Vec<Note>>>,
}

#[derive(Debug, Clone)]
struct Note {
    at_ms: f64,
    hop: &'static str,
    text: String,
}

impl Timeline {
    pub(crate) fn new() -> Self {
        Self { start: Instant::now(), notes: Arc::default() }
    }

    pub(crate) fn note(&self, hop: &'static str, text: impl Into<String>) {
        let at_ms = self.start.elapsed().as_secs_f64() * 1000.0;
        if let Ok(mut notes) = self.notes.lock() {
            notes.push(Note { at_ms, hop, text: text.into() });
        }
    }

    pub(crate) fn print(&self) {
        let mut notes = self.notes.lock().map(|notes| notes.clone()).unwrap_or_default();
        notes.sort_by(|a, b| a.at_ms.total_cmp(&b.at_ms));
        for Note { at_ms, hop, text } in notes {
            println!("  {at_ms:8.1} ms  {hop:<11} {text}");
        }
    }
}
