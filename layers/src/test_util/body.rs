use std::{
    collections::VecDeque,
    fmt,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};

use crate::error::BoxError;

/// A body that does, poll by poll, what a script says.
///
/// Left alone it says as little as a body may: an unknown length, and no `is_end_stream` until `None` was returned. A
/// wrapper that only works with a helpful body shows up that way; what a helpful one says can be switched on.
///
/// ```
/// use http_body_util::BodyExt;
/// use tower_disagg::test_util::ScriptedBody;
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let mut body = ScriptedBody::new().data("one").pending().data("two").error("broke off");
/// let handle = body.handle();
///
/// assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "one");
/// handle.wake(); // without it, the next frame would never come
/// assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "two");
/// assert_eq!(body.frame().await.unwrap().unwrap_err().to_string(), "broke off");
/// drop(body);
/// assert!(handle.is_dropped());
/// # });
/// ```
#[derive(Default)]
pub struct ScriptedBody {
    steps: VecDeque<Step>,
    size: Size,
    end: EndStream,
    handle: ScriptHandle,
}

enum Step {
    Data(Bytes),
    Pending,
    Trailers(HeaderMap),
    Error(BoxError),
}

/// What the body says about its length.
#[derive(Debug, Default)]
enum Size {
    #[default]
    Unknown,
    Exact,
    Claimed(SizeHint),
}

/// When the body says that its end has come.
#[derive(Debug, Default)]
enum EndStream {
    #[default]
    AfterNone,
    WhenNothingIsLeft,
    WhenNoDataIsLeft,
}

impl ScriptedBody {
    /// An empty script: the first poll returns `None`.
    pub fn new() -> Self {
        Self::default()
    }

    /// Then a data frame.
    pub fn data(self, data: impl Into<Bytes>) -> Self {
        self.step(Step::Data(data.into()))
    }

    /// Then nothing, until the handle [wakes](ScriptHandle::wake) it.
    pub fn pending(self) -> Self {
        self.step(Step::Pending)
    }

    /// Then trailers.
    pub fn trailers(self, trailers: HeaderMap) -> Self {
        self.step(Step::Trailers(trailers))
    }

    /// Then an error.
    pub fn error(self, error: impl Into<BoxError>) -> Self {
        self.step(Step::Error(error.into()))
    }

    /// Says exactly how many bytes of the script are left.
    pub fn exact_size(mut self) -> Self {
        self.size = Size::Exact;
        self
    }

    /// Says this about its length, whatever the script has.
    pub fn claim_size(mut self, size: SizeHint) -> Self {
        self.size = Size::Claimed(size);
        self
    }

    /// Reports `is_end_stream` as soon as no step is left.
    pub fn eager_end(mut self) -> Self {
        self.end = EndStream::WhenNothingIsLeft;
        self
    }

    /// Reports `is_end_stream` as soon as no data is left, even though trailers or an error may be: a hint that
    /// bodies do give too early.
    pub fn early_end(mut self) -> Self {
        self.end = EndStream::WhenNoDataIsLeft;
        self
    }

    /// Watches and wakes this body, also after it was moved or dropped.
    pub fn handle(&self) -> ScriptHandle {
        self.handle.clone()
    }

    fn step(mut self, step: Step) -> Self {
        self.steps.push_back(step);
        self
    }

    fn data_left(&self) -> u64 {
        let len = |step: &Step| if let Step::Data(data) = step { data.len() as u64 } else { 0 };
        self.steps.iter().map(len).sum()
    }
}

impl Body for ScriptedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let handle = self.handle.clone();
        let mut state = handle.lock();
        state.polls += 1;
        loop {
            return Poll::Ready(match self.steps.pop_front() {
                Some(Step::Pending) if state.wakes == 0 => {
                    self.steps.push_front(Step::Pending);
                    state.waiting = Some(cx.waker().clone());
                    return Poll::Pending;
                }
                Some(Step::Pending) => {
                    state.wakes -= 1;
                    continue;
                }
                Some(Step::Data(data)) => Some(Ok(Frame::data(data))),
                Some(Step::Trailers(trailers)) => Some(Ok(Frame::trailers(trailers))),
                Some(Step::Error(error)) => Some(Err(error)),
                None => {
                    state.polls_after_end += usize::from(state.ended);
                    state.ended = true;
                    None
                }
            });
        }
    }

    fn is_end_stream(&self) -> bool {
        match self.end {
            EndStream::AfterNone => self.handle.lock().ended,
            EndStream::WhenNothingIsLeft => self.steps.is_empty(),
            EndStream::WhenNoDataIsLeft => !self.steps.iter().any(|step| matches!(step, Step::Data(_))),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.size {
            Size::Unknown => SizeHint::new(),
            Size::Exact => SizeHint::with_exact(self.data_left()),
            Size::Claimed(size) => *size,
        }
    }
}

impl Drop for ScriptedBody {
    fn drop(&mut self) {
        self.handle.lock().dropped = true;
    }
}

impl fmt::Debug for ScriptedBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ScriptedBody({} steps, {} bytes left)", self.steps.len(), self.data_left())
    }
}

/// Watches a [`ScriptedBody`] and ends its pauses.
#[derive(Debug, Clone, Default)]
pub struct ScriptHandle(Arc<Mutex<Watched>>);

#[derive(Debug, Default)]
struct Watched {
    polls: usize,
    polls_after_end: usize,
    /// Pending steps that may be passed.
    wakes: usize,
    waiting: Option<Waker>,
    ended: bool,
    dropped: bool,
}

impl ScriptHandle {
    /// Ends one pending step: the one the body is at, or else the next it comes to.
    pub fn wake(&self) {
        let waiting = {
            let mut state = self.lock();
            state.wakes += 1;
            state.waiting.take()
        };
        if let Some(waker) = waiting {
            waker.wake();
        }
    }

    /// How often the body was polled.
    pub fn polls(&self) -> usize {
        self.lock().polls
    }

    /// How often it was polled again after it had returned `None`.
    pub fn polls_after_end(&self) -> usize {
        self.lock().polls_after_end
    }

    /// Whether it has returned `None`.
    pub fn is_ended(&self) -> bool {
        self.lock().ended
    }

    /// Whether it was dropped.
    pub fn is_dropped(&self) -> bool {
        self.lock().dropped
    }

    fn lock(&self) -> MutexGuard<'_, Watched> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
