//! An event stream, written token by token.

use super::generate;
use super::work::{Phase, Work};
use crate::faults::{CutHow, Fault, Hang};
use crate::http1::{Broken, Sender};
use crate::reply::{Chunks, DONE, Job};
use crate::schema::Endpoint;
use crate::shared::Shared;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;

/// How fast tokens come.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Pace {
    pub(super) first: Duration,
    pub(super) gap: Duration,
    /// Tokens that are due at once may share a write.
    pub(super) coalesce: bool,
}

/// A coalesced write is at most about this large.
const WRITE: usize = 16 << 10;

/// One streaming answer at work.
pub(super) struct Writer {
    shared: Arc<Shared>,
    job: Job,
    pace: Pace,
    fault: Fault,
    work: Work,
    /// The KV is pulled only now, after the head.
    pub(super) late: bool,
}

/// Why a stream ends before its time.
enum Stop {
    /// Nobody reads it any more; the guard counts that.
    Gone,
    /// The engine failed.
    Failed(String),
}

impl Writer {
    pub(super) fn new(shared: &Arc<Shared>, job: Job, pace: Pace, fault: &Fault, work: Work) -> Self {
        Self { shared: Arc::clone(shared), job, pace, fault: fault.clone(), work, late: false }
    }

    /// Writes the whole stream. Dropped before that, the client has left.
    pub(super) async fn run(mut self, sender: Sender) {
        let mut out = Out { sender, held: String::new(), coalesce: self.pace.coalesce };
        let stopped = match self.prepare().await {
            Ok(()) => self.write(&mut out).await.err(),
            Err(stop) => Some(stop),
        };
        match stopped {
            None => {}
            Some(Stop::Gone) => return,
            Some(Stop::Failed(reason)) => {
                self.shared.refused(&format!("stream failed: {reason}"));
                self.fail(&mut out, &reason).await;
            }
        }
        self.work.done();
    }

    async fn prepare(&mut self) -> Result<(), Stop> {
        if self.late {
            self.work.enters(Phase::Transfer);
            let fetched = generate::fetch(&self.shared, &self.job.ask).await;
            self.work.enters(Phase::Generation);
            fetched.map_err(Stop::Failed)?;
        }
        Ok(())
    }

    async fn write(&self, out: &mut Out) -> Result<(), Stop> {
        if self.fault.hang == Some(Hang::AfterHead) {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(self.pace.first).await;
        let mut chunks = Chunks::new(&self.job);
        out.event(&chunks.start()).await?;
        let steps = self.job.plans.iter().map(|plan| plan.pieces.len()).max();
        for at in 0..steps.unwrap_or(0) {
            if self.fault.hang == Some(Hang::AfterTokens(at)) {
                out.flush().await?;
                std::future::pending::<()>().await;
            }
            if self.fault.error_after_tokens == Some(at) {
                return Err(Stop::Failed("the engine failed".into()));
            }
            if at > 0 && !self.pace.gap.is_zero() {
                out.flush().await?;
                tokio::time::sleep(self.pace.gap).await;
            }
            for (choice, plan) in self.job.plans.iter().enumerate() {
                if at < plan.pieces.len() {
                    out.event(&chunks.token(choice, at)).await?;
                }
            }
        }
        if !self.fault.no_done {
            out.event(&chunks.end()).await?;
        }
        out.flush().await
    }

    /// After the head chat can only break off; completions says so in a frame.
    async fn fail(&self, out: &mut Out, reason: &str) {
        let completions = self.job.ask.endpoint == Endpoint::Completions;
        if completions || self.fault.error_frame {
            let _ = out.event(&Chunks::error(reason)).await;
        }
        if completions {
            let _ = out.event(DONE).await;
            let _ = out.flush().await;
        } else {
            let _ = out.flush().await;
            let _ = out.sender.send(Err(Broken(CutHow::Fin))).await;
        }
    }
}

/// Where the events go.
struct Out {
    sender: Sender,
    held: String,
    coalesce: bool,
}

impl Out {
    async fn event(&mut self, event: &str) -> Result<(), Stop> {
        self.held.push_str(event);
        if self.coalesce && self.held.len() < WRITE {
            return Ok(());
        }
        self.flush().await
    }

    async fn flush(&mut self) -> Result<(), Stop> {
        if self.held.is_empty() {
            return Ok(());
        }
        let bytes = Bytes::from(std::mem::take(&mut self.held));
        self.sender.send(Ok(bytes)).await.map_err(|_| Stop::Gone)
    }
}
