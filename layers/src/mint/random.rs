use super::{IdError, MakeDisaggRequestId, fold::fold};
use crate::trtllm::DisaggRequestId;

/// Ids from the operating system's cryptographic generator: 63 bits, folded into the range of ids.
///
/// The default, since it needs no identity that somebody would have to keep apart from others: with 60,000 ids alive
/// at the workers, the chance that a new one meets one of them is about 1 in 10^14 (contract, section 5).
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct RandomIds;

impl RandomIds {
    /// Makes ids from the operating system's generator.
    pub const fn new() -> Self {
        Self
    }
}

impl MakeDisaggRequestId for RandomIds {
    fn make(&self) -> Result<DisaggRequestId, IdError> {
        draw(|| getrandom::u64().map_err(IdError::failed))
    }
}

/// One draw in two million is below the range, so that only a broken generator is ever refused.
const TRIES: usize = 8;

pub(super) fn draw(mut random: impl FnMut() -> Result<u64, IdError>) -> Result<DisaggRequestId, IdError> {
    for _ in 0..TRIES {
        if let Some(id) = fold(random()?) {
            return Ok(id);
        }
    }
    Err(IdError::failed("the random generator keeps returning small numbers"))
}
