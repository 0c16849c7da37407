//! What must not compile, and what the compiler says about it.
//!
//! Each file has the right way next to the wrong one, so that it cannot fail for another reason than the one it is
//! about. The text is part of the interface: an error at a seam has to name the two stages that do not meet. After a
//! change of compiler, `TRYBUILD=overwrite` writes the texts anew; read them before they are committed.

#[test]
fn what_would_break_the_protocol_does_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/compile_fail/*.rs");
}
