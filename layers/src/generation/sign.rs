use http::HeaderMap;

use crate::trtllm::{ContextReply, SIGNATURE_HEADER, Shape, SignedMessage, signature_value};

/// Signs generation requests, for a worker that demands it (contract, section 8).
///
/// Implemented for closures, and with the feature `hmac` for `trtllm::SigningKey` and for `SharedKey`. Asked once for
/// each generation request, and must not block; so where keys come from elsewhere (a key service), they are fetched
/// beforehand.
///
/// ```
/// use tower_disagg::{generation::GenerationLayer, trtllm::SignedMessage};
///
/// # fn hmac_sha256(_: &[u8], _: Vec<u8>) -> [u8; 32] { [0; 32] }
/// # let key = [0];
/// let layer = GenerationLayer::new()
///     .sign(move |message: &SignedMessage| Some(hmac_sha256(&key, message.to_vec())));
/// # let _ = layer;
/// ```
pub trait Signer: Send + Sync {
    /// HMAC-SHA256 of the message, with the key of the worker. With `None` the request is sent without a signature: a
    /// worker that has a key refuses it with 400.
    fn sign(&self, message: &SignedMessage) -> Option<[u8; 32]>;
}

impl<F> Signer for F
where
    F: Fn(&SignedMessage) -> Option<[u8; 32]> + Send + Sync,
{
    fn sign(&self, message: &SignedMessage) -> Option<[u8; 32]> {
        self(message)
    }
}

/// Signs the request of a generation leg.
pub(super) fn sign(headers: &mut HeaderMap, signer: &dyn Signer, reply: &ContextReply, shape: &Shape) {
    if let Some(value) = signer.sign(&SignedMessage::of(reply, shape)).and_then(signature_value) {
        headers.insert(SIGNATURE_HEADER, value);
    }
}

#[cfg(feature = "hmac")]
pub use self::keys::SharedKey;

#[cfg(feature = "hmac")]
mod keys {
    use std::sync::{Arc, PoisonError, RwLock};

    use super::Signer;
    use crate::trtllm::{SignedMessage, SigningKey};

    impl Signer for SigningKey {
        fn sign(&self, message: &SignedMessage) -> Option<[u8; 32]> {
            Some(self.mac(message))
        }
    }

    /// A key that can be replaced while requests are signed with it. Clones share it.
    ///
    /// ```
    /// use tower_disagg::{generation::{GenerationLayer, SharedKey}, trtllm::SigningKey};
    ///
    /// let key = SharedKey::new(SigningKey::new("old")?);
    /// let layer = GenerationLayer::new().sign(key.clone());
    /// // later, from anywhere: requests that are not signed yet get this one
    /// key.replace(SigningKey::new("new")?);
    /// # let _ = layer;
    /// # Ok::<(), tower_disagg::trtllm::EmptyKey>(())
    /// ```
    #[derive(Debug, Clone)]
    pub struct SharedKey(Arc<RwLock<SigningKey>>);

    impl SharedKey {
        /// Signs with `key` until it is replaced.
        pub fn new(key: SigningKey) -> Self {
            Self(Arc::new(RwLock::new(key)))
        }

        /// Signs with `key` from now on.
        pub fn replace(&self, key: SigningKey) {
            // a key is whole whatever happened to who held the lock
            *self.0.write().unwrap_or_else(PoisonError::into_inner) = key;
        }

        /// The key that is signed with now.
        pub fn current(&self) -> SigningKey {
            self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
        }
    }

    impl Signer for SharedKey {
        fn sign(&self, message: &SignedMessage) -> Option<[u8; 32]> {
            self.current().sign(message)
        }
    }
}
