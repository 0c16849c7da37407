use crate::trtllm::DisaggRequestId;

/// Below are the numbers that workers of newer releases give to their own requests.
pub(super) const FLOOR: u64 = 1 << 40;

/// The low 63 bits, folded as TensorRT-LLM folds its ids (contract, section 5): a number that is below the modulus gets
/// [`FLOOR`] added, the 2^40 others start over. `None` when the result is below what older releases allow. All results
/// that two numbers have are among those, so that different numbers make different ids.
pub(super) fn fold(number: u64) -> Option<DisaggRequestId> {
    const TOP: u64 = i64::MAX as u64;
    DisaggRequestId::new((number & TOP) % (TOP - FLOOR) + FLOOR)
}
