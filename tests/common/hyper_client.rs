//! One connection of a well-behaved client, HTTP/1.1 or HTTP/2.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use http::Response;
use http_body_util::{BodyExt, Full};
use hyper::{
    body::Incoming,
    client::conn::{http1, http2},
    rt::Executor,
};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpStream, task::AbortHandle};

use super::{Ask, End, PATIENCE, Reply};

/// A connection; dropping it closes it.
#[derive(Debug)]
pub struct Client {
    sender: Sender,
    address: SocketAddr,
    /// Empty in a handle on the connection of another.
    tasks: Tasks,
}

/// What drives a connection: hyper's own tasks for HTTP/2 among it.
#[derive(Debug, Clone, Default)]
struct Tasks(Arc<Mutex<Vec<AbortHandle>>>);

impl<F: Future<Output: Send> + Send + 'static> Executor<F> for Tasks {
    fn execute(&self, future: F) {
        self.0.lock().unwrap().push(tokio::spawn(future).abort_handle());
    }
}

#[derive(Debug)]
enum Sender {
    One(http1::SendRequest<Full<Bytes>>),
    Two(http2::SendRequest<Full<Bytes>>),
}

impl Client {
    pub async fn http1(address: SocketAddr) -> Self {
        let io = TokioIo::new(connect(address).await);
        let (sender, connection) = http1::handshake(io).await.unwrap();
        let tasks = Tasks::default();
        tasks.execute(connection);
        Self { sender: Sender::One(sender), address, tasks }
    }

    /// With prior knowledge, in clear.
    pub async fn http2(address: SocketAddr) -> Self {
        let io = TokioIo::new(connect(address).await);
        let tasks = Tasks::default();
        let (sender, connection) = http2::handshake(tasks.clone(), io).await.unwrap();
        tasks.execute(connection);
        Self { sender: Sender::Two(sender), address, tasks }
    }

    /// Sends a request; the answer is there once its head is. Over HTTP/2 several may run at a time.
    pub async fn start(&mut self, ask: &Ask) -> hyper::Result<Response<Incoming>> {
        let request = ask.request(&self.address.to_string());
        let sent = async {
            match &mut self.sender {
                Sender::One(sender) => {
                    sender.ready().await?;
                    sender.send_request(request).await
                }
                Sender::Two(sender) => {
                    sender.ready().await?;
                    sender.send_request(request).await
                }
            }
        };
        tokio::time::timeout(PATIENCE, sent).await.expect("a response head in time")
    }

    /// Another handle on an HTTP/2 connection; the connection lives as long as the first.
    pub fn share(&self) -> Self {
        let Sender::Two(sender) = &self.sender else { panic!("HTTP/1 connections are not shared") };
        Self { sender: Sender::Two(sender.clone()), address: self.address, tasks: Tasks::default() }
    }

    /// Sends a request and reads the answer to its end.
    pub async fn send(&mut self, ask: &Ask) -> Reply {
        let response = self.start(ask).await.expect("a response");
        tokio::time::timeout(PATIENCE, collect(response)).await.expect("the end of a response in time")
    }

    /// Whether the other side has closed it.
    pub fn is_closed(&self) -> bool {
        match &self.sender {
            Sender::One(sender) => sender.is_closed(),
            Sender::Two(sender) => sender.is_closed(),
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        for task in self.tasks.0.lock().unwrap().iter() {
            task.abort();
        }
    }
}

async fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

async fn collect(response: Response<Incoming>) -> Reply {
    let (head, mut body) = response.into_parts();
    let mut reply =
        Reply { status: head.status, headers: head.headers, body: Vec::new(), end: End::Complete };
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(frame) => reply.body.extend_from_slice(&frame.into_data().unwrap_or_default()),
            Err(_) => {
                reply.end = End::Cut;
                break;
            }
        }
    }
    reply
}
