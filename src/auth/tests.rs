use tower_disagg::trtllm::SigningKey;

use super::{
    file::{MOST, key},
    watch::{Found, Known},
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

#[test]
fn a_file_shows_its_path_only() {
    let path = std::env::temp_dir().join(format!("disagg-auth-key-{}", std::process::id()));
    std::fs::write(&path, "CANARY").unwrap();
    let file = AuthKeyFile::read(path.clone()).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!((file.path(), file.key()), (&*path, &secret("CANARY")));
    let shown = format!("{file:?}");
    assert!(shown.contains("disagg-auth-key") && !shown.contains("CANARY"), "{shown}");
}
