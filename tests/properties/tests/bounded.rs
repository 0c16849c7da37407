//! The properties over the seeds of the fuzz targets, over damaged copies of them, and over bytes at random: a bounded
//! run of what `fuzz/` runs without end.

use std::{fmt, fs, io, path::Path};

use handoff_properties::{cleaning, header, mutate, reply, request, splitter, sse};
use proptest::{
    prelude::*,
    sample::{Index, select},
    test_runner::TestRunner,
};

/// An input; shown so that it can be pasted into a byte string.
struct Input(Vec<u8>);

impl fmt::Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b\"{}\"", self.0.escape_ascii())
    }
}

type Mutate = fn(&[u8], u64) -> Vec<u8>;

/// The files of a target's seed corpus; those without an extension are finds of a fuzzer on this machine.
fn seeds(target: &str) -> io::Result<Vec<Vec<u8>>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut paths = Vec::new();
    for file in fs::read_dir(folder)? {
        paths.push(file?.path());
    }
    paths.retain(|path| path.extension().is_some());
    paths.sort();
    paths.iter().map(fs::read).collect()
}

fn run(target: &str, cases: u32, property: fn(&[u8]), mutate: Mutate) {
    let seeds = seeds(target).unwrap_or_else(|error| panic!("the seeds of {target}: {error}"));
    assert!(seeds.len() > 20, "the seeds of {target} are there");
    for seed in &seeds {
        let outcome = std::panic::catch_unwind(|| property(seed));
        assert!(outcome.is_ok(), "{target} fails for {:?}", Input(seed.clone()));
    }
    // Those that are large so as to pass a limit are checked once: copies of them take long.
    let small: Vec<_> = seeds.into_iter().filter(|seed| seed.len() < 5000).collect();
    let damaged =
        (select(small), prop::collection::vec(any::<u64>(), 1..6)).prop_map(move |(seed, changes)| {
            changes.into_iter().fold(seed, |text, change| mutate(&text, change))
        });
    let spliced = (damaged.clone(), damaged.clone(), any::<Index>(), any::<Index>()).prop_map(
        |(one, two, at, from)| [&one[..at.index(one.len() + 1)], &two[from.index(two.len() + 1)..]].concat(),
    );
    let random = prop::collection::vec(any::<u8>(), 0..64);
    let inputs = prop_oneof![12 => damaged, 2 => spliced, 1 => random].prop_map(Input);
    let config = ProptestConfig {
        cases,
        failure_persistence: None,
        max_shrink_iters: 2000,
        ..ProptestConfig::default()
    };
    let result = TestRunner::new(config).run(&inputs, |input| {
        property(&input.0);
        Ok(())
    });
    if let Err(error) = result {
        panic!("{target}: {error}");
    }
}

#[test]
fn the_splitter_takes_what_is_json_and_changes_what_it_is_told_to() {
    run("splitter", 5000, splitter, mutate::json);
}

#[test]
fn the_routing_header_is_read_by_its_grammar() {
    run("header", 10000, header, mutate::address);
}

#[test]
fn requests_are_judged_by_the_tables_of_the_contract() {
    run("request", 3000, request, mutate::json);
}

#[test]
fn replies_are_judged_by_the_tables_of_the_contract() {
    run("reply", 1500, reply, mutate::json);
}

#[test]
fn clients_see_nothing_internal_and_all_the_rest() {
    run("cleaning", 3000, cleaning, mutate::json);
}

#[test]
fn streams_are_relayed_as_they_are_and_counted_by_their_text() {
    run("sse", 3000, sse, mutate::stream);
}
