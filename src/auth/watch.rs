use std::{path::PathBuf, sync::Arc, time::Duration};

use tokio::{sync::Notify, task::spawn_blocking, time::timeout};
use tower_disagg::{generation::SharedKey, trtllm::SigningKey};

use super::file::{KeyFileError, read};

/// How often the file is read. A secret volume of Kubernetes changes by another symbolic link, at a time that nobody
/// announces and that not every file system would: looking at what is in the file finds every kind of change, and takes
/// a few system calls.
pub(super) const EVERY: Duration = Duration::from_secs(2);

/// Asks for the file to be read again, as SIGHUP does. Clones ask the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reload(Arc<Notify>);

impl Reload {
    pub(crate) fn ask(&self) {
        self.0.notify_one();
    }

    /// Waits until it was asked for. Cancel safe.
    async fn asked(&self) {
        self.0.notified().await;
    }
}

/// What there is to say after the file was read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// As before, and nobody asked.
    Nothing,
    /// The key is still the one in use.
    Same,
    /// There is another key.
    Other(SigningKey),
    /// There is no key in it.
    Bad(KeyFileError),
}

/// What is known of the file.
#[derive(Debug)]
pub(super) struct Known {
    key: SigningKey,
    trouble: Option<KeyFileError>,
}

impl Known {
    pub(super) fn new(key: SigningKey) -> Self {
        Self { key, trouble: None }
    }

    /// Learns what was read; what nobody asked for and was said before is not said again.
    pub(super) fn learn(&mut self, read: Result<SigningKey, KeyFileError>, asked: bool) -> Found {
        match read {
            Ok(key) => {
                let trouble = self.trouble.take().is_some();
                if key != self.key {
                    self.key = key.clone();
                    return Found::Other(key);
                }
                if trouble || asked { Found::Same } else { Found::Nothing }
            }
            Err(error) if !asked && self.trouble.as_ref() == Some(&error) => Found::Nothing,
            Err(error) => {
                self.trouble = Some(error.clone());
                Found::Bad(error)
            }
        }
    }
}

/// Keeps `shared` at the key in the file at `path`: reads it every two seconds, and at once when it is asked for. While
/// there is no usable key in it the last one stays. Never ends.
pub(crate) async fn watch(path: PathBuf, shared: SharedKey, reload: Reload) {
    let mut known = Known::new(shared.current());
    let file = path.display();
    loop {
        let asked = timeout(EVERY, reload.asked()).await.is_ok();
        let path = path.clone();
        // fails when the process ends
        let Ok(read) = spawn_blocking(move || read(&path)).await else { continue };
        let result = match known.learn(read, asked) {
            Found::Nothing => continue,
            Found::Same => {
                tracing::info!(%file, "the signing key was read again and is the same");
                "ok"
            }
            Found::Other(key) => {
                shared.replace(key);
                tracing::info!(%file, "there is another signing key; requests are signed with it from now on");
                "ok"
            }
            Found::Bad(error) => {
                tracing::error!(%file, %error, "the signing key could not be read again; the last one stays in use");
                "failed"
            }
        };
        metrics::counter!("disagg_auth_key_reloads_total", "result" => result).increment(1);
    }
}

/// Says that there is no file, whenever it is to be read. Never ends.
pub(crate) async fn nothing(reload: Reload) {
    loop {
        reload.asked().await;
        tracing::info!("there is nothing to read again: no --auth-key-file is set");
    }
}
