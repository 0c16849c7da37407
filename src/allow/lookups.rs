use std::{
    collections::HashMap,
    error::Error,
    fmt, io,
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    time::{Instant, timeout},
};

/// How long an answer is taken for true. A worker's name is used by many requests at a time, and one look-up can be
/// half a dozen questions to a name server (search domains, two families of addresses); what is spared counts with
/// every sidecar of a cluster. It is no longer than a connection is kept idle, which is bound to an address just so.
const FRESH: Duration = Duration::from_secs(2);
/// How many names are remembered.
const MOST: usize = 256;
/// How many are looked up at a time. The system's resolver cannot be cancelled, and each question keeps a thread until
/// it has given up.
const AT_A_TIME: usize = 32;

/// What a name resolves to; ports are nothing.
pub(super) type Found = Arc<[SocketAddr]>;

/// Resolves a name. It may take as long as it likes.
pub(crate) type Resolver =
    Arc<dyn Fn(String) -> Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send>> + Send + Sync>;

/// The system's resolver.
pub(crate) fn system() -> Resolver {
    Arc::new(|name| Box::pin(async move { Ok(tokio::net::lookup_host((name, 0)).await?.collect()) }))
}

/// Looks up names of context workers: one question at a time for each name, whose answer all who want it share and
/// which holds for a moment. A failure is shared by those who wait, and forgotten. Clones share everything.
#[derive(Clone)]
pub(crate) struct Lookups(Arc<State>);

struct State {
    resolver: Resolver,
    timeout: Duration,
    turns: Arc<Semaphore>,
    names: Mutex<HashMap<Box<str>, Receiver>>,
}

/// Nothing until there is an answer.
type Receiver = watch::Receiver<Option<Answer>>;

/// When it came, and what it is.
type Answer = (Instant, Result<Found, Arc<io::Error>>);

impl Lookups {
    /// Answers within `timeout`, or fails.
    pub(crate) fn new(resolver: Resolver, timeout: Duration) -> Self {
        let turns = Arc::new(Semaphore::new(AT_A_TIME));
        Self(Arc::new(State { resolver, timeout, turns, names: Mutex::default() }))
    }

    /// What `name` resolves to. Dropping the future leaves the question to the others who wait.
    pub(super) async fn addresses(&self, name: &str) -> Result<Found, LookupError> {
        let asking = async {
            let mut answer = match self.0.known(name) {
                Some(answer) => answer,
                None => {
                    // before the name is entered, so that no more is entered than can be asked
                    let turn = self.0.turns.clone().acquire_owned().await.map_err(|_| LookupError::Lost)?;
                    self.0.ask(name, turn)
                }
            };
            let answer = answer.wait_for(Option::is_some).await.map_err(|_| LookupError::Lost)?;
            match &*answer {
                Some((_, Ok(found))) => Ok(found.clone()),
                Some((_, Err(error))) => Err(LookupError::Failed(error.clone())),
                None => Err(LookupError::Lost),
            }
        };
        timeout(self.0.timeout, asking).await.unwrap_or(Err(LookupError::Late))
    }

    #[cfg(test)]
    pub(super) fn remembered(&self) -> usize {
        self.0.names().len()
    }
}

impl State {
    /// The answer to `name`, or where it will be.
    fn known(&self, name: &str) -> Option<Receiver> {
        self.names().get(name).filter(|answer| holds(answer)).cloned()
    }

    /// Where the answer to `name` will be. The question is asked by a task of its own, which keeps its turn until the
    /// resolver has answered, whoever still waits for it.
    fn ask(&self, name: &str, turn: OwnedSemaphorePermit) -> Receiver {
        let mut names = self.names();
        if let Some(answer) = names.get(name).filter(|answer| holds(answer)) {
            return answer.clone(); // somebody else asked meanwhile
        }
        let (tell, answer) = watch::channel(None);
        if names.len() >= MOST {
            make_room(&mut names);
        }
        names.insert(name.into(), answer.clone());
        drop(names);
        let (name, resolving) = (name.to_owned(), (self.resolver)(name.to_owned()));
        tokio::spawn(async move {
            let found = resolving.await;
            if let Err(error) = &found {
                tracing::warn!(name, %error, "the name of a context worker cannot be resolved");
            }
            tell.send_replace(Some((Instant::now(), found.map(Into::into).map_err(Arc::new))));
            drop(turn);
        });
        answer
    }

    /// Nothing here panics while it holds the lock; if it ever did, what the lock protects is whole all the same.
    fn names(&self) -> MutexGuard<'_, HashMap<Box<str>, Receiver>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether an answer can be taken for true, or is on its way.
fn holds(answer: &Receiver) -> bool {
    match &*answer.borrow() {
        None => answer.has_changed().is_ok(), // an error when whoever asked is gone without an answer
        Some((at, Ok(_))) => at.elapsed() < FRESH,
        Some((_, Err(_))) => false,
    }
}

/// Drops what has run out, and if there is nothing of that kind, the oldest answer. Questions under way stay; there are
/// fewer than names may be.
fn make_room(names: &mut HashMap<Box<str>, Receiver>) {
    let before = names.len();
    names.retain(|_, answer| holds(answer));
    if names.len() < before {
        return;
    }
    let came = |answer: &Receiver| answer.borrow().as_ref().map(|(at, _)| *at);
    let answered = names.iter().filter_map(|(name, answer)| Some((came(answer)?, name)));
    if let Some(oldest) = answered.min().map(|(_, name)| name.clone()) {
        names.remove(&oldest);
    }
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum LookupError {
    Failed(Arc<io::Error>),
    /// Not within the time.
    Late,
    /// Whoever asked is gone.
    Lost,
}

impl fmt::Display for LookupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Failed(_) => "the resolver failed",
            Self::Late => "the resolver did not answer within the connect timeout",
            Self::Lost => "the resolver gave up",
        })
    }
}

impl Error for LookupError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Failed(error) => Some(&**error),
            Self::Late | Self::Lost => None,
        }
    }
}

impl fmt::Debug for Lookups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lookups").field("timeout", &self.0.timeout).finish_non_exhaustive()
    }
}
