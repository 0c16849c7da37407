use std::{error::Error, fmt, sync::Arc};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::SignedMessage;

/// A key that generation requests are signed with: HMAC-SHA256 (contract, section 8).
///
/// It is the text of the worker's `internal_request_auth_key`, as bytes. Clones share what was made of it, which is
/// overwritten when the last of them is dropped; the bytes that it was made from are the caller's. `Debug` does not show
/// it. Two keys are equal when they sign alike.
///
/// ```
/// use tower_disagg::{generation::GenerationLayer, trtllm::SigningKey};
///
/// let key = SigningKey::new("the same as internal_request_auth_key")?;
/// let layer = GenerationLayer::new().sign(key);
/// # let _ = layer;
/// # Ok::<(), tower_disagg::trtllm::EmptyKey>(())
/// ```
#[derive(Clone)]
pub struct SigningKey(Arc<Hmac<Sha256>>);

impl SigningKey {
    /// A key of these bytes.
    ///
    /// # Errors
    ///
    /// When there are none: anybody could sign with such a key.
    pub fn new(key: impl AsRef<[u8]>) -> Result<Self, EmptyKey> {
        let key = key.as_ref();
        if key.is_empty() {
            return Err(EmptyKey(()));
        }
        // any other length will do
        Hmac::new_from_slice(key).map(|hmac| Self(Arc::new(hmac))).map_err(|_| EmptyKey(()))
    }

    /// The signature of a message. It takes time in proportion to the opaque state: about a millisecond for 300 KiB, less
    /// than a microsecond for a few hundred bytes.
    pub fn mac(&self, message: &SignedMessage) -> [u8; 32] {
        let mut hmac = Hmac::clone(&self.0);
        message.for_each(|piece| hmac.update(piece));
        hmac.finalize().into_bytes().into()
    }
}

impl PartialEq for SigningKey {
    fn eq(&self, other: &Self) -> bool {
        let of_nothing = |key: &Self| Hmac::clone(&key.0).finalize();
        of_nothing(self) == of_nothing(other)
    }
}

impl Eq for SigningKey {}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningKey")
    }
}

/// A key without a single byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EmptyKey(());

impl fmt::Display for EmptyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the key is empty")
    }
}

impl Error for EmptyKey {}

#[cfg(test)]
mod tests;
