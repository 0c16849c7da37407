use std::{convert::Infallible, io, pin::pin, time::Duration};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::mpsc,
};
use tower_disagg::error::BoxError;
use tower_service::Service;

use super::{Phase, Phases};

/// How long a client may take to send the head of a request, and to begin with its first one.
const HEAD_TIME: Duration = Duration::from_secs(30);
/// How often a quiet HTTP/2 connection is asked whether it is still there, and how long it may take to say so.
const PING: Duration = Duration::from_secs(20);
/// How long accepting rests when the process is out of file descriptors.
const REST: Duration = Duration::from_millis(50);

/// The phases at which a port closes, and at which what is still connected to it is dropped.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ends {
    pub(super) close: Phase,
    pub(super) cut: Phase,
}

/// Serves connections until the port closes. Each connection holds a clone of `open` for as long as it lives.
pub(super) async fn serve<S, B>(
    listener: TcpListener,
    service: S,
    phases: Phases,
    ends: Ends,
    open: mpsc::Sender<Infallible>,
) where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible, Future: Send>
        + Clone
        + Send
        + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError> + Send> + Send + 'static,
{
    let mut end = pin!(phases.reached(ends.close));
    loop {
        let accepted = tokio::select! {
            biased;
            () = &mut end => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                let connection = connection(stream, service.clone(), phases.clone(), ends, open.clone());
                tokio::spawn(connection);
            }
            Err(error) if is_of_one_connection(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(REST).await;
            }
        }
    }
}

/// Whether an error says nothing about the next connection.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

async fn connection<S, B>(
    stream: TcpStream,
    service: S,
    phases: Phases,
    ends: Ends,
    open: mpsc::Sender<Infallible>,
) where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible, Future: Send>
        + Clone
        + Send
        + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError> + Send> + Send + 'static,
{
    let _open = open;
    let _ = stream.set_nodelay(true);
    let (first, mut begun) = mpsc::channel(1);
    let service = tower::ServiceBuilder::new()
        .map_request(move |request| {
            let _ = first.try_send(());
            request
        })
        .service(service);
    // HTTP/1: a client that shuts its sending side counts as gone (hyper's default), and responses are not gathered
    // over pipelined requests, since that would switch back-pressure off
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_TIME);
    builder.http2().timer(TokioTimer::new()).keep_alive_interval(PING).keep_alive_timeout(PING);
    let mut served = pin!(builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service)));
    let mut stop = pin!(phases.reached(ends.close));
    let mut cut = pin!(phases.reached(ends.cut));
    let mut late = pin!(tokio::time::sleep(HEAD_TIME));
    let (mut stopping, mut waiting) = (false, true);
    loop {
        tokio::select! {
            biased;
            // dropping the connection: no end of a message is made up
            () = &mut cut => return,
            () = &mut stop, if !stopping => {
                stopping = true;
                served.as_mut().graceful_shutdown();
            }
            _ = begun.recv(), if waiting => waiting = false,
            () = &mut late, if waiting => return,
            ended = &mut served => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "a connection ended early");
                }
                return;
            }
        }
    }
}
