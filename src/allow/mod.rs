//! Which context workers may be called: the allow-list, and the look-ups that its networks ask for.

mod lookups;

use std::sync::Arc;

use tower_disagg::{
    contract::{AllowContext, Allowance, LookUp},
    leg::CheckedAddresses,
    trtllm::{ContextEndpoint, Host},
};

pub(crate) use self::lookups::{Lookups, Resolver, system};
use crate::config::{self, AllowEntry, Allowed};

/// The allow-list at work. A name is looked up only when it is listed, and networks say where it may lead.
#[derive(Debug, Clone)]
pub(crate) struct AllowList {
    entries: Arc<[AllowEntry]>,
    lookups: Lookups,
}

impl AllowList {
    pub(crate) fn new(entries: &[AllowEntry], lookups: Lookups) -> Self {
        Self { entries: entries.into(), lookups }
    }

    async fn look_up(&self, endpoint: &ContextEndpoint) -> LookUp {
        let Host::Name(name) = endpoint.host() else { return LookUp::Refused };
        match self.lookups.addresses(name).await {
            Ok(found) => {
                let addresses =
                    CheckedAddresses::new(config::resolved(&self.entries, endpoint.port(), &found));
                tracing::debug!(%endpoint, ?found, ?addresses, "checked what a context endpoint resolves to");
                addresses.map_or(LookUp::Refused, LookUp::Allowed)
            }
            Err(error) => LookUp::Failed(error.into()),
        }
    }
}

impl AllowContext for AllowList {
    fn allow(&self, endpoint: &ContextEndpoint) -> Allowance {
        match config::allowed(&self.entries, endpoint) {
            Allowed::Yes => Allowance::Allowed,
            Allowed::No => Allowance::Refused,
            Allowed::ByAddress => {
                let (list, endpoint) = (self.clone(), endpoint.clone());
                Allowance::Pending(Box::pin(async move { list.look_up(&endpoint).await }))
            }
        }
    }
}

#[cfg(test)]
mod tests;
