use std::{convert::Infallible, error::Error, fmt, io, net::SocketAddr};

use hyper::body::Incoming;
use tokio::{
    net::TcpListener,
    sync::mpsc,
    task::JoinSet,
    time::{sleep, timeout},
};

use super::{
    Outcome, Phase, Phases, Signals,
    accept::{self, Ends},
    admin::Admin,
    drain::drain,
    front::Front,
    signal::Asked,
};
use crate::{
    auth::{self, Reload},
    config::{Config, EngineVersion},
    engine,
    stack::Assembly,
    telemetry,
};

/// How long a request that was cut may take to be gone, and the answer to a last probe to be written.
const LAST_WORDS: std::time::Duration = std::time::Duration::from_millis(500);

/// How much longer than the data port the admin port is open, so that a probe that is under way is answered.
const LAST_PROBE: std::time::Duration = std::time::Duration::from_millis(100);

/// The sidecar: two listeners and the stack.
///
/// ```no_run
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// use disagg_sidecar::{Config, Outcome, Sidecar};
///
/// let config = Config::from_args(["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"])?;
/// let sidecar = Sidecar::bind(config).await?;
/// let (address, handle) = (sidecar.data_addr(), sidecar.handle());
/// let running = tokio::spawn(sidecar.run());
/// // ... send requests to `address` ...
/// handle.drain();
/// assert_eq!(running.await?, Outcome::Complete);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Sidecar {
    config: Config,
    data: (TcpListener, SocketAddr),
    admin: (TcpListener, SocketAddr),
    phases: Phases,
    reload: Reload,
}

/// Ends a [`Sidecar`] from elsewhere. Clones end the same one.
#[derive(Debug, Clone)]
pub struct Handle {
    phases: Phases,
    reload: Reload,
}

impl Handle {
    /// Withdraws readiness, serves on for the grace time, finishes what runs, and ends. As SIGTERM does.
    pub fn drain(&self) {
        self.phases.advance(Phase::Leaving);
    }

    /// Ends at once. What runs ends visibly incomplete. As a second SIGTERM does.
    pub fn cut(&self) {
        self.phases.advance(Phase::Hurrying);
    }

    /// Reads `--auth-key-file` again, without waiting for that. As SIGHUP does.
    pub fn reload(&self) {
        self.reload.ask();
    }

    /// Drains at the first SIGTERM or SIGINT and cuts at the second; reads again at each SIGHUP. Never ends.
    pub async fn obey(self, mut signals: Signals) -> Infallible {
        let mut draining = false;
        loop {
            match signals.next().await {
                Asked::Reload => self.reload(),
                Asked::End if draining => self.cut(),
                Asked::End => {
                    tracing::info!("draining; a second signal cuts what still runs");
                    self.drain();
                    draining = true;
                }
            }
        }
    }
}

/// Why a sidecar could not be started.
#[derive(Debug)]
pub struct StartError {
    flag: &'static str,
    address: SocketAddr,
    source: io::Error,
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot listen on {} ({}): {}", self.address, self.flag, self.source)
    }
}

impl Error for StartError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.source)
    }
}

impl Sidecar {
    /// Opens both ports. From now on clients can connect; they are served once [`run`](Self::run) is called.
    ///
    /// # Errors
    ///
    /// Fails when a port cannot be opened.
    pub async fn bind(config: Config) -> Result<Self, StartError> {
        let open = async |flag, address| {
            let failed = |source| StartError { flag, address, source };
            let listener = TcpListener::bind(address).await.map_err(failed)?;
            let address = listener.local_addr().map_err(failed)?;
            Ok((listener, address))
        };
        let data = open("--listen", config.listen).await?;
        let admin = open("--admin-listen", config.admin_listen).await?;
        telemetry::metrics();
        Ok(Self { config, data, admin, phases: Phases::new(), reload: Reload::default() })
    }

    /// Where requests are served.
    pub fn data_addr(&self) -> SocketAddr {
        self.data.1
    }

    /// Where probes and metrics are.
    pub fn admin_addr(&self) -> SocketAddr {
        self.admin.1
    }

    /// For ending it.
    pub fn handle(&self) -> Handle {
        Handle { phases: self.phases.clone(), reload: self.reload.clone() }
    }

    /// Serves until it is drained or cut, or the generation worker turns out to be too old for a setting
    /// ([`Outcome::EngineTooOld`]): then as if it were drained, without the grace time. Dropping the future ends everything at once.
    pub async fn run(self) -> Outcome {
        let Self { config, data, admin, phases, reload } = self;
        let (grace, most) = (config.drain_grace, config.drain_timeout);
        let unread = config.generation_idle_timeout;
        let origin = config.generation_url.uri().clone();
        let asks = config.engine_version == EngineVersion::Auto;
        tracing::info!(
            version = env!("CARGO_PKG_VERSION"),
            listen = %data.1,
            admin = %admin.1,
            generation = %config.generation_url,
            "serving"
        );
        if config.allow_context.is_empty() {
            tracing::warn!("no --allow-context: a request can name any address as its context worker");
        }
        let key_file = config.auth_key_file.as_ref().map(|file| file.path().to_owned());
        let assembly = Assembly::new(config, phases.clone());
        let mut tasks = JoinSet::new();
        match (key_file, assembly.signing_key()) {
            (Some(path), Some(key)) => tasks.spawn(auth::watch(path, key, reload)),
            _ => tasks.spawn(auth::nothing(reload)),
        };
        tasks.spawn(telemetry::upkeep());
        if asks {
            tasks.spawn(engine::watch(assembly.generation_gate()));
        }

        let (open, mut connections) = mpsc::channel(1);
        let front = Front::new(assembly.service::<Incoming>(), phases.clone());
        tasks.spawn(accept::serve(
            data.0,
            front,
            phases.clone(),
            Ends { close: Phase::Finishing, cut: Phase::Cut },
            unread,
            open,
        ));
        let (admin_open, mut admin_connections) = mpsc::channel(1);
        let answers = Admin::new(phases.clone(), assembly.clone(), &origin);
        let answers = tower::service_fn(move |request| answers.clone().answer(request));
        tasks.spawn(accept::serve(
            admin.0,
            answers,
            phases.clone(),
            Ends { close: Phase::Closing, cut: Phase::Over },
            accept::HEAD_TIME,
            admin_open,
        ));

        let mut gone = async || {
            // nothing is ever sent: this ends when the last connection has dropped its end
            let _: Option<Infallible> = connections.recv().await;
        };
        let busy = || {
            let (in_flight, settling) = (assembly.in_flight().count(), assembly.settler().active());
            if in_flight + settling > 0 {
                tracing::warn!(in_flight, settling, "cutting what still runs");
            }
            in_flight + settling > 0
        };
        // a request over HTTP/2 outlives its connection by a moment: only its end, or the settlement that it leaves
        // behind, tells that it is gone
        let done = async {
            assembly.in_flight().idle().await;
            assembly.settler().idle().await;
        };
        let unfit = tokio::select! {
            biased;
            () = phases.reached(Phase::Leaving) => false,
            () = assembly.unfit_engine() => true,
        };
        if unfit {
            phases.advance(Phase::Finishing);
        }
        let outcome = drain(&phases, grace, most, gone(), done, busy).await;
        let outcome = if unfit { Outcome::EngineTooOld } else { outcome };
        let _ = timeout(LAST_WORDS, gone()).await;
        sleep(LAST_PROBE).await;
        phases.advance(Phase::Closing);
        let _ = timeout(LAST_WORDS, admin_connections.recv()).await;
        phases.advance(Phase::Over);
        tracing::info!(?outcome, "ended");
        outcome
    }
}
