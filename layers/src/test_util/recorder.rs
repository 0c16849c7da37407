//! What was told to the metrics facade, for this crate's own tests.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};

/// Values by name and labels, as in `requests{outcome=failed}`. Use with `metrics::with_local_recorder`.
#[derive(Debug, Default, Clone)]
pub(crate) struct Recorded(Arc<Mutex<BTreeMap<String, f64>>>);

impl Recorded {
    pub(crate) fn value(&self, name: &str) -> Option<f64> {
        self.0.lock().unwrap().get(name).copied()
    }

    pub(crate) fn all(&self) -> BTreeMap<String, f64> {
        self.0.lock().unwrap().clone()
    }

    fn cell(&self, key: &Key) -> Arc<Cell> {
        let labels: Vec<_> = key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        Arc::new(Cell { name: format!("{}{labels}", key.name()), all: self.clone() })
    }
}

struct Cell {
    name: String,
    all: Recorded,
}

impl Cell {
    fn change(&self, change: impl FnOnce(&mut f64)) {
        change(self.all.0.lock().unwrap().entry(self.name.clone()).or_default());
    }
}

impl CounterFn for Cell {
    fn increment(&self, value: u64) {
        self.change(|cell| *cell += value as f64);
    }

    fn absolute(&self, value: u64) {
        self.change(|cell| *cell = value as f64);
    }
}

impl GaugeFn for Cell {
    fn increment(&self, value: f64) {
        self.change(|cell| *cell += value);
    }

    fn decrement(&self, value: f64) {
        self.change(|cell| *cell -= value);
    }

    fn set(&self, value: f64) {
        self.change(|cell| *cell = value);
    }
}

impl Recorder for Recorded {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.cell(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.cell(key))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}
