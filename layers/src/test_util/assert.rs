//! Assertions about types: a call that compiles is one that holds.

use std::{fmt, future::Future};

use http_body::Body;

/// Compiles only for a layer that can be shared, cloned and printed.
///
/// ```
/// use tower_disagg::{cancel::CancelLayer, test_util::assert_layer_traits};
/// assert_layer_traits::<CancelLayer>();
/// ```
pub fn assert_layer_traits<L: Clone + Send + Sync + fmt::Debug + 'static>() {}

/// Compiles only for a service that can be shared, cloned and printed.
///
/// ```
/// use tower_disagg::{respond::Respond, test_util::{LegDouble, assert_service_traits}};
/// assert_service_traits::<Respond<LegDouble<u8, u8>>>();
/// ```
pub fn assert_service_traits<S: Clone + Send + Sync + fmt::Debug + 'static>() {}

/// Compiles only for a future that can be moved to another thread and printed.
pub fn assert_future_traits<F: Future + Send + fmt::Debug>() {}

/// Compiles only for a body that can be moved to another thread and printed, and that a layer which has to make up a
/// response can make up (`tower-http`'s timeout does).
pub fn assert_body_traits<B: Body + Send + Default + fmt::Debug>() {}
