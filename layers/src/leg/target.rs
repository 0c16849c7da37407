use http::{
    Uri,
    uri::{PathAndQuery, Scheme},
};

/// Where a leg goes: to `origin` when there is one, else to wherever the client of the leg sends a bare path.
pub(crate) fn target(origin: Option<&Uri>, path: PathAndQuery) -> Uri {
    let mut target = http::uri::Parts::default();
    if let Some(origin) = origin {
        target.authority = origin.authority().cloned();
        // `host:port` alone is an origin too.
        let scheme = origin.scheme().unwrap_or(&Scheme::HTTP);
        target.scheme = target.authority.is_some().then(|| scheme.clone());
    }
    target.path_and_query = Some(path.clone());
    Uri::from_parts(target).unwrap_or_else(|_| path.into())
}

/// `path` with the query of the client's request.
pub(crate) fn with_query(path: &'static str, client: &Uri) -> PathAndQuery {
    let query = client.query().map(|query| format!("{path}?{query}"));
    // A query that stood in a URI stands in another one.
    query.and_then(|target| target.parse().ok()).unwrap_or_else(|| PathAndQuery::from_static(path))
}
