//! The context engine's side: giving KV out.

use super::Pull;
use super::pull::MAX_LINE;
use crate::shared::Shared;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// Bytes of KV for each prompt token, and the most for one request.
const BYTES_PER_TOKEN: usize = 16;
const MAX_BYTES: usize = 4 << 20;
/// A transfer goes out in this many parts.
const PARTS: u32 = 8;

/// Answers pulls and frees what is past its time, until dropped.
pub(crate) async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    let step =
        (shared.config.transfer_timeout / 4).clamp(Duration::from_millis(5), Duration::from_millis(250));
    let mut tick = tokio::time::interval(step);
    let mut pulls = JoinSet::new();
    loop {
        tokio::select! {
            _ = tick.tick() => {
                let expired = shared.kv().expire(Instant::now());
                shared.counts.expired.add(expired);
            }
            accepted = listener.accept() => {
                if let Ok((stream, _)) = accepted {
                    pulls.spawn(one(stream, Arc::clone(&shared)));
                }
            }
            Some(_) = pulls.join_next() => {}
        }
    }
}

async fn one(stream: TcpStream, shared: Arc<Shared>) {
    let _ = stream.set_nodelay(true);
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    let mut head = (&mut stream).take(MAX_LINE);
    if head.read_line(&mut line).await.is_err() {
        return;
    }
    let leaving = match Pull::parse(&line) {
        Some(pull) => shared.kv().leave(&pull),
        None => Err("not a pull".into()),
    };
    let (id, tokens) = match leaving {
        Ok(found) => found,
        Err(reason) => {
            shared.counts.failed_pulls.add(1);
            let answer = format!("ERR {reason}\n");
            let _ = stream.write_all(answer.as_bytes()).await;
            return;
        }
    };
    let mut leaving = Leaving { shared: &shared, id, arrived: false };
    // A reader that never says ACK must not hold the KV for ever.
    let limit = shared.config.transfer_timeout + shared.config.kv_transfer;
    let sent = send(&mut stream, tokens, shared.config.kv_transfer);
    leaving.arrived = matches!(tokio::time::timeout(limit, sent).await, Ok(Ok(())));
    // Dropped before the socket: freed before the other side sees the end.
    drop(leaving);
}

async fn send(stream: &mut BufReader<TcpStream>, tokens: usize, time: Duration) -> std::io::Result<()> {
    let bytes = tokens.saturating_mul(BYTES_PER_TOKEN).clamp(1, MAX_BYTES);
    stream.write_all(format!("OK {bytes}\n").as_bytes()).await?;
    let part = bytes.div_ceil(PARTS as usize);
    let zeros = vec![0; part];
    let mut left = bytes;
    while left > 0 {
        if !time.is_zero() {
            // A reader that is gone shows in a read, not in the next write.
            let mut byte = [0; 1];
            tokio::select! {
                () = tokio::time::sleep(time / PARTS) => {}
                _ = stream.read(&mut byte) => return Err(std::io::ErrorKind::BrokenPipe.into()),
            }
        }
        let now = left.min(part);
        stream.write_all(&zeros[..now]).await?;
        left -= now;
    }
    let mut ack = [0; 4];
    stream.read_exact(&mut ack).await?;
    Ok(())
}

/// A pull under way; whatever ends it, the KV is freed or stranded.
struct Leaving<'a> {
    shared: &'a Shared,
    id: i64,
    arrived: bool,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        if self.arrived {
            self.shared.kv().free(self.id);
            self.shared.counts.pulls.add(1);
        } else {
            self.shared.kv().strand(self.id);
            self.shared.counts.stranded.add(1);
        }
    }
}
