use std::{
    fmt,
    future::Future,
    mem,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker, ready},
};

use tokio::sync::{mpsc, oneshot, watch};
use tower_service::Service;

use crate::error::BoxError;

/// A service double, and the handle to see its calls and to answer them by.
///
/// The service is ready until the handle says otherwise. See the [module](super) for an example.
pub fn leg<Req, Res>() -> (LegDouble<Req, Res>, LegHandle<Req, Res>) {
    let (calls, received) = mpsc::unbounded_channel();
    let gate = Arc::new(Gate::default());
    (LegDouble { calls, gate: gate.clone(), ready: false }, LegHandle { calls: received, gate })
}

/// A service that does what its [`LegHandle`] says. Made by [`leg()`].
///
/// A clone is not ready, whatever its original was. A service dropped while it is ready gives its turn back.
///
/// # Panics
///
/// When it is called without having been polled to readiness, as `Service` allows.
pub struct LegDouble<Req, Res> {
    calls: mpsc::UnboundedSender<(Req, LegReply<Res>)>,
    gate: Arc<Gate>,
    ready: bool,
}

/// Sees the calls of a [`LegDouble`] and of all its clones, and rules their readiness.
pub struct LegHandle<Req, Res> {
    calls: mpsc::UnboundedReceiver<(Req, LegReply<Res>)>,
    gate: Arc<Gate>,
}

/// Answers one call of a [`LegDouble`], and knows what became of its future.
pub struct LegReply<Res> {
    reply: Option<oneshot::Sender<Result<Res, BoxError>>>,
    end: watch::Receiver<End>,
}

/// The future of a [`LegDouble`].
pub struct LegDoubleFuture<Res> {
    reply: oneshot::Receiver<Result<Res, BoxError>>,
    answered: bool,
    end: watch::Sender<End>,
}

/// What became of a future.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Alive,
    Answered,
    Dropped,
}

/// Who may become ready.
struct Gate(Mutex<GateState>);

struct GateState {
    /// How many more services may become ready; `None` is any number.
    turns: Option<usize>,
    error: Option<BoxError>,
    waiting: Vec<Waker>,
}

impl<Req, Res> LegHandle<Req, Res> {
    /// Waits for the next call. `None` when every clone of the service is gone.
    ///
    /// Cancel safe: no call is lost.
    pub async fn next(&mut self) -> Option<(Req, LegReply<Res>)> {
        self.calls.recv().await
    }

    /// The next call if there has been one. `None` is how a test sees that the service was left alone.
    pub fn try_next(&mut self) -> Option<(Req, LegReply<Res>)> {
        self.calls.try_recv().ok()
    }

    /// From now on, `turns` services may become ready, each for one call; wakes those that wait.
    pub fn allow(&self, turns: usize) {
        self.gate.change(|state| state.turns = Some(turns));
    }

    /// From now on, no service becomes ready.
    pub fn block(&self) {
        self.allow(0);
    }

    /// From now on, every service is ready whenever it is asked.
    pub fn unblock(&self) {
        self.gate.change(|state| state.turns = None);
    }

    /// Lets the next question for readiness, of whichever clone, be answered with `error`.
    pub fn fail_ready(&self, error: impl Into<BoxError>) {
        self.gate.change(|state| state.error = Some(error.into()));
    }
}

impl<Res> LegReply<Res> {
    /// Answers the call. Does nothing when it was answered before, or nobody waits any more.
    pub fn send_response(&mut self, response: Res) {
        self.send(Ok(response));
    }

    /// Lets the call fail. Does nothing when it was answered before, or nobody waits any more.
    pub fn send_error(&mut self, error: impl Into<BoxError>) {
        self.send(Err(error.into()));
    }

    fn send(&mut self, answer: Result<Res, BoxError>) {
        if let Some(reply) = self.reply.take() {
            // The caller may have left; a test sees that by `is_cancelled`.
            let _ = reply.send(answer);
        }
    }

