//! How long nothing goes on.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::time::{Instant, Sleep};

/// Times a pause. Its timer is made once the first pause begins, and used again for each further one.
#[derive(Debug)]
pub(crate) struct Pause {
    most: Duration,
    timer: Option<Pin<Box<Sleep>>>,
    running: bool,
}

impl Pause {
    /// No pause yet; one may take `most`.
    pub(crate) fn new(most: Duration) -> Self {
        Self { most, timer: None, running: false }
    }

    /// Something goes on.
    pub(crate) fn end(&mut self) {
        self.running = false;
    }

    /// Nothing goes on, since now unless it was so before. Ready when that has lasted too long, and once only.
    pub(crate) fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(self.most)));
        if !std::mem::replace(&mut self.running, true) {
            // `sleep` above knows what to do with a time that the clock cannot add
            if let Some(deadline) = Instant::now().checked_add(self.most) {
                timer.as_mut().reset(deadline);
            }
        }
        let polled = timer.as_mut().poll(cx);
        self.running = polled.is_pending();
        polled
    }
}
