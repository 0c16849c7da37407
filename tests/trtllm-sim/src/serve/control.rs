//! The endpoints of the simulator itself.

use super::respond;
use super::route::Call;
use crate::faults::Fault;
use crate::http1::SimBody;
use crate::shared::Shared;
use http::{Method, Response};

pub(super) fn serve(shared: &Shared, call: &Call) -> Response<SimBody> {
    match (call.path.as_str(), &call.method) {
        ("/sim/state", &Method::GET) => respond::json(200, shared.state().to_json()),
        ("/sim/state", &Method::DELETE) => {
            shared.forget();
            respond::answer(204, "", SimBody::whole(""))
        }
        ("/sim/faults", &Method::POST) => match set(shared, &call.body) {
            Ok(()) => respond::answer(204, "", SimBody::whole("")),
            Err(error) => respond::detail(400, &error),
        },
        ("/sim/faults", &Method::DELETE) => {
            shared.faults().clear();
            respond::answer(204, "", SimBody::whole(""))
        }
        _ => respond::detail(405, "Method Not Allowed"),
    }
}

fn set(shared: &Shared, body: &[u8]) -> Result<(), String> {
    let json = std::str::from_utf8(body).map_err(|_| "the body is not UTF-8")?;
    let faults = Fault::from_json(json)?;
    let mut list = shared.faults();
    for fault in faults {
        list.add(fault)?;
    }
    Ok(())
}
