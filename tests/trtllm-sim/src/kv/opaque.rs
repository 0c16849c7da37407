//! The opaque state: bytes that only engines understand.

/// What a context engine puts into the opaque state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Opaque {
    /// Where to pull from.
    pub(crate) endpoint: String,
    /// The secret that the pull must name.
    pub(crate) nonce: String,
}

impl Opaque {
    /// A fresh secret.
    pub(crate) fn nonce() -> String {
        format!("{:032x}", rand::random::<u128>())
    }

    /// As bytes, at least `size` of them.
    pub(crate) fn encode(&self, size: usize) -> Vec<u8> {
        let mut bytes = format!("simkv {} {} ", self.endpoint, self.nonce).into_bytes();
        if bytes.len() < size {
            bytes.resize(size, b'.');
        }
        bytes
    }

    /// From bytes; `None` when an engine of this kind did not make them.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let words = bytes.get(..bytes.len().min(512))?;
        let text: String = words.iter().map(|b| char::from(*b)).collect();
        let mut words = text.split(' ');
        if words.next() != Some("simkv") {
            return None;
        }
        Some(Self { endpoint: words.next()?.to_owned(), nonce: words.next()?.to_owned() })
    }
}
