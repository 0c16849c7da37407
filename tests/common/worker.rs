//! Workers of plain sockets, for what a simulated engine would not do.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    task::{JoinHandle, JoinSet},
};

/// A worker that does as told with each of its connections; dropping it closes them.
#[derive(Debug)]
pub struct Worker {
    pub address: SocketAddr,
    task: JoinHandle<()>,
}

impl Worker {
    pub fn start<F>(serve: impl Fn(TcpStream) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let socket = TcpSocket::new_v4().unwrap();
        // so that what is not read does not fit into buffers on the way; connections get it from here
        socket.set_recv_buffer_size(64 << 10).unwrap();
        socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
        let listener = socket.listen(1024).unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(stream));
            }
        });
        Self { address, task }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Reads a request with a length; its head and its body.
pub async fn request(stream: &mut TcpStream) -> (String, Vec<u8>) {
    next_request(stream, &mut Vec::new()).await.expect("a request")
}

/// The next whole request of a connection, or nothing at its end; what came behind it stays in `read`.
async fn next_request(stream: &mut TcpStream, read: &mut Vec<u8>) -> Option<(String, Vec<u8>)> {
    let end = loop {
        if let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") {
            break end;
        }
        if !matches!(stream.read_buf(read).await, Ok(1..)) {
            return None;
        }
    };
    let mut body = read.split_off(end + 4);
    let head = String::from_utf8(std::mem::take(read)).unwrap();
    let head = head.trim_end().to_owned();
    let length = head.to_ascii_lowercase();
    let length = length.split("\r\ncontent-length: ").nth(1);
    let length = length.map_or(0, |rest| rest.lines().next().unwrap().parse().unwrap());
    while body.len() < length {
        if !matches!(stream.read_buf(&mut body).await, Ok(1..)) {
            return None;
        }
    }
    *read = body.split_off(length);
    Some((head, body))
}

/// A request as a [`Double`] got it.
#[derive(Debug, Clone)]
pub struct Leg {
    /// Request line and headers, as they came.
    pub head: String,
    pub body: Vec<u8>,
}

impl Leg {
    /// All values of a header, in the order they came.
    pub fn header(&self, name: &str) -> Vec<&str> {
        let lines = self.head.split("\r\n").skip(1).filter_map(|line| line.split_once(':'));
        lines.filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim()).collect()
    }

    pub fn path(&self) -> &str {
        self.head.split(' ').nth(1).unwrap()
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

/// What a [`Double`] answers.
#[derive(Debug, Clone)]
pub enum Said {
    /// These bytes; the connection stays.
    Bytes(Vec<u8>),
    /// These bytes, and the connection is closed.
    Last(Vec<u8>),
    /// Nothing: the connection is reset.
    Reset,
}

type Answers = Arc<Mutex<Box<dyn FnMut(&Leg) -> Said + Send>>>;

/// A worker that takes any request, and keeps it as it came.
#[derive(Debug)]
pub struct Double {
    worker: Worker,
    connections: Arc<AtomicUsize>,
    seen: Arc<Mutex<Vec<Leg>>>,
    answers: Script,
}

#[derive(Clone)]
struct Script(Answers);

impl std::fmt::Debug for Script {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Script")
    }
}

impl Double {
    pub fn start(answer: impl FnMut(&Leg) -> Said + Send + 'static) -> Self {
        let seen = Arc::<Mutex<Vec<Leg>>>::default();
        let answers = Script(Arc::new(Mutex::new(Box::new(answer))));
        let connections = Arc::<AtomicUsize>::default();
        let (keeps, says, counts) = (seen.clone(), answers.clone(), connections.clone());
        let worker = Worker::start(move |mut stream| {
            counts.fetch_add(1, Ordering::Relaxed);
            let (keeps, says) = (keeps.clone(), says.clone());
            async move {
                stream.set_nodelay(true).unwrap();
                let mut read = Vec::new();
                while let Some((head, body)) = next_request(&mut stream, &mut read).await {
                    let leg = Leg { head, body };
                    keeps.lock().unwrap().push(leg.clone());
                    let said = (says.0.lock().unwrap())(&leg);
                    // what is not wanted to its end breaks off
                    match said {
                        Said::Bytes(bytes) => {
                            if stream.write_all(&bytes).await.is_err() {
                                return;
                            }
                        }
                        Said::Last(bytes) => {
                            let _ = stream.write_all(&bytes).await;
                            return;
                        }
                        Said::Reset => return stream.set_zero_linger().unwrap(),
                    }
                }
            }
        });
        Self { worker, connections, seen, answers }
    }

    /// Answers otherwise from now on.
    pub fn answer(&self, answer: impl FnMut(&Leg) -> Said + Send + 'static) {
        *self.answers.0.lock().unwrap() = Box::new(answer);
    }

    /// Answers with this from now on.
    pub fn says(&self, said: Said) {
        self.answer(move |_| said.clone());
    }

    /// What it was sent so far.
    pub fn legs(&self) -> Vec<Leg> {
        self.seen.lock().unwrap().clone()
    }

    pub fn forget(&self) {
        self.seen.lock().unwrap().clear();
    }

    /// How many connections it has taken.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    pub fn hostport(&self) -> String {
        self.worker.address.to_string()
    }

    pub fn url(&self) -> String {
        self.worker.url()
    }
}

/// A reply with a length.
pub fn reply(status: u16, content_type: &str, body: impl AsRef<[u8]>) -> Said {
    let body = body.as_ref();
    let head = format!(
        "HTTP/1.1 {status} x\r\ncontent-type: {content_type}\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    Said::Bytes([head.as_bytes(), body].concat())
}

/// A reply in chunks.
pub fn chunked<'a>(
    status: u16,
    content_type: &str,
    parts: impl IntoIterator<Item = impl AsRef<[u8]> + 'a>,
) -> Said {
    let mut wire =
        format!("HTTP/1.1 {status} x\r\ncontent-type: {content_type}\r\ntransfer-encoding: chunked\r\n\r\n")
            .into_bytes();
    for part in parts {
        let part = part.as_ref();
        wire.extend(format!("{:x}\r\n", part.len()).into_bytes());
        wire.extend(part);
        wire.extend(b"\r\n");
    }
    wire.extend(b"0\r\n\r\n");
    Said::Bytes(wire)
}