    /// Waits until the future of the call has returned an answer or was dropped: `true` for one that was dropped
    /// before it had returned. Cancel safe.
    pub async fn cancelled(&mut self) -> bool {
        match self.end.wait_for(|end| *end != End::Alive).await {
            Ok(end) => *end == End::Dropped,
            Err(_) => true,
        }
    }

    /// Whether the future of the call was dropped before it had returned an answer.
    pub fn is_cancelled(&self) -> bool {
        *self.end.borrow() == End::Dropped
    }
}

impl<Req, Res> Service<Req> for LegDouble<Req, Res> {
    type Response = Res;
    type Error = BoxError;
    type Future = LegDoubleFuture<Res>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        if self.calls.is_closed() {
            return Poll::Ready(Err("the handle of the leg double is gone".into()));
        }
        if !self.ready {
            ready!(self.gate.poll_turn(cx))?;
            self.ready = true;
        }
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Req) -> Self::Future {
        assert!(mem::take(&mut self.ready), "a leg double was called that had not been polled to readiness");
        let (send, reply) = oneshot::channel();
        let (end, observed) = watch::channel(End::Alive);
        // A handle that is gone drops the reply, which the future reports.
        let _ = self.calls.send((request, LegReply { reply: Some(send), end: observed }));
        LegDoubleFuture { reply, answered: false, end }
    }
}

impl<Req, Res> Clone for LegDouble<Req, Res> {
    /// Readiness belongs to one value: the clone has to ask for its own.
    fn clone(&self) -> Self {
        Self { calls: self.calls.clone(), gate: self.gate.clone(), ready: false }
    }
}

impl<Req, Res> Drop for LegDouble<Req, Res> {
    fn drop(&mut self) {
        if self.ready {
            self.gate.change(|state| state.turns = state.turns.map(|turns| turns + 1));
        }
    }
}

impl<Res> Future for LegDoubleFuture<Res> {
    type Output = Result<Res, BoxError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = ready!(Pin::new(&mut self.reply).poll(cx));
        self.answered = true;
        Poll::Ready(answer.unwrap_or_else(|_| Err("the reply of the leg double was dropped".into())))
    }
}

impl<Res> Drop for LegDoubleFuture<Res> {
    fn drop(&mut self) {
        self.end.send_replace(if self.answered { End::Answered } else { End::Dropped });
    }
}

impl Gate {
    fn lock(&self) -> MutexGuard<'_, GateState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, then wakes everyone who waits, outside of the lock.
    fn change(&self, change: impl FnOnce(&mut GateState)) {
        let waiting = {
            let mut state = self.lock();
            change(&mut state);
            mem::take(&mut state.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }

    fn poll_turn(&self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        let mut state = self.lock();
        if let Some(error) = state.error.take() {
            return Poll::Ready(Err(error));
        }
        match &mut state.turns {
            None => Poll::Ready(Ok(())),
            Some(0) => {
                if !state.waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
                    state.waiting.push(cx.waker().clone());
                }
                Poll::Pending
            }
            Some(turns) => {
                *turns -= 1;
                Poll::Ready(Ok(()))
            }
        }
    }
}

impl Default for Gate {
    fn default() -> Self {
        Self(Mutex::new(GateState { turns: None, error: None, waiting: Vec::new() }))
    }
}

impl<Req, Res> fmt::Debug for LegDouble<Req, Res> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LegDouble").field("ready", &self.ready).finish_non_exhaustive()
    }
}

impl<Req, Res> fmt::Debug for LegHandle<Req, Res> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LegHandle").field("turns", &self.gate.lock().turns).finish_non_exhaustive()
    }
}

impl<Res> fmt::Debug for LegReply<Res> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sent, cancelled) = (self.reply.is_none(), self.is_cancelled());
        f.debug_struct("LegReply").field("sent", &sent).field("cancelled", &cancelled).finish()
    }
}

impl<Res> fmt::Debug for LegDoubleFuture<Res> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LegDoubleFuture").field("answered", &self.answered).finish_non_exhaustive()
    }
}
