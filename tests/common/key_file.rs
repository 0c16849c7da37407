//! The file of `--auth-key-file`, laid out as Kubernetes mounts a secret.

use std::{
    fs,
    os::unix::fs::symlink,
    path::PathBuf,
    sync::atomic::{AtomicU32, Ordering},
};

/// `key` is a link to `..data/key`, and `..data` a link to a folder, which another one takes the place of when the
/// secret changes. All of it is gone when this is dropped.
#[derive(Debug)]
pub struct KeyFile(PathBuf);

impl KeyFile {
    pub fn new(key: impl AsRef<[u8]>) -> Self {
        let file = Self(std::env::temp_dir().join(format!("disagg-key-{}-{}", std::process::id(), next())));
        fs::create_dir(&file.0).unwrap();
        file.change(key);
        symlink("..data/key", file.0.join("key")).unwrap();
        file
    }

    pub fn path(&self) -> String {
        self.0.join("key").to_str().unwrap().to_owned()
    }

    /// The secret changes, all at once.
    pub fn change(&self, key: impl AsRef<[u8]>) {
        let (folder, link) = (format!("..{}", next()), self.0.join("..data_tmp"));
        fs::create_dir(self.0.join(&folder)).unwrap();
        fs::write(self.0.join(&folder).join("key"), key).unwrap();
        symlink(folder, &link).unwrap();
        fs::rename(link, self.0.join("..data")).unwrap();
    }

    /// The same file gets another content, as an editor might do it.
    pub fn overwrite(&self, key: impl AsRef<[u8]>) {
        fs::write(self.path(), key).unwrap();
    }

    /// The link leads nowhere.
    pub fn remove(&self) {
        fs::remove_file(self.0.join("..data")).unwrap();
    }
}

impl Drop for KeyFile {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn next() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
