//! A client that leaves.

use std::sync::{Arc, Mutex};

use http_body_util::BodyExt;
use tokio::task::JoinHandle;

use super::{Ask, Client, PATIENCE, Raw, World, within};

/// How a client leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leave {
    /// It closes its HTTP/1.1 connection.
    Close,
    /// It resets its HTTP/1.1 connection.
    Reset,
    /// It resets one stream of its HTTP/2 connection, and keeps the connection.
    Stream,
    /// It closes its HTTP/2 connection.
    CloseTwo,
}

impl Leave {
    pub const ALL: [Self; 4] = [Self::Close, Self::Reset, Self::Stream, Self::CloseTwo];
}

/// A client that has sent a request and will not wait for all of the answer.
#[derive(Debug)]
pub struct Leaver {
    how: Leave,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    One(Raw),
    Two { client: Client, reading: JoinHandle<()>, seen: Arc<Mutex<Vec<u8>>> },
}

impl Leaver {
    pub async fn asking(world: &World, ask: &Ask, how: Leave) -> Self {
        let kind = match how {
            Leave::Close | Leave::Reset => Kind::One(Raw::asking(world.data, ask).await),
            Leave::Stream | Leave::CloseTwo => {
                let client = Client::http2(world.data).await;
                let (mut sender, ask) = (client.share(), ask.clone());
                let seen = Arc::<Mutex<Vec<u8>>>::default();
                let sees = seen.clone();
                let reading = tokio::spawn(async move {
                    let mut body = match sender.start(&ask).await {
                        Ok(response) => response.into_body(),
                        Err(_) => return,
                    };
                    while let Some(Ok(frame)) = body.frame().await {
                        sees.lock().unwrap().extend_from_slice(&frame.into_data().unwrap_or_default());
                    }
                });
                Kind::Two { client, reading, seen }
            }
        };
        Self { how, kind }
    }

    /// Waits until these bytes have come.
    pub async fn has_seen(&mut self, text: &str) {
        match &mut self.kind {
            Kind::One(raw) => raw.until(text).await,
            Kind::Two { seen, .. } => {
                let come = || String::from_utf8_lossy(&seen.lock().unwrap()).contains(text);
                within(PATIENCE, text, come).await;
            }
        }
    }

    /// Leaves; a connection that stays is given back.
    pub async fn leave(self) -> Option<Client> {
        match (self.kind, self.how) {
            (Kind::One(raw), Leave::Reset) => raw.reset(),
            (Kind::One(raw), _) => drop(raw),
            (Kind::Two { client, reading, .. }, how) => {
                if how == Leave::Stream {
                    reading.abort();
                    let _ = reading.await;
                    return Some(client);
                }
                drop(client);
            }
        }
        None
    }
}
