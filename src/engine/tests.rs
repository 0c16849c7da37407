use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response, uri::Authority};
use tokio::time::advance;
use tower::{ServiceExt, service_fn, util::BoxCloneSyncService};
use tower_disagg::{
    error::{BoxError, ErrorReply},
    leg::{LegBody, LegError, LegErrorKind},
    trtllm::{Engine, Release},
};
use tower_layer::Layer;
use tower_service::Service;

use super::*;

type Client = BoxCloneSyncService<Request<LegBody>, Response<Bytes>, BoxError>;

/// What workers answer to `GET /version`, by authority, and how often they were asked.
#[derive(Clone, Default)]
struct Workers(Arc<Mutex<HashMap<String, Said>>>, Arc<AtomicUsize>);

#[derive(Clone)]
enum Said {
    Reply(u16, &'static str),
    Fails(LegErrorKind),
}

impl Workers {
    fn say(&self, authority: &str, said: Said) {
        self.0.lock().unwrap().insert(authority.to_owned(), said);
    }

    fn asked(&self) -> usize {
        self.1.swap(0, Ordering::Relaxed)
    }

    /// A worker says its release as soon as others had their turn.
    fn probe(&self) -> Client {
        let workers = self.clone();
        BoxCloneSyncService::new(service_fn(move |request: Request<LegBody>| {
            let workers = workers.clone();
            async move {
                tokio::task::yield_now().await;
                assert_eq!((request.method().as_str(), request.uri().path()), ("GET", "/version"));
                workers.1.fetch_add(1, Ordering::Relaxed);
                let authority = request.uri().authority().unwrap().as_str();
                let said = workers.0.lock().unwrap().get(authority).cloned();
                match said.unwrap_or(Said::Fails(LegErrorKind::Connect)) {
                    Said::Reply(status, body) => Ok(Response::builder()
                        .status(status)
                        .body(Bytes::from_static(body.as_bytes()))
                        .unwrap()),
                    Said::Fails(kind) => Err(BoxError::from(LegError::new(kind))),
                }
            }
        }))
    }
}

const RC24: Said = Said::Reply(200, r#"{"version":"1.3.0rc24"}"#);
const OLD: Said = Said::Reply(200, r#"{"version":"1.2.0"}"#);

fn release(text: &str) -> Engine {
    Engine::Known(Release::parse(text))
}

/// A leg that answers, or fails as it is told.
fn leg(fails: Option<LegErrorKind>) -> (Client, Arc<AtomicUsize>) {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let leg = service_fn(move |_: Request<LegBody>| {
        counted.fetch_add(1, Ordering::Relaxed);
        std::future::ready(match fails {
            None => Ok(Response::new(Bytes::new())),
            Some(kind) => Err(BoxError::from(LegError::new(kind))),
        })
    });
    (BoxCloneSyncService::new(leg), calls)
}

fn to(authority: &str) -> Request<LegBody> {
    Request::post(format!("http://{authority}/v1/chat/completions")).body(LegBody::empty()).unwrap()
}

async fn call<S>(service: &S, authority: &str) -> Result<(), LegErrorKind>
where
    S: Service<Request<LegBody>, Response = Response<Bytes>, Error = BoxError> + Clone,
{
    service.clone().oneshot(to(authority)).await.map(|_| ()).map_err(|error| LegErrorKind::of(&*error))
}

// === context workers ===

#[tokio::test(start_paused = true)]
async fn a_context_worker_is_asked_once_an_hour() {
    let (workers, releases) = (Workers::default(), Releases::new(None, Wanted::default()));
    workers.say("c:1", RC24);
    let (leg, calls) = leg(None);
    let gate = ContextGateLayer::new(releases.clone(), workers.probe()).layer(leg);
    assert_eq!(releases.context("c:1"), Engine::Unknown);
    call(&gate, "c:1").await.unwrap();
    assert_eq!(releases.context("c:1"), release("1.3.0rc24"));
    assert_eq!(workers.asked(), 1);
    advance(Duration::from_secs(3599)).await;
    call(&gate, "c:1").await.unwrap();
    assert_eq!(workers.asked(), 0);
    advance(Duration::from_secs(1)).await;
    call(&gate, "c:1").await.unwrap();
    assert_eq!(workers.asked(), 1);
    assert_eq!(calls.load(Ordering::Relaxed), 3);
}

#[tokio::test(start_paused = true)]
async fn what_context_workers_may_say() {
    use LegErrorKind::{Connect, Interrupted, Lost, ReplyTooLarge, Timeout, UnsupportedEngine};
    // what a worker says; what becomes of the leg; whether it is asked again after a minute
    for (said, result, again) in [
        (RC24, Ok(()), false),
        (OLD, Err(UnsupportedEngine), true),
        (Said::Reply(404, "no"), Ok(()), false),
        (Said::Reply(200, "junk"), Ok(()), true),
        (Said::Reply(200, r#"{"version":7}"#), Ok(()), true),
        (Said::Reply(200, ""), Ok(()), true),
        (Said::Reply(500, r#"{"version":"1.2.0"}"#), Ok(()), true),
        (Said::Reply(307, ""), Ok(()), true),
        (Said::Fails(Timeout), Ok(()), true),
        (Said::Fails(Interrupted), Ok(()), true),
        (Said::Fails(ReplyTooLarge), Ok(()), true),
        (Said::Fails(Connect), Err(Connect), true),
        (Said::Fails(Lost), Err(Lost), true),
    ] {
        let (workers, releases) = (Workers::default(), Releases::new(None, Wanted::default()));
        workers.say("c:1", said);
        let (leg, calls) = leg(None);
        let gate = ContextGateLayer::new(releases, workers.probe()).layer(leg);
        assert_eq!(call(&gate, "c:1").await, result);
        assert_eq!(calls.load(Ordering::Relaxed), usize::from(result.is_ok()));
        assert_eq!(workers.asked(), 1);
        advance(Duration::from_secs(60)).await;
        let _ = call(&gate, "c:1").await;
        assert_eq!(workers.asked() == 1, again);
    }
}

#[tokio::test]
async fn a_failed_connection_makes_it_unknown_again() {
    for (kind, forgotten) in [
        (LegErrorKind::Connect, true),
        (LegErrorKind::Lost, true),
        (LegErrorKind::Interrupted, false),
        (LegErrorKind::Timeout, false),
    ] {
        let (workers, releases) = (Workers::default(), Releases::new(None, Wanted::default()));
        workers.say("c:1", RC24);
        let gate = ContextGateLayer::new(releases.clone(), workers.probe()).layer(leg(Some(kind)).0);
        assert_eq!(call(&gate, "c:1").await, Err(kind));
        assert_eq!(releases.context("c:1") == Engine::Unknown, forgotten, "{kind:?}");
    }
}

#[tokio::test]
async fn one_asks_for_all() {
    let (workers, releases) = (Workers::default(), Releases::new(None, Wanted::default()));
    workers.say("c:1", RC24);
    let gate = ContextGateLayer::new(releases, workers.probe()).layer(leg(None).0);
    let (a, b, c) = tokio::join!(call(&gate, "c:1"), call(&gate, "c:1"), call(&gate, "c:1"));
    assert_eq!((a, b, c), (Ok(()), Ok(()), Ok(())));
    assert_eq!(workers.asked(), 1);
    // nobody is there: those who wait are told so, too
    let (a, b, c) = tokio::join!(call(&gate, "d:1"), call(&gate, "d:1"), call(&gate, "d:1"));
    let gone = Err(LegErrorKind::Connect);
    assert_eq!((a, b, c), (gone, gone, gone));
    assert_eq!(workers.asked(), 1);
}

#[tokio::test]
async fn whoever_asks_may_leave() {
    let (workers, releases) = (Workers::default(), Releases::new(None, Wanted::default()));
    workers.say("c:1", RC24);
    let gate = ContextGateLayer::new(releases, workers.probe()).layer(leg(None).0);
    {
        let mut first = std::pin::pin!(call(&gate, "c:1"));
        tokio_test_poll(first.as_mut()).await;
    }
    call(&gate, "c:1").await.unwrap();
}

/// Polls once.
async fn tokio_test_poll<F: Future>(mut future: std::pin::Pin<&mut F>) {
    std::future::poll_fn(|cx| {
        assert!(future.as_mut().poll(cx).is_pending());
        std::task::Poll::Ready(())
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_number_of_context_workers_remembered_is_bounded() {
    let (workers, releases) = (Workers::default(), Releases::new(None, Wanted::default()));
    let gate = ContextGateLayer::new(releases.clone(), workers.probe()).layer(leg(None).0);
    for port in 1..=1100 {
        let authority = format!("c:{port}");
        workers.say(&authority, RC24);
        call(&gate, &authority).await.unwrap();
        advance(Duration::from_millis(1)).await;
    }
    assert_eq!(releases.remembered(), 1024);
    assert_eq!(releases.context("c:1"), Engine::Unknown, "the oldest went");
    assert_eq!(releases.context("c:1100"), release("1.3.0rc24"));
}

/// Any server can be named in a routing header, by the thousand.
#[tokio::test(start_paused = true)]
async fn a_flood_of_endpoints_costs_a_known_worker_nothing() {
    const FLOOD: usize = 5000;
    for said in [None, Some(Said::Reply(200, "junk")), Some(OLD)] {
        let (workers, releases) = (Workers::default(), Releases::new(None, Wanted::default()));
        workers.say("c:1", RC24);
        let gate = ContextGateLayer::new(releases.clone(), workers.probe()).layer(leg(None).0);
        call(&gate, "c:1").await.unwrap();
        let mut flood = tokio::task::JoinSet::new();
        for number in 0..FLOOD {
            let authority = format!("h{number}:1");
            if let Some(said) = &said {
                workers.say(&authority, said.clone());
            }
            flood.spawn(gate.clone().oneshot(to(&authority)));
        }
        let mut answered = 0;
        while let Some(result) = flood.join_next().await {
            answered += usize::from(result.unwrap().is_ok());
            assert!(releases.remembered() <= 1024);
        }
        assert_eq!(answered > 0, matches!(said, Some(Said::Reply(_, "junk"))));
        assert_eq!(workers.asked(), 1 + FLOOD, "each once");
        call(&gate, "c:1").await.unwrap();
        assert_eq!(workers.asked(), 0, "what is known of a worker outlives the flood");
        // and runs out in time, so that the next flood finds room
        advance(Duration::from_secs(60)).await;
        call(&gate, "late:1").await.unwrap_err();
        assert!(releases.remembered() <= 1024);
    }
}

#[tokio::test]
async fn a_release_newer_than_known_is_news_once() {
    let releases = Releases::new(None, Wanted::default());
    assert!(!releases.is_news(&Engine::Unknown) && !releases.is_news(&release("1.3.0rc24")));
    assert!(releases.is_news(&release("9.9.9")) && !releases.is_news(&release("9.9.9+cu13")));
    assert!(releases.is_news(&release("9.9.10")));
    // whoever is asked may say what it likes
    let said = (0..1000).filter(|patch| releases.is_news(&release(&format!("10.0.{patch}")))).count();
    assert_eq!(said, 14);
    assert!(
        !Releases::new(Some(release("9.9.9")), Wanted::default()).is_news(&release("9.9.9")),
        "said at the start"
    );
}

#[tokio::test]
async fn a_pinned_release_asks_nobody() {
    let (workers, releases) =
        (Workers::default(), Releases::new(Some(release("1.3.0rc20")), Wanted::default()));
    let gate = ContextGateLayer::new(releases.clone(), workers.probe()).layer(leg(None).0);
    call(&gate, "c:1").await.unwrap();
    let gate = generation_gate(&releases, &workers).layer(leg(None).0);
    call(&gate, "x:1").await.unwrap();
    assert_eq!(workers.asked(), 0);
    assert_eq!(releases.context("c:1"), release("1.3.0rc20"));
    assert_eq!(releases.local_or_last(), release("1.3.0rc20"));
}

// === the generation worker ===

fn generation_gate(releases: &Releases, workers: &Workers) -> GenerationGateLayer<Client> {
    GenerationGateLayer::new(releases.clone(), workers.probe(), Authority::from_static("g:1"))
}

#[tokio::test]
async fn what_the_generation_worker_may_say() {
    for (said, code, lasting) in [
        (RC24, None, true),
        (OLD, Some((502, "unsupported_engine_version")), true),
        (Said::Reply(404, ""), None, true),
        (Said::Reply(503, ""), None, false),
        (Said::Reply(200, "junk"), None, false),
        (Said::Fails(LegErrorKind::Timeout), None, false),
        (Said::Fails(LegErrorKind::Connect), Some((503, "generation_unreachable")), false),
        (Said::Fails(LegErrorKind::Lost), Some((503, "generation_unreachable")), false),
    ] {
        let (workers, releases) = (Workers::default(), Releases::new(None, Wanted::default()));
        workers.say("g:1", said);
        let (leg, calls) = leg(None);
        let gate = generation_gate(&releases, &workers).layer(leg);
        for attempt in 1..=2 {
            let result = gate.clone().oneshot(to("x:1")).await;
            let reply = result.err().map(|error| ErrorReply::of(&*error));
            assert_eq!(reply.as_ref().map(|reply| (reply.status.as_u16(), reply.code)), code);
            if let Some(reply) = reply.filter(|reply| reply.status == 502) {
                assert!(reply.message.contains("1.2.0") && reply.message.contains("1.3.0rc3"), "{reply:?}");
            }
            assert_eq!(calls.load(Ordering::Relaxed), if code.is_none() { attempt } else { 0 });
        }
        assert_eq!(workers.asked(), if lasting { 1 } else { 2 });
        assert_eq!(releases.local().is_some(), lasting);
    }
}

#[tokio::test]
async fn one_asks_the_generation_worker_for_all() {
    for (said, result) in [
        (RC24, Ok(())),
        (Said::Reply(404, ""), Ok(())),
        (Said::Reply(503, ""), Ok(())),
        (Said::Fails(LegErrorKind::Timeout), Ok(())),
        (OLD, Err("unsupported_engine_version")),
        (Said::Fails(LegErrorKind::Connect), Err("generation_unreachable")),
    ] {
        let (workers, releases) = (Workers::default(), Releases::new(None, Wanted::default()));
        workers.say("g:1", said);
        let gate = generation_gate(&releases, &workers).layer(leg(None).0);
        let call = async || {
            let result = gate.clone().oneshot(to("x:1")).await;
            result.map(|_| ()).map_err(|error| ErrorReply::of(&*error).code)
        };
        let settled = generation_gate(&releases, &workers);
        let (a, b, c, _) = tokio::join!(call(), call(), call(), settled.settled());
        assert_eq!((a, b, c), (result, result, result));
        assert_eq!(workers.asked(), 1);
    }
}

#[tokio::test]
async fn whoever_asks_the_generation_worker_may_leave() {
    let (workers, releases) = (Workers::default(), Releases::new(None, Wanted::default()));
    workers.say("g:1", RC24);
    let gate = generation_gate(&releases, &workers).layer(leg(None).0);
    {
        let mut first = std::pin::pin!(call(&gate, "x:1"));
        tokio_test_poll(first.as_mut()).await;
    }
    call(&gate, "x:1").await.unwrap();
    assert_eq!(releases.local(), Some(release("1.3.0rc24")));
}

#[tokio::test]
async fn a_doubted_generation_worker_is_asked_again() {
    let (workers, releases) = (Workers::default(), Releases::new(None, Wanted::default()));
    workers.say("g:1", RC24);
    let gate = generation_gate(&releases, &workers).layer(leg(None).0);
    call(&gate, "x:1").await.unwrap();
    releases.doubt_local();
    assert_eq!(releases.local(), None);
    assert_eq!(
        releases.local_or_last(),
        release("1.3.0rc24"),
        "requests on their way are shaped for the last one"
    );
    workers.say("g:1", Said::Reply(200, r#"{"version":"1.4.0rc1"}"#));
    call(&gate, "x:1").await.unwrap();
    assert_eq!(releases.local(), Some(release("1.4.0rc1")));
}

#[tokio::test(start_paused = true)]
async fn it_is_asked_until_it_answers_and_again_when_in_doubt() {
    let (workers, releases) = (Workers::default(), Releases::new(None, Wanted::default()));
    let task = tokio::spawn(watch(generation_gate(&releases, &workers)));
    tokio::time::sleep(Duration::from_secs(60)).await;
    let asked = workers.asked();
    assert!((15..30).contains(&asked), "{asked} questions in a minute");
    workers.say("g:1", RC24);
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(releases.local(), Some(release("1.3.0rc24")));
    workers.asked();
    tokio::time::sleep(Duration::from_secs(200)).await;
    assert_eq!(workers.asked(), 0);
    releases.doubt_local();
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!((workers.asked(), releases.local().is_some()), (1, true));
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn it_is_asked_again_from_time_to_time() {
    let (workers, releases) = (Workers::default(), Releases::new(None, Wanted::default()));
    workers.say("g:1", RC24);
    let task = tokio::spawn(watch(generation_gate(&releases, &workers)));
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let asked = workers.asked();
    assert!((10..15).contains(&asked), "{asked} questions in an hour");
    // busy: what was heard holds, for an hour
    workers.say("g:1", Said::Reply(503, ""));
    tokio::time::sleep(Duration::from_secs(1800)).await;
    assert_eq!(releases.local(), Some(release("1.3.0rc24")));
    tokio::time::sleep(Duration::from_secs(1801)).await;
    assert_eq!(releases.local(), None);
    workers.say("g:1", Said::Reply(200, r#"{"version":"1.4.0rc1"}"#));
    tokio::time::sleep(Duration::from_secs(301)).await;
    assert_eq!(releases.local(), Some(release("1.4.0rc1")));
    // gone
    workers.say("g:1", Said::Fails(LegErrorKind::Connect));
    tokio::time::sleep(Duration::from_secs(301)).await;
    assert_eq!(releases.local(), None);
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn without_a_watch_what_it_said_runs_out() {
    let (workers, releases) = (Workers::default(), Releases::new(None, Wanted::default()));
    workers.say("g:1", RC24);
    let gate = generation_gate(&releases, &workers).layer(leg(None).0);
    for (after, questions) in [(0, 1), (3599, 0), (1, 1)] {
        advance(Duration::from_secs(after)).await;
        call(&gate, "x:1").await.unwrap();
        assert_eq!(workers.asked(), questions);
    }
}

// === conversations ===

/// Lines of warnings and errors of this thread, as long as the guard is there.
#[derive(Debug, Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn start(&self) -> tracing::subscriber::DefaultGuard {
        let writer = self.clone();
        let lines =
            tracing_subscriber::fmt().with_max_level(tracing::Level::WARN).without_time().with_ansi(false);
        tracing::subscriber::set_default(lines.with_writer(move || writer.clone()).finish())
    }

    fn lines(&self) -> Vec<String> {
        let text = std::mem::take(&mut *self.0.lock().unwrap());
        String::from_utf8(text).unwrap().lines().map(str::to_owned).collect()
    }
}

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

const RC20: Said = Said::Reply(200, r#"{"version":"1.3.0rc20"}"#);
const RC21: Said = Said::Reply(200, r#"{"version":"1.3.0rc21"}"#);

/// Whether somebody who waits for it is told that the first generation worker was unfit.
async fn is_unfit(releases: &Releases) -> bool {
    tokio::time::timeout(Duration::from_millis(1), releases.unfit()).await.is_ok()
}

#[tokio::test(start_paused = true)]
async fn a_first_generation_worker_that_is_too_old_for_conversations_is_unfit() {
    let unknown = Said::Reply(404, "");
    for (said, conversations, unfit) in [
        (RC20, true, true),
        (OLD, true, true),
        (RC21, true, false),
        (unknown, true, false),
        (Said::Reply(503, ""), true, false),
        (Said::Fails(LegErrorKind::Connect), true, false),
        (RC20, false, false),
        (OLD, false, false),
    ] {
        let log = Log::default();
        let _logged = log.start();
        let (workers, releases) =
            (Workers::default(), Releases::new(None, Wanted { conversations, ..Wanted::default() }));
        workers.say("g:1", said);
        let task = tokio::spawn(watch(generation_gate(&releases, &workers)));
        assert_eq!(is_unfit(&releases).await, unfit);
        // It is said once, and only once.
        tokio::time::sleep(Duration::from_secs(3 * 3600)).await;
        assert!(!is_unfit(&releases).await);
        let said: Vec<_> =
            log.lines().into_iter().filter(|line| line.contains("--conversation-from")).collect();
        assert_eq!(said.len(), usize::from(unfit), "{said:?}");
        for line in said {
            assert!(
                line.contains("ERROR") && line.contains("1.3.0rc21") && line.contains("release=1."),
                "{line}"
            );
        }
        task.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn a_generation_worker_that_was_replaced_by_one_too_old_is_not_ready_and_no_reason_to_end() {
    let log = Log::default();
    let _logged = log.start();
    let (workers, releases) =
        (Workers::default(), Releases::new(None, Wanted { conversations: true, ..Wanted::default() }));
    let gate = generation_gate(&releases, &workers);
    for (said, loses, lines) in [
        (RC21, false, 0),
        (RC20, true, 1),
        (RC20, true, 0),
        (RC24, false, 0),
        (RC20, true, 1),
        (RC21, false, 0),
    ] {
        workers.say("g:1", said);
        gate.doubt();
        let engine = gate.settled().await.unwrap();
        assert_eq!(gate.loses_conversations(&engine), loses, "{engine}");
        assert!(!is_unfit(&releases).await);
        let logged = log.lines();
        assert_eq!(logged.len(), lines, "{logged:?}");
        assert!(logged.iter().all(|line| line.contains("replaced") && line.contains("release=1.3.0rc20")));
        // handoffs go on
        call(&gate.clone().layer(leg(None).0), "x:1").await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_context_worker_that_is_too_old_for_conversations_is_warned_about_once() {
    let log = Log::default();
    let _logged = log.start();
    for conversations in [true, false] {
        let (workers, releases) =
            (Workers::default(), Releases::new(None, Wanted { conversations, ..Wanted::default() }));
        let gate = ContextGateLayer::new(releases, workers.probe()).layer(leg(None).0);
        for (authority, said) in [("a:1", RC20), ("b:1", RC21), ("c:1", OLD), ("d:1", RC20)] {
            workers.say(authority, said);
        }
        for _ in 0..3 {
            for authority in ["a:1", "b:1", "d:1"] {
                call(&gate, authority).await.unwrap();
            }
            call(&gate, "c:1").await.unwrap_err();
            advance(Duration::from_secs(3600)).await;
        }
        assert_eq!(workers.asked(), 12);
        let lines = log.lines();
        let warned: Vec<_> = lines.iter().map(|line| (line.contains("a:1"), line.contains("d:1"))).collect();
        assert_eq!(
            warned,
            if conversations { vec![(true, false), (false, true)] } else { vec![] },
            "{lines:?}"
        );
        assert!(lines.iter().all(|line| line.contains("WARN") && line.contains("1.3.0rc21 and newer can")));
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_handoff_has_both_workers_asked_again() {
    let (workers, releases) = (Workers::default(), Releases::new(None, Wanted::default()));
    workers.say("g:1", RC24);
    workers.say("x:1", RC24);
    let watching = tokio::spawn(watch(generation_gate(&releases, &workers)));
    let gate = ContextGateLayer::new(releases.clone(), workers.probe()).layer(leg(None).0);
    call(&gate, "x:1").await.unwrap();
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(workers.asked(), 2);
    // not for each of many
    for _ in 0..3 {
        releases.refused("x:1");
        releases.refused("not known:1");
        call(&gate, "x:1").await.unwrap();
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(workers.asked(), 0);
    advance(Duration::from_secs(6)).await;
    const NEW: Said = Said::Reply(200, r#"{"version":"1.4.0rc1"}"#);
    workers.say("g:1", NEW);
    workers.say("x:1", NEW);
    releases.refused("x:1");
    assert_eq!(releases.local(), Some(release("1.3.0rc24")), "nobody waits for it");
    call(&gate, "x:1").await.unwrap();
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!((releases.local(), releases.context("x:1")), (Some(release("1.4.0rc1")), release("1.4.0rc1")));
    assert_eq!(workers.asked(), 2);
    watching.abort();
}
