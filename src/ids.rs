//! Where disaggregation request ids come from.

use tower_disagg::{
    mint::{IdError, MakeDisaggRequestId, ProcessId, RandomIds, SnowflakeIds, WorkerSlot},
    trtllm::{DisaggRequestId, Engine, IdLayout},
};

use crate::config::{Config, EngineVersion};

/// The maker that a configuration asks for.
#[derive(Debug)]
pub(crate) enum Ids {
    /// No identity is set: default ones would collide between hosts.
    Random(RandomIds),
    /// An identity is set.
    Snowflake(SnowflakeIds),
}

impl Ids {
    /// A machine id stands for a slot, which has a place in both layouts: the one of the pinned release is used, or the
    /// current one.
    pub(crate) fn new(config: &Config) -> Self {
        // out of range is refused when settings are read
        if let Some(slot) = config.machine_id.and_then(|id| WorkerSlot::new(id).ok()) {
            let layout = match &config.engine_version {
                EngineVersion::Pinned(release) => Engine::Known(release.clone()).schema().id_layout(),
                EngineVersion::Auto => Engine::Unknown.schema().id_layout(),
            };
            return Self::Snowflake(match layout {
                IdLayout::Machine => SnowflakeIds::legacy_slot(slot),
                _ => SnowflakeIds::current_slot(slot),
            });
        }
        let process = config.process_id.and_then(|id| ProcessId::new(id).ok());
        match config.node_id.zip(process) {
            Some((node, process)) => Self::Snowflake(SnowflakeIds::current(node, process)),
            None => Self::Random(RandomIds::new()),
        }
    }
}

impl MakeDisaggRequestId for Ids {
    fn make(&self) -> Result<DisaggRequestId, IdError> {
        match self {
            Self::Random(maker) => maker.make(),
            Self::Snowflake(maker) => maker.make(),
        }
    }
}
