#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target};

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    handoff_fuzz::mutate(handoff_properties::mutate::json, data, size, max_size, seed)
});

fuzz_target!(|data: &[u8]| handoff_properties::splitter(data));
