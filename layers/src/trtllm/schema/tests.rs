use super::*;
use crate::trtllm::fixtures::{RELEASES, members, worker};

#[test]
fn rows_are_in_order_and_say_one_thing_of_a_member() {
    for rows in TABLE.windows(2) {
        assert!(rows[0].since < rows[1].since);
    }
    for row in TABLE {
        let all = [row.knows, row.may_know, row.forgets].concat();
        for member in &all {
            assert_eq!(all.iter().filter(|other| *other == member).count(), 1, "{member}");
        }
    }
}

#[test]
fn each_generation_knows_its_members_and_no_other() {
    let every = [
        "request_type",
        "first_gen_tokens",
        "ctx_request_id",
        "encoded_opaque_state",
        "draft_tokens",
        "disagg_request_id",
        "ctx_dp_rank",
        "ctx_info_endpoint",
        "schedule_style",
        "first_gen_log_probs",
        "first_gen_logits",
        "conversation_id",
        "ctx_usage",
        "return_prompt_token_ids_b64",
        "resolved_thinking",
    ];
    for release in RELEASES {
        let schema = worker(release).schema();
        for member in every {
            let known = members(release).contains(&member);
            match schema.knowledge(member) {
                Knowledge::Yes => assert!(known, "{release} would be sent {member}"),
                Knowledge::No => assert!(!known, "{release} would lose {member}"),
                // Not certain within G2, so never on the ground of the release alone.
                Knowledge::WhenShown => assert_eq!(member, "ctx_usage"),
            }
        }
    }
}

#[test]
fn releases_between_two_generations_get_what_both_take() {
    let rc25 = worker("1.3.0rc25").schema();
    assert_eq!(rc25.knowledge("conversation_id"), Knowledge::WhenShown);
    assert_eq!(rc25.knowledge("resolved_thinking"), Knowledge::WhenShown);
    assert_eq!(rc25.knowledge("ctx_usage"), Knowledge::Yes);
    let rc21 = worker("1.3.0rc21").schema();
    assert_eq!(rc21.knowledge("return_prompt_token_ids_b64"), Knowledge::WhenShown);
    assert!(!rc21.knows_base64_tokens());
}

#[test]
fn only_a_newest_or_an_unknown_worker_may_know_what_nobody_has_read() {
    for (release, knowledge) in [
        ("1.3.0rc5", Knowledge::No),
        ("1.3.0rc24", Knowledge::No),
        ("1.3.0rc25", Knowledge::No),
        (&*newest(), Knowledge::Yes),
        ("9.9.9", Knowledge::Yes),
        ("nightly", Knowledge::WhenShown),
    ] {
        assert_eq!(worker(release).schema().knowledge("future"), knowledge, "{release}");
    }
    assert_eq!(Schema::UNKNOWN.knowledge("future"), Knowledge::WhenShown);
    assert_eq!(Schema::UNKNOWN.knowledge("ctx_usage"), Knowledge::WhenShown);
    assert_eq!(Schema::UNKNOWN.knowledge("conversation_id"), Knowledge::No);
}

#[test]
fn the_newest_generation_is_all_releases_with_the_newest_members() {
    let last = TABLE.iter().rposition(|row| !row.keeps_members()).unwrap();
    for (at, row) in TABLE.iter().enumerate() {
        let knowledge = if at >= last { Knowledge::Yes } else { Knowledge::No };
        assert_eq!(worker(&row.since.to_string()).schema().knowledge("future"), knowledge, "{}", row.since);
    }
}

#[test]
fn a_row_is_found_by_the_release_it_names() {
    for (at, row) in TABLE.iter().enumerate().skip(1) {
        let since = row.since.to_string();
        for text in [since.clone(), format!("{since}.post1"), format!("v{since}+cu13")] {
            assert_eq!(worker(&text).schema(), Schema(Some(at)), "{text}");
        }
        assert_eq!(worker(&format!("{since}.dev1")).schema(), Schema(Some(at - 1)), "before {since}");
    }
    assert_eq!(worker("9.9.9").schema(), worker(&newest()).schema());
}

#[test]
fn ids_have_the_new_layout_from_rc22_on() {
    for (release, layout) in [
        ("1.3.0rc3", IdLayout::Machine),
        ("1.3.0rc21.post1", IdLayout::Machine),
        ("1.3.0rc22", IdLayout::NodeProcess),
        ("1.4.0", IdLayout::NodeProcess),
    ] {
        assert_eq!(worker(release).schema().id_layout(), layout, "{release}");
    }
    assert_eq!(Schema::UNKNOWN.id_layout(), IdLayout::NodeProcess);
}

#[test]
fn capabilities_by_release() {
    for (release, conversations, signatures, base64) in [
        ("1.3.0rc3", false, false, false),
        ("1.3.0rc20", false, false, false),
        ("1.3.0rc21", true, false, false),
        ("1.3.0rc22.post1", true, false, true),
        ("1.3.0rc23", true, true, true),
        ("1.4.0rc1", true, true, true),
        ("9.9.9", true, true, true),
        ("nightly", true, true, true),
    ] {
        let schema = worker(release).schema();
        assert_eq!(schema.keeps_conversations(), conversations, "{release}");
        assert_eq!(schema.checks_signatures(), signatures, "{release}");
        assert_eq!(schema.knows_base64_tokens(), base64, "{release}");
    }
}
