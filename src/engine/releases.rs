use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};
use tower_disagg::trtllm::{Engine, KEEPS_CONVERSATIONS};

use super::probe::Answer;

/// What is known of the workers' releases. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Releases(Arc<State>);

#[derive(Debug)]
struct State {
    pinned: Option<Engine>,
    wanted: Wanted,
    local: Mutex<Local>,
    /// Held by the one that asks the local generation worker.
    asking_local: tokio::sync::Mutex<()>,
    stale: Notify,
    /// The first release that was heard of the local generation worker cannot do what it is to do.
    unfit: Notify,
    contexts: Mutex<HashMap<Box<str>, Arc<Context>>>,
    /// Releases newer than any known, of which the log has been told.
    newer: Mutex<Vec<Engine>>,
}

/// What the settings ask of workers that not every release can do.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Wanted {
    /// The local generation worker should look at signatures.
    pub(crate) signatures: bool,
    /// Workers are to keep conversations together.
    pub(crate) conversations: bool,
}

#[derive(Debug, Default)]
struct Local {
    /// What was last heard, also when it has to be asked again.
    engine: Option<Engine>,
    /// Until when that is taken for true.
    until: Option<Instant>,
    /// How many questions have been answered, or found nobody.
    questions: u64,
    /// What the last one heard, whether it lasts or not; nothing when nobody was there.
    said: Option<Engine>,
}

/// What is known of one context worker.
#[derive(Debug, Default)]
pub(super) struct Context {
    known: Mutex<Option<(Engine, Instant)>>,
    /// Held by the one that asks.
    pub(super) asking: tokio::sync::Mutex<()>,
    /// How often there was no connection.
    failures: AtomicU64,
}

/// How long the release of a worker is taken for true.
const LASTING: Duration = Duration::from_secs(60 * 60);
/// How long one is left alone that did not say, or that is not supported.
const SHORT: Duration = Duration::from_secs(60);
/// What was heard less than this ago is not doubted for a refused request.
const RECENT: Duration = Duration::from_secs(5);
/// How many context workers are remembered.
const MOST: usize = 1024;
/// How many releases the log is told of that are newer than any known. Any server can be named as a context worker, and
/// say what it likes.
const MOST_NEWER: usize = 16;

impl Releases {
    /// Nothing is known yet, or `pinned` holds for all workers.
    pub(crate) fn new(pinned: Option<Engine>, wanted: Wanted) -> Self {
        let releases = Self(Arc::new(State {
            pinned,
            wanted,
            local: Mutex::default(),
            asking_local: tokio::sync::Mutex::default(),
            stale: Notify::new(),
            unfit: Notify::new(),
            contexts: Mutex::default(),
            newer: Mutex::default(),
        }));
        if let Some(pinned) = &releases.0.pinned {
            releases.note_newer(pinned);
            releases.note_unchecked(pinned);
        }
        releases
    }

    /// Tells the log of a release that is newer than any known: once, whoever has it.
    pub(super) fn note_newer(&self, engine: &Engine) {
        if self.is_news(engine) {
            tracing::warn!(release = %engine, "newer than any release known here: treated as the newest that is");
        }
    }

    /// Tells the log that signatures keep nobody out of the generation worker. They do no harm where nobody looks at them.
    fn note_unchecked(&self, engine: &Engine) {
        if self.0.wanted.signatures && engine.is_supported() && !engine.schema().checks_signatures() {
            tracing::warn!(
                release = %engine,
                "requests are signed, but the generation worker's release does not check signatures: whoever can reach \
                 it can send it handoffs"
            );
        }
    }

    pub(super) fn is_news(&self, engine: &Engine) -> bool {
        if !engine.is_newer_than_known() {
            return false;
        }
        let mut newer = lock(&self.0.newer);
        let news = newer.len() < MOST_NEWER && !newer.contains(engine);
        if news {
            newer.push(engine.clone());
        }
        news
    }

    /// The release that was set for all workers.
    pub(super) fn pinned(&self) -> Option<&Engine> {
        self.0.pinned.as_ref()
    }

    /// Whether a worker is to keep conversations together and cannot. One of unknown release has the benefit of the
    /// doubt.
    pub(crate) fn loses_conversations(&self, engine: &Engine) -> bool {
        self.0.wanted.conversations && !engine.schema().keeps_conversations()
    }

    // === the local generation worker ===

    /// The release of the local generation worker; `None` when it has to be asked.
    pub(crate) fn local(&self) -> Option<Engine> {
        if let Some(pinned) = &self.0.pinned {
            return Some(pinned.clone());
        }
        let local = lock(&self.0.local);
        let fresh = local.until.is_some_and(|until| Instant::now() < until);
        local.engine.clone().filter(|_| fresh)
    }

    /// The same; the last one heard when it has to be asked.
    pub(crate) fn local_or_last(&self) -> Engine {
        self.0.pinned.clone().or_else(|| lock(&self.0.local).engine.clone()).unwrap_or_default()
    }

