//! The wire contract with `trtllm-serve`: what is asked of a request, what the legs are sent, what may come back.
//!
//! Everything here is a pure function of bytes; nothing waits, and nothing knows about tower.
