//! Where disaggregation request ids come from.

use tower_disagg::{
    mint::{IdError, MakeDisaggRequestId, ProcessId, RandomIds, SnowflakeIds, WorkerSlot},
    trtllm::{DisaggRequestId, IdLayout},
};

use crate::{config::Config, engine::Releases};

/// The maker that a configuration asks for.
#[derive(Debug)]
pub(crate) enum Ids {
    /// No identity is set: default ones would collide between hosts.
    Random(RandomIds),
    /// A node and a process are set, which have a place in one layout only. Workers before it take its ids as well: to
    /// them an id is a number.
    NodeProcess(SnowflakeIds),
    /// A slot is set, which has a place in both layouts.
    Slot(SlotIds),
}

/// Ids of a slot in the layout that the local generation worker's release has: that is the layout of whoever else
/// hands requests off to such workers.
///
/// The layout may change while requests run. That is safe, since no id in the one layout is equal to one in the other
/// that was made in the same years (contract, section 5).
#[derive(Debug)]
pub(crate) struct SlotIds {
    releases: Releases,
    legacy: SnowflakeIds,
    current: SnowflakeIds,
}

impl Ids {
    pub(crate) fn new(config: &Config, releases: Releases) -> Self {
        // out of range is refused when settings are read
        if let Some(slot) = config.machine_id.and_then(|id| WorkerSlot::new(id).ok()) {
            return Self::Slot(SlotIds {
                releases,
                legacy: SnowflakeIds::legacy_slot(slot),
                current: SnowflakeIds::current_slot(slot),
            });
        }
        let process = config.process_id.and_then(|id| ProcessId::new(id).ok());
        match config.node_id.zip(process) {
            Some((node, process)) => Self::NodeProcess(SnowflakeIds::current(node, process)),
            None => Self::Random(RandomIds::new()),
        }
    }
}

impl MakeDisaggRequestId for Ids {
    fn make(&self) -> Result<DisaggRequestId, IdError> {
        match self {
            Self::Random(ids) => ids.make(),
            Self::NodeProcess(ids) => ids.make(),
            Self::Slot(ids) => ids.make(),
        }
    }
}

impl MakeDisaggRequestId for SlotIds {
    fn make(&self) -> Result<DisaggRequestId, IdError> {
        // of a worker that has not been heard of: the newest
        match self.releases.local_or_last().schema().id_layout() {
            IdLayout::Machine => self.legacy.make(),
            _ => self.current.make(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use tower_disagg::trtllm::{Engine, Release};

    use super::*;
    use crate::engine::Wanted;

    fn ids(flags: &[&str], releases: &Releases) -> Ids {
        Ids::new(&Config::from_args(flags.iter().copied()).unwrap(), releases.clone())
    }

    fn release(text: &str) -> Engine {
        Engine::Known(Release::parse(text))
    }

    /// What stands in the places of the identity in both layouts.
    fn identities(ids: &Ids) -> (u64, u64) {
        let id = ids.make().unwrap().get();
        (id >> 12 & 0x3ff, id >> 10 & 0x3fff)
    }

    #[test]
    fn a_node_and_a_process_are_laid_out_alike_for_every_release() {
        for engine in [Engine::Unknown, release("1.3.0rc5"), release("1.3.0rc24")] {
            let ids = ids(
                &["--node-id", "200", "--process-id", "33"],
                &Releases::new(Some(engine), Wanted::default()),
            );
            assert_eq!(identities(&ids).1, 200 * 64 + 33);
        }
    }

    #[test]
    fn a_slot_is_laid_out_as_the_generation_worker_has_it() {
        let releases = Releases::new(None, Wanted::default());
        let ids = ids(&["--machine-id", "1020"], &releases);
        let legacy = || identities(&ids).0 == 1020;
        let current = || identities(&ids).1 == 1020;
        // neither reads as the other: the places overlap, two bits apart
        assert!(current() && current(), "nothing is known yet");
        for (text, is_legacy) in [
            ("1.3.0rc20", true),
            ("1.3.0rc21.post1", true),
            ("1.3.0rc22", false),
            ("1.3.0rc5", true),
            ("nightly", false),
            ("9.9.9", false),
        ] {
            releases.set_local(release(text));
            assert_eq!((legacy(), current()), (is_legacy, !is_legacy), "{text}");
        }
        releases.set_local(release("1.3.0rc20"));
        releases.doubt_local();
        assert!(legacy(), "the last one heard");
    }

    #[test]
    fn a_slot_is_laid_out_for_a_release_that_is_set() {
        for (text, is_legacy) in [("1.3.0rc20", true), ("1.3.0rc24", false)] {
            let ids = ids(&["--machine-id", "1020"], &Releases::new(Some(release(text)), Wanted::default()));
            let (legacy, current) = identities(&ids);
            assert_eq!((legacy == 1020, current == 1020), (is_legacy, !is_legacy));
        }
    }

    #[test]
    fn no_id_comes_twice_while_the_layout_changes() {
        let releases = Releases::new(None, Wanted::default());
        let ids = ids(&["--machine-id", "7"], &releases);
        let mut seen = HashSet::new();
        for turn in 0..200 {
            releases.set_local(release(if turn % 2 == 0 { "1.3.0rc20" } else { "1.3.0rc24" }));
            (0..50).for_each(|_| assert!(seen.insert(ids.make().unwrap())));
        }
    }

    #[test]
    fn without_an_identity_ids_are_random() {
        let ids = ids(&[], &Releases::new(None, Wanted::default()));
        let made: Vec<u64> = (0..64).map(|_| ids.make().unwrap().get()).collect();
        assert!(!made.is_sorted());
    }
}
