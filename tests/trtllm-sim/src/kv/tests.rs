use super::*;
use std::time::{Duration, Instant};

fn pull_of(global: Option<i64>, context: Option<i64>, nonce: Option<&str>) -> Pull {
    Pull {
        disagg_request_id: global,
        ctx_request_id: context,
        nonce: nonce.map(str::to_owned),
        fingerprint: 7,
    }
}

#[test]
fn only_the_right_words_open_the_store() {
    let now = Instant::now();
    let mut store = Store::default();
    let entry = Entry::new(5, true, 7, 3);
    assert!(store.begin(1, entry.clone()));
    assert!(!store.begin(1, entry), "twice while live");
    let right = pull_of(Some(1), Some(5), Some("n"));
    assert!(store.leave(&right).is_err(), "before the reply");
    assert!(store.held().is_empty());
    store.commit(1, Some("n".into()), now, Duration::from_secs(1));
    assert_eq!(store.held(), [1]);
    for wrong in [
        pull_of(Some(2), Some(5), Some("n")),
        pull_of(None, Some(5), Some("n")),
        pull_of(Some(1), None, Some("n")),
        pull_of(Some(1), Some(6), Some("n")),
        pull_of(Some(1), Some(5), Some("m")),
        pull_of(Some(1), Some(5), None),
        Pull { fingerprint: 8, ..right.clone() },
    ] {
        assert!(store.leave(&wrong).is_err(), "{wrong:?}");
    }
    assert_eq!(store.leave(&right), Ok((1, 3)));
    assert!(store.leave(&right).is_err(), "twice at once");
    store.strand(1);
    assert!(store.leave(&right).is_err(), "after it broke");
    assert_eq!(store.expire(now), 0);
    assert_eq!(store.expire(now + Duration::from_secs(1)), 1);
    assert!(store.held().is_empty());
}

#[test]
fn old_workers_have_only_the_context_id() {
    let mut store = Store::default();
    assert!(store.begin(9, Entry::new(9, false, 7, 1)));
    store.commit(9, None, Instant::now(), Duration::from_secs(1));
    assert!(store.leave(&pull_of(None, Some(8), None)).is_err());
    assert_eq!(store.leave(&pull_of(None, Some(9), None)), Ok((9, 1)));
}

#[test]
fn lines_and_states_survive_the_wire() {
    let pull = pull_of(Some(i64::MAX), None, Some("abc"));
    assert_eq!(Pull::parse(&pull.line()), Some(pull));
    for bad in ["", "PULL", "PULL x - - 0", "PULL 1 2 3 zz", "GET / HTTP/1.1"] {
        assert_eq!(Pull::parse(bad), None, "{bad}");
    }
    let opaque = Opaque { endpoint: "tcp://127.0.0.1:1".into(), nonce: Opaque::nonce() };
    for size in [0, 300_000] {
        let bytes = opaque.encode(size);
        assert!(bytes.len() >= size);
        assert_eq!(Opaque::decode(&bytes), Some(opaque.clone()));
    }
    for bad in [&b""[..], b"AAEC", b"simkv x"] {
        assert_eq!(Opaque::decode(bad), None);
    }
}
