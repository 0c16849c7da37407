use std::{
    borrow::Cow,
    error::Error,
    fmt,
    fs::File,
    io::{self, Read},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use tower_disagg::trtllm::SigningKey;
use zeroize::Zeroizing;

/// The largest file that is read as a key, in bytes. A larger one is none.
pub(super) const MOST: usize = 64 << 10;

/// A file with a signing key, and the key that was in it when the settings were read.
///
/// All of the file is the key, save one line end (`\n` or `\r\n`) at the end; it has to be UTF-8, as the worker's is.
/// `Debug` shows the path only.
#[derive(Clone)]
pub struct AuthKeyFile {
    path: PathBuf,
    key: SigningKey,
}

impl AuthKeyFile {
    pub(crate) fn read(path: PathBuf) -> Result<Self, KeyFileError> {
        let key = read(&path)?;
        Ok(Self { path, key })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What was in it.
    pub(crate) fn key(&self) -> &SigningKey {
        &self.key
    }
}

impl fmt::Debug for AuthKeyFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AuthKeyFile").field(&self.path).finish()
    }
}

/// Why a file cannot be used; the text never shows what is in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyFileError(Cow<'static, str>);

impl fmt::Display for KeyFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for KeyFileError {}

impl From<io::Error> for KeyFileError {
    fn from(error: io::Error) -> Self {
        Self(format!("the file cannot be read: {error}").into())
    }
}

/// Reads the key that is in a file now. Blocks as long as the file system does.
pub(super) fn read(path: &Path) -> Result<SigningKey, KeyFileError> {
    // opening a pipe would wait for somebody to write to it, for ever; and what a path leads to can change between two
    // looks at it
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(KeyFileError("it is not a regular file".into()));
    }
    // with room for all of it from the start, as a larger buffer would leave a copy behind
    let mut content = Zeroizing::new(Vec::with_capacity(MOST + 1));
    file.take(MOST as u64 + 1).read_to_end(&mut content)?;
    key(&content)
}

/// The key in the content of a file.
pub(super) fn key(content: &[u8]) -> Result<SigningKey, KeyFileError> {
    if content.len() > MOST {
        return Err(KeyFileError(format!("the file is larger than {MOST} bytes").into()));
    }
    let text = std::str::from_utf8(content).map_err(|_| KeyFileError("the file is not UTF-8".into()))?;
    let text = text.strip_suffix('\n').map_or(text, |text| text.strip_suffix('\r').unwrap_or(text));
    SigningKey::new(text).map_err(|_| KeyFileError("the file is empty".into()))
}
