//! Cases.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]
#![allow(unreachable_pub, reason = "what the cases share is public to all of them")]

mod common;

mod cases {
    mod header;
    mod pair;
    mod parsing;
}
