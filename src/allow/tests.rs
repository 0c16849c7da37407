use std::{
    collections::HashMap,
    io,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{sync::Semaphore, time::advance};
use tower_disagg::error::BoxError;

use super::*;

mod whole;

const TIMEOUT: Duration = Duration::from_secs(5);

/// What a resolver is to answer, name by name; the last of a list again and again.
#[derive(Clone, Default)]
pub(crate) struct Names(Arc<Inner>);

struct Inner {
    answers: Mutex<HashMap<String, Vec<Vec<SocketAddr>>>>,
    asked: Mutex<Vec<String>>,
    /// One for each answer that may be given.
    answering: Semaphore,
}

impl Default for Inner {
    fn default() -> Self {
        let answering = Semaphore::new(Semaphore::MAX_PERMITS);
        Self { answers: Mutex::default(), asked: Mutex::default(), answering }
    }
}

impl Names {
    pub(crate) fn say(&self, name: &str, answers: &[&[&str]]) {
        let answers =
            answers.iter().map(|list| list.iter().map(|text| format!("{text}:0").parse().unwrap()).collect());
        self.0.answers.lock().unwrap().insert(name.to_owned(), answers.collect());
    }

    /// The names that were asked for since somebody looked.
    pub(crate) fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.0.asked.lock().unwrap())
    }

    fn hold(&self) {
        self.0.answering.forget_permits(Semaphore::MAX_PERMITS);
    }

    fn answer(&self, names: usize) {
        self.0.answering.add_permits(names);
    }

    fn next(&self, name: &str) -> io::Result<Vec<SocketAddr>> {
        let mut answers = self.0.answers.lock().unwrap();
        let list = answers.get_mut(name).ok_or_else(|| io::Error::other("no such name"))?;
        Ok(if list.len() > 1 { list.remove(0) } else { list[0].clone() })
    }

    pub(crate) fn resolver(&self) -> Resolver {
        let names = self.clone();
        Arc::new(move |name| {
            names.0.asked.lock().unwrap().push(name.clone());
            let names = names.clone();
            Box::pin(async move {
                names.0.answering.acquire().await.unwrap().forget();
                assert_ne!(name, "panic.test");
                names.next(&name)
            })
        })
    }

    fn lookups(&self) -> Lookups {
        Lookups::new(self.resolver(), TIMEOUT)
    }
}

fn list(entries: &[&str], names: &Names) -> AllowList {
    let entries: Vec<_> = entries.iter().map(|entry| entry.parse().unwrap()).collect();
    AllowList::new(&entries, names.lookups())
}

