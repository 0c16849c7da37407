//! How software of this kind fails, by public bug reports, each as a test that has the name of its case.
//!
//! A case stands for a kind of fault, so each test has the case's own table and the siblings of it that came to mind.
//! `cargo test b21` runs the case B21. Groups 1 to 5 and 13 of the list are here; where a case is a test of another file,
//! or a part of it cannot be a test, it says so.
//!
//! | case | what went wrong elsewhere | test |
//! |---|---|---|
//! | B01 | a number came out of a float with other digits | `parsing::b01_numbers_keep_their_digits` |
//! | B04 | text that the engine takes, and the proxy's parser does not | `b04_strings_that_parsers_differ_about_are_kept` |
//! | B06 | depth that a parser gives up on, or dies of | `b06_depth_costs_nothing` |
//! | B07 | an optional field that was taken for granted | `b07_fields_may_be_missing_or_null` |
//! | B08 | tools, formats and vendors' fields that a typed model loses | `b08_what_nobody_here_knows_is_kept` |
//! | B09 | several prompts, noticed too late | `b09_one_prompt` |
//! | B10 | several choices, of which one is collected | `b10_more_than_one_choice` |
//! | B11 | odd framing, and bodies that are no object | `b11_bodies_of_an_odd_shape`; uploads that are too large or too slow: `errors.rs` |
//! | B12 | one of several endpoints is picked in silence | `header::b12_the_routing_header_names_one_endpoint`; the whole grammar: `allow.rs` |
//! | B14 | routing headers reach an engine | `b14_the_routing_header_stays_and_others_go_on`. `x-gateway-*` go on, as contract, section 1, says |
//! | B15 | what holds for one connection goes on over the next | `b15_what_holds_for_one_connection_stays_there` |
//! | B16 | a client waits for `100 Continue` for ever | `b16_a_client_that_waits_for_100_continue` |
//! | B17 | an endpoint without a handoff runs as if nothing were | `b17_what_cannot_be_handed_off_is_said_so`. Any method and path but the two is a 501, `GET` among them |
//! | B18 | a client's id is taken for unique | `b18_the_same_request_id_on_requests_at_the_same_time` |
//! | B19 | ids that are missing, repeated or no integers | `ids::b19_parallel_requests_have_ids_of_their_own` |
//! | B21 | an id of the reply came back rounded | `b21_what_the_reply_hands_over_keeps_its_digits` |
//! | B23 | a second attempt with the first one's id | `b23_each_attempt_has_an_id_of_its_own` |
//! | B24 | a success without a handoff is passed on | `context_reply::b24_a_success_without_a_handoff_is_none`; every rule by itself: `layers/src/trtllm/reply/tests/rules.rs` |
//! | B26 | the worker's reason is lost, or its status | `b26_a_refusal_of_the_context_worker_keeps_its_reason` |
//! | B27 | a failed context step becomes a local run | `b27_a_failed_context_step_is_no_local_run` |
//! | B29 | half a reply is taken for a whole one | `b29_half_a_reply_is_no_reply`; other ambiguous replies: `src/client/tests.rs` |
//! | B31 | large replies are refused, endless ones are read | `b31_large_replies_pass_and_endless_ones_do_not`. That memory stays bounded shows in the bytes taken from the worker; that of the process is not measured here |
//! | B32 | the ids of the prompt are taken for granted | `b32_replies_without_the_prompts_ids` |
//! | B33 | a newer worker's members are dropped | `b33_members_that_a_newer_worker_adds`; every pair of releases: `versions.rs` |
//! | B34 | the transferred cache counts as cached prompt | `b34_the_usage_of_the_context_step_goes_on`; every pair of releases: `versions.rs` |
//! | B37 | an answer of the context step is taken for a fault | `terminal::b37_the_context_step_was_the_whole_answer`; for clients that stream: `terminal.rs` |
//! | B39 | a limit of one token skips the leg that collects the cache | `b39_one_token_still_takes_both_legs` |
//! | B40 | limits are rewritten, and not all of them | `b40_limits_are_the_clients_on_both_legs` |
//! | B41 | `stream_options` stays where nothing streams | `b41_stream_options_go_with_the_stream` |
//! | B82 | a client supplies what only the engines may tell each other | `security::b82_a_client_hands_nothing_over`; by content type: `passthrough.rs` |
//! | B84 | a request reaches any host, or any port of one | `b84_only_listed_endpoints_are_connected_to`; the grammar of the list, names that resolve to listed addresses: `allow.rs` |
//! | B86 | a proxy of the environment is used | `binary.rs`, `b86_no_proxy_of_the_environment_is_used`: it takes a process of its own |
//! | B87 | one message is two to another reader | `b87_one_request_is_never_two`. Lines that end with a bare LF are served: RFC 9112 allows it, hyper has no switch, and the legs are messages of our own. Replies: `src/client/tests.rs` |

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]
#![allow(unreachable_pub, reason = "what the cases share is public to all of them")]

mod common;

mod cases {
    mod context_reply;
    mod header;
    mod ids;
    mod parsing;
    mod security;
    mod terminal;
}
