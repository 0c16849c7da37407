//! What is logged.

use std::{
    io::{self, Write},
    sync::{Arc, Mutex},
};

/// Log lines of this thread, where the sidecar of a test runs.
#[derive(Debug, Clone, Default)]
pub struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// From now on, until the guard is dropped.
    pub fn start(&self) -> tracing::subscriber::DefaultGuard {
        // the libraries below are kept to warnings by the binary as well
        self.start_at("trace,h2=warn,hyper=warn,hyper_util=warn,tower=warn")
    }

    /// The same with another filter.
    pub fn start_at(&self, filter: &str) -> tracing::subscriber::DefaultGuard {
        let log = self.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_env_filter(tracing_subscriber::EnvFilter::new(filter))
            .with_ansi(false)
            .with_writer(move || log.clone());
        tracing::subscriber::set_default(subscriber.finish())
    }

    /// All lines so far.
    pub fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    /// How many lines have this in them.
    pub fn count(&self, text: &str) -> usize {
        self.text().lines().filter(|line| line.contains(text)).count()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
