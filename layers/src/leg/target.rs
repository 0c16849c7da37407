use http::{Uri, uri::PathAndQuery};

/// Where a leg goes: to `origin` when there is one, else to wherever the client of the leg sends a bare path.
pub(crate) fn target(origin: Option<&Uri>, path: PathAndQuery) -> Uri {
    let mut target = http::uri::Parts::default();
    if let Some(origin) = origin {
        target.scheme = origin.scheme().cloned();
        target.authority = origin.authority().cloned();
    }
    target.path_and_query = Some(path.clone());
    // Fails for an origin that is half of one; then the client of the leg has to know.
    Uri::from_parts(target).unwrap_or_else(|_| path.into())
}

/// `path` with the query of the client's request.
pub(crate) fn with_query(path: &'static str, client: &Uri) -> PathAndQuery {
    let query = client.query().map(|query| format!("{path}?{query}"));
    // A query that stood in a URI stands in another one.
    query.and_then(|target| target.parse().ok()).unwrap_or_else(|| PathAndQuery::from_static(path))
}
