//! What a worker of a release knows and does: the one table from releases to capabilities.
//!
//! `trtllm-serve` answers 400 to any member it does not know, at the top level and in `disaggregated_params`, even to
//! `null` (contract, section 2). So what the generation worker is sent depends on its release. To add a release, add
//! one row to [`TABLE`], with what changed and nothing else; nothing here or in the tests is to be edited besides. A
//! release that was read and changed nothing gets its row as well: the last row is the end of what is known.

use super::version::Number;

/// One step in the history of the engine: what changed with a release. Members are those of `disaggregated_params`.
struct Row {
    /// The first release of which this holds.
    since: Number,
    /// Members that are known from here on.
    knows: &'static [&'static str],
    /// Members of which it is not certain when exactly they came or went; see [`Knowledge::WhenShown`].
    may_know: &'static [&'static str],
    /// Members that are refused from here on.
    forgets: &'static [&'static str],
    /// What else it can do from here on.
    gains: &'static [Capability],
}

/// What a release can do beyond members of `disaggregated_params`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Capability {
    /// A handoff is found by one id on both workers; without it none can work here.
    GlobalIds,
    /// Ids are laid out as node and process, see [`IdLayout::NodeProcess`].
    NodeProcessIds,
    /// The chat request knows `prompt_token_ids_b64`.
    Base64Tokens,
    /// Requests of one conversation can stay on one rank (contract, section 9).
    Conversations,
    /// Generation requests can be signed (contract, section 8).
    Signatures,
}

const V1_3: Number = Number::new(1, 3, 0);
const V1_4: Number = Number::new(1, 4, 0);

impl Row {
    /// Whether the members that a worker knows are those of the row before.
    fn keeps_members(&self) -> bool {
        self.knows.is_empty() && self.may_know.is_empty() && self.forgets.is_empty()
    }
}

/// A row in which nothing changes.
const SAME: Row = Row { since: Number::new(0, 0, 0), knows: &[], may_know: &[], forgets: &[], gains: &[] };

/// Oldest first. The releases are those of contract, section 2; where it is not certain to which generation one
/// belongs, the members in question are in `may_know`.
const TABLE: &[Row] = &[
    // G0.
    Row {
        knows: &[
            "request_type",
            "first_gen_tokens",
            "ctx_request_id",
            "encoded_opaque_state",
            "draft_tokens",
        ],
        ..SAME
    },
    // G1.
    Row {
        since: V1_3.rc(3),
        knows: &["disagg_request_id", "ctx_dp_rank", "ctx_info_endpoint", "schedule_style"],
        gains: &[Capability::GlobalIds],
        ..SAME
    },
    // G2. `ctx_usage` came with one of its later releases: rc13 has it not, rc24 has it.
    Row {
        since: V1_3.rc(10),
        knows: &["first_gen_log_probs", "first_gen_logits", "conversation_id"],
        may_know: &["ctx_usage"],
        ..SAME
    },
    // G2 or G3.
    Row {
        since: V1_3.rc(21),
        may_know: &["return_prompt_token_ids_b64"],
        gains: &[Capability::Conversations],
        ..SAME
    },
    // G3.
    Row {
        since: V1_3.rc(22),
        knows: &["ctx_usage", "return_prompt_token_ids_b64"],
        gains: &[Capability::NodeProcessIds, Capability::Base64Tokens],
        ..SAME
    },
    Row { since: V1_3.rc(23), gains: &[Capability::Signatures], ..SAME },
    // G3 or G4.
    Row { since: V1_3.rc(25), may_know: &["conversation_id", "resolved_thinking"], ..SAME },
    // G4.
    Row { since: V1_3.rc(26), knows: &["resolved_thinking"], forgets: &["conversation_id"], ..SAME },
    // G4n, the newest that was read: what changed are fields that only clients set.
    Row { since: V1_4.rc(0), ..SAME },
];

/// Whether it is newer than what was read. More candidates of the release that the last row names count as read, and
/// what amends it: most of them change nothing.
pub(super) fn is_newer_than_known(number: Number) -> bool {
    TABLE.last().is_some_and(|newest| number.line() > newest.since.line())
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
        self.can(Capability::GlobalIds)
    }

    /// The layout of request ids.
    pub fn id_layout(self) -> IdLayout {
        if self.can(Capability::NodeProcessIds) { IdLayout::NodeProcess } else { IdLayout::Machine }
    }

    /// Whether the chat request of the worker knows `prompt_token_ids_b64`.
    pub fn knows_base64_tokens(self) -> bool {
        self.can(Capability::Base64Tokens)
    }

    /// Whether the worker checks the signature of generation requests when it has a key (contract, section 8). One
    /// that does not ignores the header.
    pub fn checks_signatures(self) -> bool {
        self.can(Capability::Signatures)
    }

    /// Whether the worker can keep the requests of one conversation on one rank (contract, section 9). One that cannot
    /// ignores the header that names it.
    pub fn keeps_conversations(self) -> bool {
        self.can(Capability::Conversations)
    }

    /// Whether the worker knows this member of `disaggregated_params`. A member that no release read so far has is
    /// taken to be newer than all of them.
    pub fn knowledge(self, member: &str) -> Knowledge {
        let said = self.history().iter().rev().find_map(|row| {
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
            None if TABLE[self.index() + 1..].iter().all(Row::keeps_members) => Knowledge::Yes,
            None => Knowledge::No,
        }
    }

    fn index(self) -> usize {
        self.0.unwrap_or(TABLE.len() - 1)
    }

    /// The rows up to the worker's own.
    fn history(self) -> &'static [Row] {
        &TABLE[..=self.index()]
    }

    fn can(self, capability: Capability) -> bool {
        self.history().iter().any(|row| row.gains.contains(&capability))
    }
}

/// The release of the last row.
#[cfg(test)]
pub(super) fn newest() -> String {
    TABLE.last().unwrap().since.to_string()
}

#[cfg(test)]
mod tests;
