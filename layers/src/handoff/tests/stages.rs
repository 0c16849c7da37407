//! What the stages carry, and what becomes of a handoff that goes no further.

use std::time::Duration;

use super::{CANARY, ID, minted, open, primed, reply, validated};
use crate::{
    handoff::{Handoff, Verdict},
    leg::CheckedAddresses,
    settle::{Resolution, SettleCounts, Settler},
    trtllm::Endpoint,
};

/// The counts that differ from nothing.
fn counts(change: impl FnOnce(&mut SettleCounts)) -> SettleCounts {
    let mut counts = SettleCounts::default();
    change(&mut counts);
    counts
}

#[test]
fn each_stage_has_what_the_ones_before_it_learned() {
    let settler = Settler::off();
    let handoff = validated();
    assert_eq!(handoff.request().endpoint(), Endpoint::Chat);
    assert_eq!(handoff.context_endpoint().as_str(), "prefill-0:8001");
    assert_eq!(minted().id().get(), ID);
    let primed = primed("length", &settler);
    assert_eq!((primed.id().get(), primed.reply().size()), (ID, reply("length").size()));
    let open = open(&settler);
    assert_eq!((open.id().get(), open.reply().size()), (ID, reply("length").size()));
    assert_eq!(open.request().endpoint(), Endpoint::Chat);
    assert_eq!(open.context_endpoint().as_str(), "prefill-0:8001");
}

#[test]
fn where_it_may_be_dialled_stays_the_same_to_the_end_and_for_every_attempt() {
    let addresses = |handoff: Option<&CheckedAddresses>| handoff.map(|it| it.as_slice().to_vec());
    let checked = CheckedAddresses::new(["10.0.0.5:8001".parse().unwrap()]).unwrap();
    assert_eq!(validated().checked_addresses(), None);
    let handoff = validated().at(checked.clone());
    let expected = Some(checked.as_slice().to_vec());
    assert_eq!(addresses(handoff.clone().checked_addresses()), expected);
    let minted = handoff.mint(minted().id());
    assert_eq!(addresses(minted.checked_addresses()), expected);
    let primed = minted.prime(reply("length"));
    assert_eq!(addresses(primed.checked_addresses()), expected);
    let Verdict::Generate(open) = primed.judge() else { panic!("a generation leg is due") };
    assert_eq!(addresses(open.checked_addresses()), expected);
}

#[test]
fn one_that_never_left_is_not_counted() {
    let settler = Settler::off();
    let ticket = settler.ticket();
    drop((validated(), minted()));
    assert!(!ticket.is_open());
    drop(ticket);
    assert_eq!(settler.counts(), SettleCounts::default());
}

#[test]
fn a_context_reply_commits_it() {
    let settler = Settler::off();
    let ticket = settler.ticket();
    let handoff = minted().prime_with(reply("length"), ticket.clone());
    assert!(ticket.is_open());
    drop(ticket);
    assert_eq!(settler.counts(), SettleCounts::default());
    drop(handoff);
    assert_eq!(settler.counts(), counts(|counts| counts.abandoned = 1));
}

#[test]
fn one_that_is_terminal_holds_nothing() {
    let settler = Settler::off();
    let Verdict::Terminal(handoff) = primed("stop", &settler).judge() else {
        panic!("no generation leg may follow")
    };
    assert_eq!(settler.counts(), counts(|counts| counts.released = 1));
    drop(handoff);
    assert_eq!(settler.counts(), counts(|counts| counts.released = 1));
}

#[test]
fn one_that_is_open_is_followed_to_its_end() {
    let settler = Settler::off();
    let handoff = open(&settler);
    assert!(handoff.ticket().is_open());
    handoff.ticket().resolve(Resolution::Collected);
    assert!(!handoff.ticket().is_open());
    drop(handoff);
    assert_eq!(settler.counts(), counts(|counts| counts.collected = 1));

    let settler = Settler::off();
    drop(open(&settler));
    assert_eq!(settler.counts(), counts(|counts| counts.abandoned = 1));
}

#[test]
fn without_a_ticket_of_somebody_nobody_counts() {
    let Verdict::Generate(open) = minted().prime(reply("length")).judge() else {
        panic!("a generation leg is due")
    };
    assert!(open.ticket().is_open());
    open.ticket().settle(async { unreachable!("nothing is settled") });
    assert!(!open.ticket().is_open());
}

#[test]
fn only_one_without_an_id_can_be_cloned() {
    let handoff = validated();
    let clone: Handoff<_> = handoff.clone();
    assert_eq!(clone.context_endpoint(), handoff.context_endpoint());
    assert_eq!(clone.request().body(), handoff.request().body());
    // That the others cannot is a test of the compiler: `tests/compile_fail`.
}

#[test]
fn no_stage_shows_content() {
    let settler = Settler::new(Duration::from_secs(1));
    let terminal = primed("stop", &settler).judge();
    let generate = primed("length", &settler).judge();
    for shown in [
        format!("{:?}", validated()),
        format!("{:#?}", minted()),
        format!("{:?}", primed("length", &settler)),
        format!("{:?}", open(&settler)),
        format!("{terminal:?} {generate:?}"),
    ] {
        assert!(!shown.contains(CANARY), "{shown}");
        assert!(shown.contains("prefill-0:8001"), "{shown}");
    }
    assert!(format!("{:?}", minted()).contains(&ID.to_string()));
}
