//! The generation engine's side: fetching KV.

use super::Opaque;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

/// Which KV a generation engine asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pull {
    pub(crate) disagg_request_id: Option<i64>,
    pub(crate) ctx_request_id: Option<i64>,
    pub(crate) nonce: Option<String>,
    pub(crate) fingerprint: u64,
}

impl Pull {
    pub(crate) fn line(&self) -> String {
        let id = |id: Option<i64>| id.map_or_else(|| "-".to_owned(), |id| id.to_string());
        format!(
            "PULL {} {} {} {:016x}\n",
            id(self.disagg_request_id),
            id(self.ctx_request_id),
            self.nonce.as_deref().unwrap_or("-"),
            self.fingerprint
        )
    }

    pub(crate) fn parse(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let ["PULL", global, context, nonce, fingerprint] = words.as_slice() else {
            return None;
        };
        let id = |word: &str| match word {
            "-" => Some(None),
            word => word.parse().ok().map(Some),
        };
        Some(Self {
            disagg_request_id: id(global)?,
            ctx_request_id: id(context)?,
            nonce: (*nonce != "-").then(|| (*nonce).to_owned()),
            fingerprint: u64::from_str_radix(fingerprint, 16).ok()?,
        })
    }
}

/// No transfer is larger.
const MAX_PAYLOAD: u64 = 16 << 20;
/// No line of the protocol is longer.
pub(super) const MAX_LINE: u64 = 4_096;

/// Pulls KV from the endpoint, or from the one that the opaque state names.
pub(crate) async fn pull(
    mut pull: Pull,
    endpoint: Option<&str>,
    opaque: Option<&[u8]>,
    timeout: Duration,
) -> Result<(), String> {
    let opaque = match opaque {
        None => None,
        Some(bytes) => {
            Some(Opaque::decode(bytes).ok_or("the opaque state is not one of this engine's kind")?)
        }
    };
    let endpoint = endpoint
        .or(opaque.as_ref().map(|opaque| opaque.endpoint.as_str()))
        .ok_or("neither an endpoint nor an opaque state to pull from")?;
    let address: SocketAddr = endpoint
        .strip_prefix("tcp://")
        .and_then(|address| address.parse().ok())
        .ok_or("the context endpoint is not like tcp://127.0.0.1:port")?;
    // The address comes from a request; the simulator stays on its own machine.
    if !address.ip().is_loopback() {
        return Err("the context endpoint is not on the loopback interface".into());
    }
    pull.nonce = opaque.as_ref().map(|opaque| opaque.nonce.clone());
    match tokio::time::timeout(timeout, transfer(address, &pull)).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(error),
        Err(_) => Err("the transfer took too long".into()),
    }
}

async fn transfer(address: SocketAddr, pull: &Pull) -> Result<(), String> {
    let broken = |error: std::io::Error| format!("the transfer broke: {error}");
    let stream = TcpStream::connect(address)
        .await
        .map_err(|error| format!("the context worker cannot be reached: {error}"))?;
    let _ = stream.set_nodelay(true);
    let mut stream = BufReader::new(stream);
    let request = pull.line();
    stream.write_all(request.as_bytes()).await.map_err(broken)?;
    let mut line = String::new();
    let mut head = (&mut stream).take(MAX_LINE);
    head.read_line(&mut line).await.map_err(broken)?;
    let length = match line.trim_end().split_once(' ') {
        Some(("OK", length)) => length.parse::<u64>().ok(),
        Some(("ERR", reason)) => return Err(reason.to_owned()),
        _ => None,
    };
    let length = length
        .filter(|length| *length <= MAX_PAYLOAD)
        .ok_or("the context worker does not speak the transfer protocol")?;
    let mut payload = (&mut stream).take(length);
    let arrived = tokio::io::copy(&mut payload, &mut tokio::io::sink()).await.map_err(broken)?;
    if arrived != length {
        return Err("the transfer ended early".into());
    }
    stream.write_all(b"ACK\n").await.map_err(broken)?;
    // The other side closes once it has freed the KV, so that whoever looks
    // at its state after our answer sees it gone.
    let _ = stream.read(&mut [0; 1]).await;
    Ok(())
}
