use std::{
    convert::Infallible,
    future::{Future, poll_fn},
    io,
    pin::pin,
    task::Poll,
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::conn::auto,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::mpsc,
};
use tower::ServiceExt;
use tower_disagg::error::BoxError;
use tower_service::Service;

use super::{
    Phase, Phases,
    answer::{AnswerBody, EndsWithConnection},
    socket,
    streams::Streams,
};

/// How long a client may take to send the head of a request, and to begin with its first one.
pub(super) const HEAD_TIME: Duration = Duration::from_secs(30);
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

/// Serves connections until the port closes. Each connection holds a clone of `open` for as long as it lives. One whose
/// client takes nothing of a response for the time `unread` is closed.
pub(super) async fn serve<S, B>(
    listener: TcpListener,
    service: S,
    phases: Phases,
    ends: Ends,
    unread: Duration,
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
                let service = service.clone();
                tokio::spawn(connection(stream, service, phases.clone(), ends, unread, open.clone()));
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
    unread: Duration,
    open: mpsc::Sender<Infallible>,
) where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible, Future: Send>
        + Clone
        + Send
        + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError> + Send> + Send + 'static,
{
    let _open = open;
    let (socket, peer) = socket::open(stream, unread);
    let (first, mut begun) = mpsc::channel(1);
    let ends_with_it = EndsWithConnection::default();
    let last = ends_with_it.clone();
    let service = service_fn(move |request| {
        let _ = first.try_send(());
        ends_with_it.of(&request);
        let reply = service.clone().oneshot(request);
        async move { reply.await.map(|reply| reply.map(|body| AnswerBody::new(body))) }
    });
    // HTTP/1: a client that shuts its sending side counts as gone (hyper's default), and responses are not gathered
    // over pipelined requests, since that would switch back-pressure off
    let mut builder = auto::Builder::new(Streams::new(unread));
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_TIME);
    builder.http2().timer(TokioTimer::new()).keep_alive_interval(PING).keep_alive_timeout(PING);
    let mut served = pin!(builder.serve_connection(TokioIo::new(socket), service));
    let mut stop = pin!(phases.reached(ends.close));
    let mut cut = pin!(phases.reached(ends.cut));
    let mut late = pin!(tokio::time::sleep(HEAD_TIME));
    // hyper looks for the end of what a client sends only while nothing else is there to be read
    let mut gone = pin!(peer.gone());
    let (mut stopping, mut waiting) = (false, true);
    // Whether all that was begun has been sent.
    let mut whole = false;
    loop {
        tokio::select! {
            biased;
            // dropping the connection: no end of a message is made up
            () = &mut cut => break,
            () = &mut stop, if !stopping => {
                stopping = true;
                served.as_mut().graceful_shutdown();
            }
            _ = begun.recv(), if waiting => waiting = false,
            () = &mut late, if waiting => break,
            ended = &mut served => {
                whole = ended.is_ok();
                if let Err(error) = ended {
                    tracing::debug!(%error, "a connection ended early");
                }
                break;
            }
            // after the server has had its turn with what came before
            () = &mut gone => {
                let turn = poll_fn(|cx| Poll::Ready(served.as_mut().poll(cx))).await;
                whole = matches!(turn, Poll::Ready(Ok(())));
                break;
            }
        }
    }
    if last.get() && !whole {
        peer.reset();
    }
}
