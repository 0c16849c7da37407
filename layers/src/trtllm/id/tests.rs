use super::*;

#[test]
fn only_numbers_in_range_are_ids() {
    for (number, ok) in [
        (0, false),
        (1 << 40, false),
        ((1 << 42) - 1, false),
        (1 << 42, true),
        (i64::MAX as u64 - 1, true),
        (i64::MAX as u64, false),
        (u64::MAX, false),
    ] {
        assert_eq!(DisaggRequestId::new(number).map(DisaggRequestId::get), ok.then_some(number), "{number}");
    }
}

#[test]
fn is_shown_as_plain_digits() {
    assert_eq!(DisaggRequestId::MIN.to_string(), "4398046511104");
    assert_eq!(DisaggRequestId::MAX.to_string(), "9223372036854775806");
}
