//! What the fuzz targets share.

/// Changes `data[..size]` in place, half of the time as `by` does, else as libFuzzer does (which knows the dictionary and
/// what the code compares its input with); the new size.
pub fn mutate(
    by: fn(&[u8], u64) -> Vec<u8>,
    data: &mut [u8],
    size: usize,
    max_size: usize,
    seed: u32,
) -> usize {
    if seed % 2 == 0 {
        let changed = by(&data[..size], seed.into());
        if !changed.is_empty() && changed.len() <= max_size {
            data[..changed.len()].copy_from_slice(&changed);
            return changed.len();
        }
    }
    libfuzzer_sys::fuzzer_mutate(data, size, max_size)
}
