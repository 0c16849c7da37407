//! The handoff to look at: two simulated engines, the sidecar between them, four requests.
//!
//! ```sh
//! cargo run --release --example demo
//! ```
//!
//! Prints what each hop saw, and ends with a code other than 0 when any of it is wrong. The engines are simulated but
//! strict, and really hand over: the context engine holds each request's "KV cache" until the generation engine pulls
//! it over TCP, by the ids and the opaque state that came through the sidecar.

mod client;
mod engines;
mod timeline;

use std::{error::Error, net::SocketAddr, process::ExitCode, time::Duration};

use bytes::Bytes;
use disagg_sidecar::{Config, Sidecar};
use http_body_util::{BodyExt, Full};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use trtllm_sim::{Fault, On, SeenRequest, expected_answer};

use crate::{
    client::{ask, ask_and_leave, chat, wait_until},
    engines::Engines,
    timeline::Timeline,
};

/// What a request came to, or what was wrong.
type Outcome = Result<String, Box<dyn Error>>;

/// How long anything may take that should take milliseconds.
const PATIENCE: Duration = Duration::from_secs(5);

#[tokio::main]
async fn main() -> ExitCode {
    match demo().await {
        Ok(0) => {
            println!("\nall four as they should be");
            ExitCode::SUCCESS
        }
        Ok(wrong) => {
            println!("\n{wrong} of four WRONG");
            ExitCode::FAILURE
        }
        Err(error) => {
            println!("\ncould not run: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn demo() -> Result<usize, Box<dyn Error>> {
    let engines = Engines::start().await?;
    let sidecar = Sidecar::bind(Config::from_args([
        "--listen",
        "127.0.0.1:0",
        "--admin-listen",
        "127.0.0.1:0",
        "--generation-url",
        &format!("http://{}", engines.generation.hostport()),
    ])?)
    .await?;
    let (data, admin, handle) = (sidecar.data_addr(), sidecar.admin_addr(), sidecar.handle());
    let running = tokio::spawn(sidecar.run());
    println!("context engine    {}", engines.context.hostport());
    println!("generation engine {}", engines.generation.hostport());
    println!("sidecar           {data} (data), {admin} (admin)");

    let mut wrong = 0;
    for (number, title) in TITLES.iter().enumerate() {
        println!("\n{}. {title}", number + 1);
        engines.forget();
        let timeline = Timeline::new();
        let mut watch = engines.watch(&timeline);
        let outcome = tokio::select! {
            outcome = request(number, &engines, data, &timeline) => outcome,
            () = watch.run() => Err("the watch ended".into()),
        };
        watch.look();
        timeline.print();
        let held = engines.context.state().kv_held;
        match &outcome {
            Ok(what) if held == 0 => println!("  outcome: {what}; KV held: 0"),
            Ok(what) => println!("  outcome: {what}, but WRONG: KV held: {held}"),
            Err(error) => println!("  outcome: WRONG: {error}"),
        }
        wrong += usize::from(outcome.is_err() || held != 0);
    }

    let metrics = metrics(admin).await?;
    let in_flight = metrics.lines().find_map(|line| line.strip_prefix("disagg_requests_in_flight "));
    println!("\nsidecar: requests in flight: {}", in_flight.unwrap_or("unknown"));
    for line in metrics.lines().filter(|line| line.starts_with("disagg_settlements_total{")) {
        println!("sidecar: {line}");
    }
    wrong += usize::from(in_flight.and_then(|count| count.parse::<f64>().ok()) != Some(0.0));
    handle.drain();
    running.await?;
    Ok(wrong)
}

const TITLES: [&str; 4] = [
    "a streaming chat",
    "a chat that does not stream",
    "a chat that the context step finishes (the model ends at once)",
    "a client that leaves after the context reply",
];

async fn request(number: usize, engines: &Engines, sidecar: SocketAddr, timeline: &Timeline) -> Outcome {
    match number {
        0 => streaming(engines, sidecar, timeline).await,
        1 => whole(engines, sidecar, timeline).await,
        2 => terminal(engines, sidecar, timeline).await,
        _ => leaving(engines, sidecar, timeline).await,
    }
}

async fn streaming(engines: &Engines, sidecar: SocketAddr, timeline: &Timeline) -> Outcome {
    let body = chat("Why is the sky blue?", true);
    let answer = ask(sidecar, &engines.context.hostport(), &body, timeline).await?;
    let expected = expected_answer(&body);
    check(answer.status == 200 && answer.done, "a whole stream with 200")?;
    check(answer.text == expected.text && answer.finish == expected.finish_reason, "every token once")?;
    handed_over(engines)?;
    Ok(format!("all {} tokens, once each", answer.chunks))
}

async fn whole(engines: &Engines, sidecar: SocketAddr, timeline: &Timeline) -> Outcome {
    let body = chat("And why is it red in the evening?", false);
    let answer = ask(sidecar, &engines.context.hostport(), &body, timeline).await?;
    check(answer.status == 200 && answer.text == expected_answer(&body).text, "every token once")?;
    handed_over(engines)?;
    Ok("the whole answer".to_owned())
}

async fn terminal(engines: &Engines, sidecar: SocketAddr, timeline: &Timeline) -> Outcome {
    let mut fault = Fault::on(On::Context);
    (fault.eos, fault.times) = (true, Some(1));
    engines.context.set_fault(fault);
    let body = chat("Say nothing.", true);
    let answer = ask(sidecar, &engines.context.hostport(), &body, timeline).await?;
    check(answer.status == 200 && answer.done && answer.finish == "stop", "a whole stream that stops")?;
    check(engines.generation.state().requests.is_empty(), "no generation leg")?;
    Ok("answered by the sidecar, without a generation leg".to_owned())
}

async fn leaving(engines: &Engines, sidecar: SocketAddr, timeline: &Timeline) -> Outcome {
    let body = chat("Tell me a long story.", true);
    let before = engines.generation.state();
    let replied = async {
        wait_until(PATIENCE, || engines.context.state().kv_held > 0).await;
    };
    ask_and_leave(sidecar, &engines.context.hostport(), &body, replied, timeline).await?;
    let settled = wait_until(PATIENCE, || {
        let now = engines.generation.state();
        now.generation_aborts > before.generation_aborts && now.open_requests == 0
    });
    check(settled.await, "the generation leg collects the KV cache and is dropped then")?;
    check(
        engines.generation.state().transfer_aborts == before.transfer_aborts,
        "no transfer is interrupted",
    )?;
    handed_over(engines)?;
    Ok("finished in the background: collected, then dropped".to_owned())
}

/// Both legs carried one and the same id.
fn handed_over(engines: &Engines) -> Result<(), Box<dyn Error>> {
    let id = |requests: Vec<SeenRequest>| {
        // Beside the legs there are questions for the release.
        let mut ids = requests.iter().filter_map(SeenRequest::disagg_request_id);
        ids.next().filter(|_| ids.next().is_none())
    };
    let context = id(engines.context.state().requests);
    check(context.is_some() && context == id(engines.generation.state().requests), "one id on both legs")
}

fn check(holds: bool, what: &str) -> Result<(), Box<dyn Error>> {
    if holds { Ok(()) } else { Err(format!("expected {what}").into()) }
}

async fn metrics(admin: SocketAddr) -> Result<String, Box<dyn Error>> {
    let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    let response = client.get(format!("http://{admin}/metrics").parse()?).await?;
    Ok(String::from_utf8_lossy(&response.into_body().collect().await?.to_bytes()).into_owned())
}
