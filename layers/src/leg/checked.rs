use std::{net::SocketAddr, sync::Arc};

/// The addresses at which a context worker may be dialled: those that were checked when the request was let in.
///
/// An endpoint can be allowed for what its name resolves to (see [`AllowContext`](crate::contract::AllowContext)).
/// Whoever looked the name up a second time could be told another address, one that nobody has checked. So
/// [`ContextLayer`](crate::context::ContextLayer) puts these into the extensions of the leg request, whose URI still has
/// the name, for the `host` header and for TLS. **A transport that connects by name must dial these, in this order, and
/// nothing else**, also on a retry of its own, and must not take a connection out of a pool that was made to another
/// address. Without them in the extensions the endpoint may be dialled by its name.
///
/// There is at least one and there are at most [`MOST`](Self::MOST). `Clone` copies a handle.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CheckedAddresses(Arc<[SocketAddr]>);

impl CheckedAddresses {
    /// How many are kept.
    pub const MOST: usize = 16;

    /// The first [`MOST`](Self::MOST) of `addresses`; `None` when there is not one, for then nothing may be dialled.
    pub fn new(addresses: impl IntoIterator<Item = SocketAddr>) -> Option<Self> {
        let addresses: Arc<[_]> = addresses.into_iter().take(Self::MOST).collect();
        (!addresses.is_empty()).then_some(Self(addresses))
    }

    /// The addresses, in the order in which they are to be tried.
    pub fn as_slice(&self) -> &[SocketAddr] {
        &self.0
    }
}
