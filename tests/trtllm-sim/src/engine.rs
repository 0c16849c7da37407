//! Starting and stopping an engine.

use crate::config::Config;
use crate::faults::{CutAt, Fault};
use crate::shared::Shared;
use crate::state::State;
use crate::{http1, kv, serve};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// A running engine. Dropping it stops it and closes its connections at once.
#[derive(Debug)]
pub struct Engine {
    addr: SocketAddr,
    shared: Arc<Shared>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

impl Engine {
    /// Starts an engine on the current tokio runtime. When this returns, it accepts.
    ///
    /// # Errors
    ///
    /// When the port cannot be bound, or the release is not one, or has not an
    /// option that is on ([`io::ErrorKind::InvalidInput`]).
    pub async fn start(config: Config) -> io::Result<Self> {
        let generation =
            config.schema().map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, config.port)).await?;
        let transfers = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let addr = listener.local_addr()?;
        let endpoint = format!("tcp://{}", transfers.local_addr()?);
        let faults = config.faults.clone();
        let shared = Arc::new(Shared::new(config, generation, endpoint));
        for fault in faults {
            let _ = shared.faults().add(fault);
        }
        let tasks = vec![
            tokio::spawn(accept(listener, Arc::clone(&shared))),
            tokio::spawn(kv::serve(transfers, Arc::clone(&shared))),
        ];
        Ok(Self { addr, shared, tasks: Mutex::new(tasks) })
    }

    /// The address it listens on.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The address as `127.0.0.1:port`.
    #[must_use]
    pub fn hostport(&self) -> String {
        self.addr.to_string()
    }

    /// The address as `http://127.0.0.1:port`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// What it has seen and done so far.
    #[must_use]
    pub fn state(&self) -> State {
        self.shared.state()
    }

    /// Adds a fault. The newest fault that fits a request is the one it meets.
    /// More than 1,024 at once are ignored.
    pub fn set_fault(&self, fault: Fault) {
        let _ = self.shared.faults().add(fault);
    }

    /// Removes all faults.
    pub fn clear_faults(&self) {
        self.shared.faults().clear();
    }

    /// From now on generation requests must be signed with one of these keys;
    /// with none of them, every signature is accepted. A real engine has one
    /// key until it is restarted; more than one make a restart under load
    /// something that a test can follow.
    pub fn set_auth_keys<K: Into<String>>(&self, keys: impl IntoIterator<Item = K>) {
        self.shared.auth_keys().0 = keys.into_iter().map(Into::into).collect();
    }

    /// Forgets the requests and refusals seen so far; counts stay.
    pub fn forget(&self) {
        self.shared.forget();
    }

    /// Stops the engine: nothing is accepted any more, all connections are
    /// closed. Returns when that is done; calling it again does nothing.
    pub async fn shutdown(&self) {
        for task in self.take_tasks() {
            task.abort();
            let _ = task.await;
        }
    }

    fn take_tasks(&self) -> Vec<JoinHandle<()>> {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut tasks)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        for task in self.take_tasks() {
            task.abort();
        }
    }
}

/// Accepts connections; they live in the set, and end with this task.
async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(connection(stream, Arc::clone(&shared)));
                }
                // Out of files, most likely; others will be closed soon.
                Err(_) => tokio::time::sleep(std::time::Duration::from_millis(10)).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn connection(stream: TcpStream, shared: Arc<Shared>) {
    let number = shared.counts.connections.next();
    let accept = |fault: &Fault| fault.cut.is_some_and(|cut| cut.at == CutAt::Accept);
    let fault = shared.faults().take(accept);
    if let Some(cut) = fault.and_then(|fault| fault.cut) {
        if cut.how == crate::faults::CutHow::Rst {
            let _ = stream.set_zero_linger();
        }
        return;
    }
    let _open = Gauge::new(&shared);
    let keep_alive = shared.config.keep_alive;
    http1::serve(stream, number, keep_alive, |request, conn| {
        serve::handle(Arc::clone(&shared), request, conn)
    })
    .await;
}

/// Counts a connection while it is open.
struct Gauge<'a>(&'a Shared);

impl<'a> Gauge<'a> {
    fn new(shared: &'a Shared) -> Self {
        shared.counts.open_connections.add(1);
        Self(shared)
    }
}

impl Drop for Gauge<'_> {
    fn drop(&mut self) {
        self.0.counts.open_connections.sub_one();
    }
}