    pub(crate) fn set_local(&self, engine: Engine) {
        let mut local = lock(&self.0.local);
        local.until = Some(Instant::now() + LASTING);
        if local.engine.as_ref() == Some(&engine) {
            return;
        }
        if !engine.is_supported() {
            tracing::error!(release = %engine, "the generation worker's release is not supported");
        } else {
            tracing::info!(release = %engine, "the generation worker answers");
        }
        self.note_unchecked(&engine);
        if self.loses_conversations(&engine) {
            // one that has served is not stopped for it: its clients would lose more than a warm cache
            if local.engine.is_none() {
                tracing::error!(
                    release = %engine,
                    "the generation worker is too old for --conversation-from, which needs {KEEPS_CONVERSATIONS}"
                );
                self.0.unfit.notify_one();
            } else {
                tracing::error!(
                    release = %engine,
                    "the generation worker was replaced by one that is too old for --conversation-from, which needs \
                     {KEEPS_CONVERSATIONS}; not ready until it is replaced again"
                );
            }
        }
        local.engine = Some(engine);
    }

    /// Waits until the local generation worker turns out, when it is heard of for the first time, to be of a release
    /// that cannot do what the settings ask for.
    pub(crate) async fn unfit(&self) {
        self.0.unfit.notified().await;
    }

    /// The right to ask the local generation worker.
    pub(super) async fn asking_local(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.0.asking_local.lock().await
    }

    /// How many questions to the local generation worker have ended.
    pub(super) fn questions(&self) -> u64 {
        lock(&self.0.local).questions
    }

    /// What the last one heard, if any has ended since there were `before`.
    pub(super) fn said_since(&self, before: u64) -> Option<Option<Engine>> {
        let local = lock(&self.0.local);
        (local.questions != before).then(|| local.said.clone())
    }

    /// A question has ended.
    pub(super) fn said(&self, engine: Option<Engine>) {
        let mut local = lock(&self.0.local);
        local.questions += 1;
        local.said = engine;
    }

    /// The local generation worker could not be asked.
    pub(super) fn forget_local(&self) {
        lock(&self.0.local).until = None;
    }

    /// The local generation worker has to be asked again: its connection failed or it is not well, so it may have been
    /// replaced.
    pub(crate) fn doubt_local(&self) {
        self.forget_local();
        self.0.stale.notify_one();
    }

    /// Waits until [`doubt_local`](Self::doubt_local) was called.
    pub(super) async fn doubted(&self) {
        self.0.stale.notified().await;
    }

    /// The local generation worker has refused what the context worker at `authority` handed over. Each may have been
    /// replaced without a connection that failed, so both are asked again: the one when it is needed next, the other
    /// in the background, as a client can bring refusals about.
    pub(crate) fn refused(&self, authority: &str) {
        if lock(&self.0.local).until.is_some_and(is_old) {
            self.0.stale.notify_one();
        }
        let mut contexts = lock(&self.0.contexts);
        let old = |entry: &Arc<Context>| lock(&entry.known).as_ref().is_some_and(|(_, until)| is_old(*until));
        if contexts.get(authority).is_some_and(old) {
            contexts.remove(authority);
        }
    }

    // === context workers ===

    /// The release of a context worker, named by its authority in normal form.
    pub(crate) fn context(&self, authority: &str) -> Engine {
        if let Some(pinned) = &self.0.pinned {
            return pinned.clone();
        }
        let entry = lock(&self.0.contexts).get(authority).cloned();
        entry.and_then(|entry| entry.known()).unwrap_or_default()
    }

    /// What is kept on a context worker, made when there is nothing.
    pub(super) fn entry(&self, authority: &str) -> Arc<Context> {
        let mut contexts = lock(&self.0.contexts);
        if let Some(entry) = contexts.get(authority) {
            return entry.clone();
        }
        if contexts.len() >= MOST {
            make_room(&mut contexts);
        }
        let entry = Arc::<Context>::default();
        contexts.insert(authority.into(), entry.clone());
        entry
    }

    /// Forgets a context worker whose connection failed.
    pub(super) fn forget(&self, authority: &str) {
        lock(&self.0.contexts).remove(authority);
    }

    #[cfg(test)]
    pub(super) fn remembered(&self) -> usize {
        lock(&self.0.contexts).len()
    }
}

/// Whether what holds until then was heard a while ago.
fn is_old(until: Instant) -> bool {
    until.saturating_duration_since(Instant::now()) + RECENT < LASTING
}

/// Drops what has run out, and if there is nothing of that kind, what will run out first.
fn make_room(contexts: &mut HashMap<Box<str>, Arc<Context>>) {
    let before = contexts.len();
    contexts.retain(|_, entry| entry.known().is_some());
    if contexts.len() < before {
        return;
    }
    let until = |entry: &Context| lock(&entry.known).as_ref().map(|(_, until)| *until);
    let first = contexts.iter().min_by_key(|(_, entry)| until(entry)).map(|(name, _)| name.clone());
    if let Some(name) = first {
        contexts.remove(&name);
    }
}

impl Context {
    /// The release, while it is taken for true.
    pub(super) fn known(&self) -> Option<Engine> {
        let known = lock(&self.known);
        known.as_ref().filter(|(_, until)| Instant::now() < *until).map(|(engine, _)| engine.clone())
    }

    /// Returns whether it is another release than before.
    pub(super) fn learn(&self, answer: &Answer) -> bool {
        // one that is refused gets no request whose connection could fail, so its successor would not be noticed
        let lasting = answer.lasting && answer.engine.is_supported();
        let until = Instant::now() + if lasting { LASTING } else { SHORT };
        let before = lock(&self.known).replace((answer.engine.clone(), until));
        before.is_none_or(|(before, _)| before != answer.engine)
    }

    pub(super) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Acquire)
    }

    pub(super) fn failed(&self) {
        self.failures.fetch_add(1, Ordering::AcqRel);
    }
}

/// Nothing here panics while it holds a lock; if it ever did, what the lock protects is whole all the same.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
