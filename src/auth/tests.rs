use std::time::Duration;

use tokio::time::{Instant, advance, sleep};
use tower_disagg::{generation::SharedKey, trtllm::SigningKey};

use super::{
    file::{MOST, key, read},
    watch::{EVERY, Found, Known},
    *,
};

fn secret(text: &str) -> SigningKey {
    SigningKey::new(text).unwrap()
}

#[test]
fn one_line_end_is_not_part_of_the_key() {
    for (content, text) in [
        ("secret", "secret"),
        ("secret\n", "secret"),
        ("secret\r\n", "secret"),
        ("secret\n\n", "secret\n"),
        ("secret\r\n\r\n", "secret\r\n"),
        ("secret\r", "secret\r"),
        ("secret\r\r\n", "secret\r"),
        (" secret \n", " secret "),
        ("secret\t", "secret\t"),
        ("\nsecret", "\nsecret"),
        ("two\nlines\n", "two\nlines"),
        ("\n\n", "\n"),
        (" ", " "),
        ("schlüssel", "schlüssel"),
    ] {
        assert_eq!(key(content.as_bytes()), Ok(secret(text)), "{content:?}");
    }
}

#[test]
fn what_is_no_key() {
    let large = "k".repeat(MOST);
    assert_eq!(key(large.as_bytes()), Ok(secret(&large)));
    let larger = large + "k";
    for (content, why) in [
        (&b""[..], "empty"),
        (b"\n", "empty"),
        (b"\r\n", "empty"),
        (b"CANARY\xff", "UTF-8"),
        (b"\xff\xfeC\0A\0", "UTF-8"),
        (larger.as_bytes(), "larger than 65536 bytes"),
    ] {
        let error = key(content).unwrap_err().to_string();
        assert!(error.contains(why) && !error.contains("CANARY"), "{error}");
    }
}

#[test]
fn what_is_said_of_a_file_that_is_read_again() {
    let bad = |why: &'static str| key(if why == "empty" { b"" } else { b"\xff" });
    let error = |why| bad(why).unwrap_err();
    let mut known = Known::new(secret("one"));
    for (read, asked, found) in [
        (Ok(secret("one")), false, Found::Nothing),
        (Ok(secret("one")), true, Found::Same),
        (Ok(secret("two")), false, Found::Other(secret("two"))),
        (Ok(secret("two")), false, Found::Nothing),
        (Ok(secret("three")), true, Found::Other(secret("three"))),
        // trouble is said once, unless it changes or somebody asks
        (bad("empty"), false, Found::Bad(error("empty"))),
        (bad("empty"), false, Found::Nothing),
        (bad("empty"), true, Found::Bad(error("empty"))),
        (bad("encoding"), false, Found::Bad(error("encoding"))),
        (bad("encoding"), false, Found::Nothing),
        (Ok(secret("three")), false, Found::Same),
        (Ok(secret("three")), false, Found::Nothing),
        (bad("encoding"), false, Found::Bad(error("encoding"))),
        (Ok(secret("four")), false, Found::Other(secret("four"))),
        (Ok(secret("four")), false, Found::Nothing),
    ] {
        let told = format!("{read:?} {asked}");
        assert_eq!(known.learn(read, asked), found, "{told}");
    }
}

/// A file with a key, removed at the end of the test.
struct File(std::path::PathBuf);

impl File {
    fn new(name: &str, key: &str) -> Self {
        let path = std::env::temp_dir().join(format!("disagg-auth-key-{}-{name}", std::process::id()));
        std::fs::write(&path, key).unwrap();
        Self(path)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn a_file_shows_its_path_only() {
    let at = File::new("shown", "CANARY");
    let file = AuthKeyFile::read(at.0.clone()).unwrap();
    assert_eq!((file.path(), file.key()), (&*at.0, &secret("CANARY")));
    let shown = format!("{file:?}");
    assert!(shown.contains("disagg-auth-key") && !shown.contains("CANARY"), "{shown}");
}

/// A pipe that nobody writes to, and a link that leads to it and to a key in turn.
#[test]
fn a_pipe_in_the_place_of_the_file_holds_nobody_up() {
    use std::{fs, os::unix::fs::symlink, sync::mpsc, thread};

    let folder = std::env::temp_dir().join(format!("disagg-auth-pipe-{}", std::process::id()));
    fs::create_dir(&folder).unwrap();
    let [pipe, key, link, next] = ["pipe", "key", "link", "next"].map(|name| folder.join(name));
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    fs::write(&key, "one").unwrap();
    symlink(&key, &link).unwrap();

    let (done, end) = mpsc::channel();
    let reading = link.clone();
    thread::spawn(move || {
        let mut odd = None;
        for _ in 0..20_000 {
            let found = read(&reading).map_err(|error| error.to_string());
            if found != Ok(secret("one")) {
                odd = Some(found);
            }
        }
        let _ = done.send(odd);
    });
    let started = std::time::Instant::now();
    let mut swaps = [&pipe, &key].into_iter().cycle();
    let odd = loop {
        symlink(swaps.next().unwrap(), &next).unwrap();
        fs::rename(&next, &link).unwrap();
        match end.recv_timeout(Duration::ZERO) {
            Err(mpsc::RecvTimeoutError::Timeout) if started.elapsed() < Duration::from_secs(20) => {}
            end => break end,
        }
    };
    fs::remove_dir_all(&folder).unwrap();
    assert_eq!(odd, Ok(Some(Err("it is not a regular file".to_owned()))));
}

/// Waits until the key is this one; returns how long it took. The clock stands still while a file is read.
async fn until(shared: &SharedKey, text: &str) -> Duration {
    let start = Instant::now();
    while shared.current() != secret(text) {
        assert!(start.elapsed() < EVERY * 10, "the key is never replaced");
        sleep(Duration::from_millis(1)).await;
    }
    start.elapsed()
}

#[tokio::test(start_paused = true)]
async fn the_file_is_read_from_time_to_time_and_when_somebody_asks() {
    let file = File::new("watched", "one");
    let (shared, reload) = (SharedKey::new(secret("one")), Reload::default());
    let watching = tokio::spawn(watch(file.0.clone(), shared.clone(), reload.clone()));
    for text in ["two", "three", "four"] {
        std::fs::write(&file.0, text).unwrap();
        let took = until(&shared, text).await;
        assert!(took <= EVERY + Duration::from_millis(2), "{took:?}");
        std::fs::write(&file.0, "asked for").unwrap();
        reload.ask();
        let took = until(&shared, "asked for").await;
        assert!(took <= Duration::from_millis(2), "{took:?}");
    }
    // nobody's fault
    std::fs::write(&file.0, "").unwrap();
    advance(EVERY * 3).await;
    assert_eq!(shared.current(), secret("asked for"));
    assert!(!watching.is_finished());
    watching.abort();
}
