use super::{
    ContextReply,
    schema::{Knowledge, Schema},
    version::Engine,
};

/// What a generation request may hold, given the two workers of a handoff.
///
/// The leg is shaped for the generation worker: a member it does not know is a 400, and the handoff is lost
/// (contract, section 2). So members its release does not list are left out; members that no release read so far
/// lists pass to a worker of the newest or of an unknown generation only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    schema: Schema,
    same_release: bool,
    ctx_usage: bool,
}

impl Shape {
    /// The shape for a handoff from `context`, whose reply is `reply`, to `generation`.
    pub fn between(context: &Engine, generation: &Engine, reply: &ContextReply) -> Self {
        let schema = generation.schema();
        let same_release = context.release().is_some() && context.release() == generation.release();
        let shape = Self { schema, same_release, ctx_usage: false };
        Self { ctx_usage: shape.allows("ctx_usage", reply.shows("ctx_usage")), ..shape }
    }

    /// What the generation worker knows.
    pub fn schema(self) -> Schema {
        self.schema
    }

    /// Whether the worker is told the usage of the context step. It then reports true counts of prompt and cached
    /// tokens; without, it takes the transferred cache for hits of its own.
    pub fn ctx_usage(self) -> bool {
        self.ctx_usage
    }

    /// Whether a member of `disaggregated_params` may be sent; `shown`: the context worker's reply has it.
    pub(super) fn allows(self, member: &str, shown: bool) -> bool {
        match self.schema.knowledge(member) {
            Knowledge::Yes => true,
            Knowledge::WhenShown => shown && (self.same_release || self.schema.is_unknown()),
            Knowledge::No => false,
        }
    }
}
