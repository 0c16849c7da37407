use std::{error::Error, fmt, sync::Arc};

use tower_layer::Layer;

use super::Respond;
use crate::error::ErrorReply;

type Recognise = dyn Fn(&(dyn Error + 'static)) -> Option<ErrorReply> + Send + Sync;

/// Answers the errors of the services inside. See the [module](super) for examples.
#[derive(Clone, Default)]
pub struct RespondLayer {
    recognise: Option<Arc<Recognise>>,
}

impl RespondLayer {
    /// Knows the errors of this crate, and with the feature `tower` those of `tower`'s layers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Also knows what `recognise` returns an answer for, before anything this crate knows.
    ///
    /// It is given the error as the inner service returned it; look through the errors around yours with
    /// [`find`](crate::error::find). Of several, the one added first is asked first.
    pub fn recognise(
        mut self,
        recognise: impl Fn(&(dyn Error + 'static)) -> Option<ErrorReply> + Send + Sync + 'static,
    ) -> Self {
        self.recognise = Some(match self.recognise.take() {
            None => Arc::new(recognise),
            Some(first) => Arc::new(move |error| first(error).or_else(|| recognise(error))),
        });
        self
    }

    /// What `error` means to the client.
    pub(super) fn reply(&self, error: &(dyn Error + 'static)) -> ErrorReply {
        let own = self.recognise.as_ref().and_then(|recognise| recognise(error));
        own.unwrap_or_else(|| ErrorReply::of(error))
    }
}

impl<S> Layer<S> for RespondLayer {
    type Service = Respond<S>;

    fn layer(&self, inner: S) -> Respond<S> {
        Respond::new(inner, self.clone())
    }
}

impl fmt::Debug for RespondLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RespondLayer").field("recognise", &self.recognise.is_some()).finish()
    }
}