/// What becomes of a request to `endpoint`: where it may go, or why not.
async fn ask(list: &AllowList, endpoint: &str) -> Result<Vec<String>, &'static str> {
    match list.allow(&endpoint.parse().unwrap()) {
        Allowance::Allowed => Ok(vec!["anywhere".to_owned()]),
        Allowance::Refused => Err("refused"),
        Allowance::Pending(asking) => match asking.await {
            LookUp::Allowed(at) => Ok(at.as_slice().iter().map(ToString::to_string).collect()),
            LookUp::Refused => Err("not there"),
            LookUp::Failed(_) => Err("failed"),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

fn at(addresses: &[&str]) -> Result<Vec<String>, &'static str> {
    Ok(addresses.iter().map(|&text| text.to_owned()).collect())
}

#[tokio::test]
async fn only_names_that_are_listed_and_bounded_are_looked_up() {
    let names = Names::default();
    names.say("in.test", &[&["10.0.0.5"]]);
    names.say("both.test", &[&["169.254.169.254", "10.0.0.6", "[fd00::6]", "[::ffff:10.0.0.7]"]]);
    names.say("out.test", &[&["169.254.169.254", "[::ffff:169.254.169.254]"]]);
    names.say("none.test", &[&[]]);
    let mut entries = vec!["10.0.0.0/8:8000-8001", "::/0:9000", "named.test:7000", "*.pods.test:7000"];
    entries.extend(["in.test:8000", "both.test:8001", "both.test:9000", "out.test:8000", "out.test:9000"]);
    entries.extend(["none.test:8000", "other.test:8000"]);
    let list = list(&entries, &names);
    for (endpoint, expected, asked) in [
        ("10.9.9.9:8000", at(&["anywhere"]), &[][..]),
        ("11.9.9.9:8000", Err("refused"), &[]),
        ("[::ffff:10.0.0.1]:8000", Err("refused"), &[]),
        ("named.test:7000", at(&["anywhere"]), &[]),
        ("a.pods.test:7000", at(&["anywhere"]), &[]),
        ("in.test:7999", Err("refused"), &[]),
        // whatever it would resolve to
        ("in.test:8001", Err("refused"), &[]),
        ("in.test:8000", at(&["10.0.0.5:8000"]), &["in.test"]),
        ("both.test:8001", at(&["10.0.0.6:8001", "10.0.0.7:8001"]), &["both.test"]),
        ("out.test:8000", Err("not there"), &["out.test"]),
        // known by now
        ("out.test:9000", Err("not there"), &[]),
        ("none.test:8000", Err("not there"), &["none.test"]),
        ("other.test:8000", Err("failed"), &["other.test"]),
        ("Both.Test:9000", at(&["[fd00::6]:9000"]), &[]),
    ] {
        assert_eq!(ask(&list, endpoint).await, expected, "{endpoint}");
        assert_eq!(names.asked(), asked, "{endpoint}");
    }
}

#[tokio::test]
async fn without_a_list_nothing_is_looked_up() {
    let names = Names::default();
    assert_eq!(ask(&list(&[], &names), "any.test:1").await, at(&["anywhere"]));
    assert_eq!(names.asked(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn an_answer_holds_for_two_seconds_and_a_failure_not_at_all() {
    let names = Names::default();
    names.say("a.test", &[&["10.0.0.1"], &["169.254.169.254"], &["10.0.0.3"]]);
    let list = list(&["10.0.0.0/8:1-9", "a.test:1", "b.test:1"], &names);
    for (after, expected, asked) in [
        (0, at(&["10.0.0.1:1"]), 1),
        (1999, at(&["10.0.0.1:1"]), 0),
        (1, Err("not there"), 1),
        (1999, Err("not there"), 0),
        (1, at(&["10.0.0.3:1"]), 1),
    ] {
        advance(Duration::from_millis(after)).await;
        assert_eq!(ask(&list, "a.test:1").await, expected);
        assert_eq!(names.asked().len(), asked);
    }
    for _ in 0..2 {
        assert_eq!(ask(&list, "b.test:1").await, Err("failed"));
        assert_eq!(names.asked(), ["b.test"]);
    }
    names.say("b.test", &[&["10.0.0.2"]]);
    assert_eq!(ask(&list, "b.test:1").await, at(&["10.0.0.2:1"]));
}

#[tokio::test]
async fn one_asks_for_all_and_may_leave() {
    let names = Names::default();
    names.say("a.test", &[&["10.0.0.1"]]);
    names.hold();
    let ports: Vec<_> = (1..=9).map(|port| format!("*.test:{port}")).collect();
    let entries: Vec<_> = ports.iter().map(String::as_str).chain(["10.0.0.0/8:1-9"]).collect();
    let list = list(&entries, &names);
    let mut asking: Vec<_> = (1..=9)
        .map(|port| {
            let list = list.clone();
            tokio::spawn(async move { ask(&list, &format!("a.test:{port}")).await })
        })
        .collect();
    idle().await;
    asking.remove(0).abort();
    idle().await;
    names.answer(1);
    for (asking, port) in asking.into_iter().zip(2..) {
        assert_eq!(asking.await.unwrap(), at(&[&format!("10.0.0.1:{port}")]));
    }
    assert_eq!(names.asked(), ["a.test"]);
    // and all hear of a failure
    let asking: Vec<_> = (1..=9).map(|_| tokio::spawn(ask_owned(list.clone(), "b.test:1"))).collect();
    idle().await;
    names.answer(1);
    for asking in asking {
        assert_eq!(asking.await.unwrap(), Err("failed"));
    }
    assert_eq!(names.asked(), ["b.test"]);
}

async fn ask_owned(list: AllowList, endpoint: &'static str) -> Result<Vec<String>, &'static str> {
    ask(&list, endpoint).await
}

/// Lets other tasks run until there is nothing left for them to do.
async fn idle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_question_has_its_time() {
    let names = Names::default();
    names.say("slow.test", &[&["10.0.0.1"]]);
    names.hold();
    let lookups = names.lookups();
    let asking = tokio::spawn({
        let lookups = lookups.clone();
        async move { lookups.addresses("slow.test").await }
    });
    idle().await;
    advance(TIMEOUT - Duration::from_millis(1)).await;
    idle().await;
    assert!(!asking.is_finished());
    advance(Duration::from_millis(1)).await;
    idle().await;
    assert!(asking.is_finished());
    let error: BoxError = asking.await.unwrap().unwrap_err().into();
    assert!(error.to_string().contains("connect timeout"), "{error}");
    // who comes later waits for the same answer, and gets it
    let asking = tokio::spawn(async move { lookups.addresses("slow.test").await });
    idle().await;
    names.answer(1);
    assert_eq!(asking.await.unwrap().unwrap().len(), 1);
    assert_eq!(names.asked(), ["slow.test"]);
}

#[tokio::test(start_paused = true)]
async fn questions_are_bounded_even_when_nobody_waits_any_more() {
    let names = Names::default();
    names.hold();
    let lookups = names.lookups();
    let ask = |name: String| {
        let lookups = lookups.clone();
        tokio::spawn(async move { lookups.addresses(&name).await.map(|found| found.len()) })
    };
    let asking: Vec<_> = (0..500).map(|number| ask(format!("{number}.test"))).collect();
    idle().await;
    assert_eq!(names.asked().len(), 32);
    for asking in asking {
        asking.abort();
        let _ = asking.await;
    }
    // the resolver still works on those
    let late = ask("late.test".to_owned());
    idle().await;
    assert_eq!(names.asked(), [""; 0]);
    assert!(late.await.unwrap().is_err());
    names.say("late.test", &[&["10.0.0.1"]]);
    names.answer(33);
    assert_eq!(ask("late.test".to_owned()).await.unwrap().unwrap(), 1);
    assert_eq!(names.asked(), ["late.test"]);
}

#[tokio::test(start_paused = true)]
async fn the_number_of_names_remembered_is_bounded() {
    let names = Names::default();
    let lookups = names.lookups();
    for number in 0..300 {
        let name = format!("{number}.test");
        names.say(&name, &[&["10.0.0.1"]]);
        lookups.addresses(&name).await.unwrap();
        advance(Duration::from_micros(1)).await;
    }
    assert_eq!(lookups.remembered(), 256);
    names.asked();
    lookups.addresses("299.test").await.unwrap();
    assert_eq!(names.asked(), [""; 0]);
    lookups.addresses("0.test").await.unwrap();
    assert_eq!(names.asked(), ["0.test"], "the oldest went");
    advance(Duration::from_secs(2)).await;
    lookups.addresses("1.test").await.unwrap();
    assert_eq!(lookups.remembered(), 1, "what has run out goes first");
}

#[tokio::test]
async fn a_resolver_that_panics_fails_one_question() {
    let names = Names::default();
    let lookups = names.lookups();
    for _ in 0..2 {
        let error: BoxError = lookups.addresses("panic.test").await.unwrap_err().into();
        assert!(error.to_string().contains("gave up"), "{error}");
        assert_eq!(names.asked(), ["panic.test"]);
    }
}

#[tokio::test]
async fn the_system_resolves_localhost() {
    let lookups = Lookups::new(system(), TIMEOUT);
    let found = lookups.addresses("localhost").await.unwrap();
    assert!(!found.is_empty() && found.iter().all(|address| address.ip().is_loopback()), "{found:?}");
}
