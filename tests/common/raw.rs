//! An HTTP/1.1 client without manners: it can stop in the middle, reset, and sees how a message ends.

use std::net::SocketAddr;

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::{Ask, End, PATIENCE, Reply};

/// A connection; dropping it closes it.
#[derive(Debug)]
pub struct Raw {
    stream: TcpStream,
    unread: Vec<u8>,
}

impl Raw {
    pub async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, unread: Vec::new() }
    }

    /// A connection on which a request was sent.
    pub async fn asking(address: SocketAddr, ask: &Ask) -> Self {
        let mut raw = Self::connect(address).await;
        raw.write(ask.wire()).await;
        raw
    }

    pub async fn write(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.unwrap();
    }

    /// The same where the other side may not want all of it.
    pub async fn try_write(&mut self, bytes: impl AsRef<[u8]>) -> std::io::Result<()> {
        self.stream.write_all(bytes.as_ref()).await
    }

    /// Closes the connection with a reset.
    pub fn reset(self) {
        self.stream.set_zero_linger().unwrap();
    }

    /// Says that nothing more will be sent; can still read.
    pub async fn half_close(&mut self) {
        self.stream.shutdown().await.unwrap();
    }

    /// More bytes; false at the end of the connection, however it came about.
    async fn more(&mut self) -> bool {
        let read = tokio::time::timeout(PATIENCE, self.stream.read_buf(&mut self.unread));
        matches!(read.await.expect("bytes, or the end of the connection, in time"), Ok(1..))
    }

    /// Whether the connection ends without another byte.
    pub async fn ends(&mut self) -> bool {
        self.unread.is_empty() && !self.more().await
    }

    fn take(&mut self, count: usize) -> Vec<u8> {
        self.unread.drain(..count).collect()
    }

    /// Reads until these bytes have come; what was before them stays unread too.
    pub async fn until(&mut self, wanted: &str) {
        while !contains(&self.unread, wanted.as_bytes()) {
            let text = || String::from_utf8_lossy(&self.unread).into_owned();
            let (before, more) = (text(), self.more().await);
            assert!(more, "the connection ended before {wanted:?} came: {before}");
        }
    }

    /// A line without its end, or nothing when the connection ends before.
    async fn line(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.unread.windows(2).position(|two| two == b"\r\n") {
                let line = self.take(end + 2);
                return Some(String::from_utf8_lossy(&line[..end]).into_owned());
            }
            if !self.more().await {
                return None;
            }
        }
    }

    /// The head of a reply.
    pub async fn head(&mut self) -> (StatusCode, HeaderMap) {
        self.try_head().await.expect("a response head")
    }

    /// The same, or nothing when the connection ends before.
    pub async fn try_head(&mut self) -> Option<(StatusCode, HeaderMap)> {
        let first = self.line().await?;
        let status = first.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.unwrap_or_else(|| panic!("no status line: {first}"));
        let mut headers = HeaderMap::new();
        loop {
            let line = self.line().await?;
            if line.is_empty() {
                return Some((status, headers));
            }
            let (name, value) = line.split_once(':').expect("a header");
            let name: HeaderName = name.parse().unwrap();
            headers.append(name, HeaderValue::from_str(value.trim()).unwrap());
        }
    }

    /// A whole reply, or what there is of it.
    pub async fn reply(&mut self) -> Reply {
        let (status, headers) = self.head().await;
        let chunked = headers.get("transfer-encoding").is_some_and(|coding| coding == "chunked");
        let length = headers.get("content-length").map(|length| length.to_str().unwrap().parse().unwrap());
        let mut body = Vec::new();
        let end = match (chunked, length) {
            (true, Some(_)) => panic!("both a length and chunks"),
            (true, None) => self.chunks(&mut body).await,
            (false, Some(length)) => self.exactly(length, &mut body).await,
            (false, None) => panic!("neither a length nor chunks"),
        };
        Reply { status, headers, body, end }
    }

    async fn exactly(&mut self, length: usize, body: &mut Vec<u8>) -> End {
        while self.unread.len() < length {
            if !self.more().await {
                body.append(&mut self.unread);
                return End::Cut;
            }
        }
        body.extend(self.take(length));
        End::Complete
    }

    async fn chunks(&mut self, body: &mut Vec<u8>) -> End {
        loop {
            let Some(size) = self.line().await else { return End::Cut };
            let size = usize::from_str_radix(&size, 16).expect("a chunk size");
            let mut chunk = Vec::new();
            let end = self.exactly(size + 2, &mut chunk).await;
            chunk.truncate(size);
            body.append(&mut chunk);
            if size == 0 || end == End::Cut {
                return end;
            }
        }
    }
}

fn contains(text: &[u8], wanted: &[u8]) -> bool {
    text.windows(wanted.len()).any(|window| window == wanted)
}
