//! What a worker of a release knows: the one table from releases to schemas.
//!
//! `trtllm-serve` answers 400 to any member it does not know, at the top level and in `disaggregated_params`, even to
//! `null` (contract, section 2). So what the generation worker is sent depends on its release. To add a release that
//! changed something, add one row to [`TABLE`] and, if it is newer than [`NEWER_THAN_KNOWN`], move that.

use super::version::Number;

/// One step in the history of the schema: what changed with a release, in `disaggregated_params` unless said.
struct Row {
    /// The first release of which this holds.
    since: Number,
    /// Members that are known from here on.
    knows: &'static [&'static str],
    /// Members of which it is not certain when exactly they came or went; see [`Knowledge::WhenShown`].
    may_know: &'static [&'static str],
    /// Members that are refused from here on.
    forgets: &'static [&'static str],
    /// Whether the chat request knows `prompt_token_ids_b64`.
    base64_tokens: bool,
    ids: IdLayout,
    supported: bool,
}

const V1_3: Number = Number::new(1, 3, 0);
const V1_4: Number = Number::new(1, 4, 0);

/// Oldest first. The releases are those of contract, section 2; where it is not certain to which generation one
/// belongs, the members in question are in `may_know`.
const TABLE: &[Row] = &[
    // G0: no global request id.
    Row {
        since: Number::new(0, 0, 0),
        knows: &[
            "request_type",
            "first_gen_tokens",
            "ctx_request_id",
            "encoded_opaque_state",
            "draft_tokens",
        ],
        may_know: &[],
        forgets: &[],
        base64_tokens: false,
        ids: IdLayout::Machine,
        supported: false,
    },
    // G1.
    Row {
        since: V1_3.rc(3),
        knows: &["disagg_request_id", "ctx_dp_rank", "ctx_info_endpoint", "schedule_style"],
        may_know: &[],
        forgets: &[],
        base64_tokens: false,
        ids: IdLayout::Machine,
        supported: true,
    },
    // G2. `ctx_usage` came with one of its later releases: rc13 has it not, rc24 has it.
    Row {
        since: V1_3.rc(10),
        knows: &["first_gen_log_probs", "first_gen_logits", "conversation_id"],
        may_know: &["ctx_usage"],
        forgets: &[],
        base64_tokens: false,
        ids: IdLayout::Machine,
        supported: true,
    },
    // G2 or G3.
    Row {
        since: V1_3.rc(21),
        knows: &[],
        may_know: &["return_prompt_token_ids_b64"],
        forgets: &[],
        base64_tokens: false,
        ids: IdLayout::Machine,
        supported: true,
    },
    // G3.
    Row {
        since: V1_3.rc(22),
        knows: &["ctx_usage", "return_prompt_token_ids_b64"],
        may_know: &[],
        forgets: &[],
        base64_tokens: true,
        ids: IdLayout::NodeProcess,
        supported: true,
    },
    // G3 or G4.
    Row {
        since: V1_3.rc(25),
        knows: &[],
        may_know: &["conversation_id", "resolved_thinking"],
        forgets: &[],
        base64_tokens: true,
        ids: IdLayout::NodeProcess,
        supported: true,
    },
    // G4.
    Row {
        since: V1_3.rc(26),
        knows: &["resolved_thinking"],
        may_know: &[],
        forgets: &["conversation_id"],
        base64_tokens: true,
        ids: IdLayout::NodeProcess,
        supported: true,
    },
];

/// From here on no release has been read; up to the candidates of 1.4.0 they are of the last row.
const NEWER_THAN_KNOWN: Number = V1_4;

pub(super) fn is_newer_than_known(number: Number) -> bool {
    number >= NEWER_THAN_KNOWN
}

/// How the bits of a disaggregation request id are laid out (contract, section 5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum IdLayout {
    /// Before 1.3.0rc22: milliseconds, a machine id of 10 bits, a counter of 12.
    Machine,
    /// From 1.3.0rc22 on: milliseconds, a node id of 8 bits, a process id of 6, a counter of 10.
    NodeProcess,
}

/// Whether a worker knows a member of `disaggregated_params`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Knowledge {
    /// It does.
    Yes,
    /// It may: it does when the context worker is of the same release and shows the member in its reply, which has
    /// every member its worker knows, nulls included.
    WhenShown,
    /// It answers 400 to it.
    No,
}

/// What a worker of a release knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schema(Option<usize>);

impl Schema {
    /// Of a worker whose release is not known: the newest one, except that nothing is sent on the ground of the
    /// release alone, only what the context worker's reply shows.
    pub const UNKNOWN: Self = Self(None);

    pub(super) fn of(number: Number) -> Self {
        Self(Some(TABLE.iter().rposition(|row| row.since <= number).unwrap_or_default()))
    }

    /// Whether nothing is known about the worker.
    pub fn is_unknown(self) -> bool {
        self.0.is_none()
    }

    /// Whether a handoff with it can work.
    pub fn is_supported(self) -> bool {
        self.row().supported
    }

    /// The layout of request ids.
    pub fn id_layout(self) -> IdLayout {
        self.row().ids
    }

    /// Whether the chat request of the worker knows `prompt_token_ids_b64`.
    pub fn knows_base64_tokens(self) -> bool {
        self.row().base64_tokens
    }

    /// Whether the worker knows this member of `disaggregated_params`. A member that no release read so far has is
    /// taken to be newer than all of them.
    pub fn knowledge(self, member: &str) -> Knowledge {
        let said = TABLE[..=self.index()].iter().rev().find_map(|row| {
            let says = [
                (row.forgets, Knowledge::No),
                (row.may_know, Knowledge::WhenShown),
                (row.knows, Knowledge::Yes),
            ];
            says.into_iter().find(|(members, _)| members.contains(&member)).map(|(_, knowledge)| knowledge)
        });
        match said {
            Some(Knowledge::Yes) if self.is_unknown() => Knowledge::WhenShown,
            Some(knowledge) => knowledge,
            None if self.is_unknown() => Knowledge::WhenShown,
            // Only a worker of the newest generation can know what is in no row.
            None if self.index() + 1 == TABLE.len() => Knowledge::Yes,
            None => Knowledge::No,
        }
    }

    fn index(self) -> usize {
        self.0.unwrap_or(TABLE.len() - 1)
    }

    fn row(self) -> &'static Row {
        &TABLE[self.index()]
    }
}

#[cfg(test)]
mod tests;
