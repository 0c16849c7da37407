//! Nothing that has an id can be cloned, and neither can what is sent to a worker.

use tower_disagg::{
    handoff::{Handoff, Minted, Open, Primed, Validated},
    leg::LegBody,
};

fn cloned<T: Clone>() {}

fn main() {
    cloned::<Handoff<Validated>>();
    cloned::<Handoff<Minted>>();
    cloned::<Handoff<Primed>>();
    cloned::<Handoff<Open>>();
    cloned::<LegBody>();
}
