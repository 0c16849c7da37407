use std::{collections::BTreeSet, time::Duration};

use clap::CommandFactory;
use tower_disagg::trtllm::ContextEndpoint;

use super::*;

fn parse<const N: usize>(flags: [&str; N]) -> Result<Config, ConfigError> {
    Config::from_args(flags)
}

/// A file with `text`, removed at the end of the test.
struct TempFile(std::path::PathBuf);

impl TempFile {
    fn new(text: &str) -> Self {
        use std::sync::atomic::{AtomicU32, Ordering};
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name =
            format!("disagg-sidecar-{}-{}.toml", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, text).unwrap();
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn clap_accepts_the_definition() {
    Config::command().debug_assert();
}

#[test]
fn the_interface_is_the_documented_one() {
    let expected = [
        ("admin-listen", Some("0.0.0.0:9090")),
        ("allow-context", None),
        ("auth-key-file", None),
        ("config", None),
        ("connect-timeout", Some("5s")),
        ("context-retries", Some("1")),
        ("context-timeout", Some("180s")),
        ("conversation-from", None),
        ("drain-grace", Some("0s")),
        ("drain-timeout", Some("30s")),
        ("engine-version", Some("auto")),
        ("generation-head-timeout", Some("180s")),
        ("generation-idle-timeout", Some("300s")),
        ("generation-url", Some("http://127.0.0.1:8001")),
        ("listen", Some("0.0.0.0:8000")),
        ("log", Some("info")),
        ("log-format", None),
        ("machine-id", None),
        ("max-buffered-bytes", Some("1GiB")),
        ("max-in-flight", Some("4096")),
        ("max-reply-bytes", Some("64MiB")),
        ("max-request-bytes", Some("32MiB")),
        ("node-id", None),
        ("passthrough", Some("guarded")),
        ("process-id", None),
        ("request-body-timeout", Some("30s")),
        ("settle", Some("on")),
        ("settle-timeout", Some("30s")),
    ];
    let mut command = Config::command();
    command.build();
    let found: BTreeSet<_> = command
        .get_arguments()
        .filter(|arg| file::is_setting(arg))
        .map(|arg| {
            let default = arg.get_default_values().first().map(|value| value.to_str().unwrap().to_owned());
            (arg.get_long().unwrap().to_owned(), default)
        })
        .collect();
    let expected = expected.map(|(flag, default)| (flag.to_owned(), default.map(str::to_owned)));
    assert_eq!(found, expected.into());
}

#[test]
fn environment_names_follow_the_flags() {
    let command = Config::command();
    for arg in command.get_arguments().filter(|arg| file::is_setting(arg)) {
        let flag = arg.get_long().unwrap();
        let expected = format!("DISAGG_{}", flag.to_uppercase().replace('-', "_"));
        assert_eq!(arg.get_env().and_then(|name| name.to_str()), Some(&*expected), "--{flag}");
        assert!(arg.get_help().is_some(), "--{flag} has no help");
    }
}

#[test]
fn every_flag_is_a_key_of_the_file() {
    let mut command = Config::command();
    command.build();
    for arg in command.get_arguments().filter(|arg| file::is_setting(arg)) {
        let flag = arg.get_long().unwrap();
        let result = file::apply(Config::command(), &format!("{flag} = \"x\""));
        assert_eq!(result.is_ok(), flag != "config", "{flag}");
    }
}

#[test]
fn a_flag_beats_the_file_and_the_file_beats_the_default() {
    let file = TempFile::new(
        "max-in-flight = 7\ncontext-timeout = \"7s\"\nallow-context = [\"a:1\", \"b:2\"]\nsettle = \"off\"\nnode-id = 1\nprocess-id = 2",
    );
    let config = parse(["--config", file.path(), "--context-timeout", "9s"]).unwrap();
    assert_eq!(config.max_in_flight, 7);
    assert_eq!(config.context_timeout, Duration::from_secs(9));
    assert_eq!(config.connect_timeout, Duration::from_secs(5));
    assert_eq!(config.settle, Switch::Off);
    assert_eq!((config.node_id, config.process_id), (Some(1), Some(2)));
    let allowed: Vec<_> = config.allow_context.iter().map(ToString::to_string).collect();
    assert_eq!(allowed, ["a:1", "b:2"]);
    let config = parse(["--config", file.path(), "--allow-context", "c:3"]).unwrap();
    assert_eq!(config.allow_context, ["c:3".parse().unwrap()], "a list is replaced, not added to");
}

#[test]
fn the_environment_beats_the_file() {
    // a variable that always exists stands for one of ours, so that no test changes the environment
    let file = TempFile::new("max-in-flight = 7\ncontext-retries = 99");
    let command = Config::command().mut_args(|arg| match arg.get_long() {
        Some("context-retries") => arg.env("CARGO_PKG_VERSION_MINOR"),
        _ => arg.env(None::<&str>),
    });
    let args = ["disagg-sidecar", "--config", file.path()];
    let config = read(command, args.map(Into::into).into()).unwrap();
    assert_eq!(config.context_retries.to_string(), std::env::var("CARGO_PKG_VERSION_MINOR").unwrap());
    assert_eq!(config.max_in_flight, 7);
}

#[test]
fn bad_settings_are_refused_by_name() {
    #[rustfmt::skip]
    let cases: &[(&[&str], &str)] = &[
        (&["--no-such-flag"], "--no-such-flag"),
        (&["--auth-key-file", "/no/such/key"], "--auth-key-file"),
        (&["--auth-key-file", "/no/such/key"], "/no/such/key"),
        (&["--auth-key-file", "/"], "not a regular file"),
        (&["--auth-key-file", "/dev/null"], "not a regular file"),
        (&["--auth-key-file", ""], "--auth-key-file"),
        (&["positional"], "positional"),
        (&["--context-timeout", "soon"], "--context-timeout"),
        (&["--context-timeout", "0s"], "--context-timeout"),
        (&["--context-timeout", "2years"], "--context-timeout"),
        (&["--max-request-bytes", "many"], "--max-request-bytes"),
        (&["--max-request-bytes", "0"], "--max-request-bytes"),
        (&["--max-in-flight", "0"], "--max-in-flight"),
        (&["--listen", "nowhere"], "--listen"),
        (&["--generation-url", "not a url"], "--generation-url"),
        (&["--generation-url", "https://h:1"], "--generation-url"),
        (&["--generation-url", "http://h:1/path"], "--generation-url"),
        (&["--generation-url", "http://h:1?q"], "--generation-url"),
        (&["--generation-url", "http://u@h:1"], "--generation-url"),
        (&["--generation-url", "http://h:0"], "--generation-url"),
        (&["--generation-url", "http://h:x"], "--generation-url"),
        (&["--generation-url", "h:1"], "--generation-url"),
        (&["--engine-version", "new"], "--engine-version"),
        (&["--engine-version", "1.2.0"], "--engine-version"),
        (&["--allow-context", "no-port"], "--allow-context"),
        (&["--passthrough", "maybe"], "--passthrough"),
        (&["--settle", "maybe"], "--settle"),
        (&["--conversation-from", "x-session-id"], "header:NAME or body:/POINTER"),
        (&["--conversation-from", "header:x y"], "--conversation-from"),
        (&["--conversation-from", "body:user"], "starts with a slash"),
        (&["--conversation-from", "body:/user,x"], "--conversation-from"),
        (&["--conversation-from", ""], "--conversation-from"),
        (&["--context-retries=-1"], "--context-retries"),
        (&["--node-id", "256", "--process-id", "0"], "--node-id"),
        (&["--node-id", "1", "--process-id", "64"], "--process-id"),
        (&["--node-id", "1"], "--process-id"),
        (&["--process-id", "1"], "--node-id"),
        (&["--machine-id", "1021"], "--machine-id"),
        (&["--machine-id", "1", "--node-id", "1", "--process-id", "1"], "--machine-id"),
        (&["--allow-context", ""], "--allow-context"),
        (&["--log", "a=b=c"], "--log"),
        (&["--log", ""], "--log"),
        (&["--log", "foo"], "--log"),
        (&["--log", "info,foo"], "--log"),
        (&["--log-format", "xml"], "--log-format"),
        (&["--config", "/no/such/file"], "/no/such/file"),
    ];
    for (flags, name) in cases {
        let error = Config::from_args(*flags).expect_err(&format!("{flags:?} was accepted"));
        assert!(error.to_string().contains(name), "{flags:?}: {error}");
        assert_eq!(error.0.exit_code(), 2, "{flags:?}");
    }
}

#[test]
fn bad_files_are_refused_by_name() {
    let cases = [
        ("no-such-key = 1", "no-such-key"),
        ("context_timeout = \"1s\"", "context_timeout"),
        ("config = \"other\"", "config"),
        ("help = \"x\"", "help"),
        ("context-timeout = \"soon\"", "--context-timeout"),
        ("context-timeout = 1.5", "context-timeout"),
        ("context-timeout = [\"1s\"]", "context-timeout"),
        ("allow-context = [1.5]", "allow-context"),
        ("allow-context = []", "allow-context"),
        ("allow-context = \"\"", "allow-context"),
        ("node-id = 1", "--process-id"),
        ("node-id =", "TOML"),
        ("auth-key-file = \"/no/such/key\"", "--auth-key-file"),
    ];
    for (text, name) in cases {
        let file = TempFile::new(text);
        let error = parse(["--config", file.path()]).expect_err(&format!("{text:?} was accepted"));
        assert!(error.to_string().contains(name), "{text:?}: {error}");
        assert_eq!(error.0.exit_code(), 2, "{text:?}");
    }
}

#[test]
fn help_is_no_error() {
    let error = parse(["--help"]).unwrap_err();
    assert_eq!(error.0.exit_code(), 0);
    for text in ["--context-timeout <TIME>", "Workers:", "[default: 180s]", "DISAGG_"] {
        assert!(error.to_string().contains(text), "{text}: {error}");
    }
}

#[test]
fn values() {
    let config =
        parse(["--max-request-bytes", "1KiB", "--max-reply-bytes", "2k", "--drain-timeout", "0s"]).unwrap();
    assert_eq!((config.max_request_bytes, config.max_reply_bytes), (1024, 2048));
    assert_eq!(config.drain_timeout, Duration::ZERO);
    let config = parse(["--generation-url", "http://[::1]:8001/", "--engine-version", "1.3.0rc24"]).unwrap();
    assert_eq!(config.generation_url.uri().authority().unwrap(), "[::1]:8001");
    assert!(matches!(config.engine_version, EngineVersion::Pinned(_)));
    assert_eq!(parse([]).unwrap().engine_version, EngineVersion::Auto);
    for filter in
        ["off", "Debug", "info,disagg_sidecar=debug", "tower_disagg=trace", "[settle]=debug", "warn,"]
    {
        assert_eq!(parse(["--log", filter]).unwrap().log.as_str(), filter);
    }
}

#[test]
fn key_files() {
    assert!(parse([]).unwrap().auth_key_file.is_none());
    let key = TempFile::new("CANARY\n");
    let file = TempFile::new(&format!("auth-key-file = {:?}", key.path()));
    for flags in [["--auth-key-file", key.path()], ["--config", file.path()]] {
        let config = parse(flags).unwrap();
        assert_eq!(config.auth_key_file.as_ref().unwrap().path().to_str(), Some(key.path()));
        assert!(!format!("{config:?}").contains("CANARY"));
    }
    let bad = TempFile::new("CANARY");
    for (content, why) in
        [(&b"CANARY\xff"[..], "UTF-8"), (&[b'C'; (64 << 10) + 1], "larger"), (b"\n", "empty")]
    {
        std::fs::write(&bad.0, content).unwrap();
        let file = TempFile::new(&format!("auth-key-file = {:?}", bad.path()));
        for flags in [["--auth-key-file", bad.path()], ["--config", file.path()]] {
            let error = parse(flags).unwrap_err();
            assert_eq!(error.0.exit_code(), 2);
            let text = error.to_string();
            for said in ["--auth-key-file", bad.path(), why] {
                assert!(text.contains(said), "{said}: {text}");
            }
            assert!(!text.contains("CC") && !text.contains("CANARY"), "{text}");
        }
    }
}

#[test]
fn conversation_sources() {
    let config = parse(["--conversation-from", "header:X-A,body:/b/c", "--conversation-from", "header:x-d"]);
    let written: Vec<_> = config.unwrap().conversation_from.iter().map(ToString::to_string).collect();
    assert_eq!(written, ["header:x-a", "body:/b/c", "header:x-d"]);
    let file = TempFile::new("conversation-from = [\"header:x-a\", \"body:/b\"]");
    assert_eq!(parse(["--config", file.path()]).unwrap().conversation_from.len(), 2);
    assert_eq!(parse([]).unwrap().conversation_from, []);
}

#[test]
fn a_pinned_release_has_to_keep_conversations_when_that_is_asked_for() {
    const ASKED: [&str; 2] = ["--conversation-from", "header:x-a"];
    for (release, able) in [
        ("1.3.0rc3", false),
        ("1.3.0rc20", false),
        ("1.3.0rc20.post1", false),
        ("1.3.0rc21", true),
        ("1.4.0rc1", true),
        ("auto", true),
    ] {
        let pinned = ["--engine-version", release];
        assert!(Config::from_args(pinned).is_ok(), "{release}: nothing is asked for");
        match Config::from_args([ASKED, pinned].concat()) {
            Ok(_) => assert!(able, "{release}"),
            Err(error) => {
                assert!(!able, "{release}: {error}");
                assert_eq!(error.0.exit_code(), 2);
                let text = error.to_string();
                for part in ["--conversation-from", "1.3.0rc21", &format!("--engine-version is {release}")] {
                    assert!(text.contains(part), "{text}");
                }
            }
        }
    }
    // From the file, where clap takes them for defaults.
    let file = TempFile::new("conversation-from = \"body:/user\"\nengine-version = \"1.3.0rc20\"");
    let error = parse(["--config", file.path()]).unwrap_err().to_string();
    assert!(error.contains("--conversation-from needs"), "{error}");
}

#[test]
fn allow_list() {
    use allow::Allowed::{No, Yes};
    #[rustfmt::skip]
    let cases: &[(&str, allow::Allowed, &[&str])] = &[
        ("127.0.0.1:8001", Yes, &["127.0.0.1:8001"]),
        ("127.0.0.1:8001", No, &["127.0.0.1:9090", "localhost:8001", "LOCALHOST:8001", "[::ffff:127.0.0.1]:8001",
            "127.0.0.2:8001", "127.0.0.1.evil.test:8001", "169.254.169.254:80"]),
        ("[::1]:1", Yes, &["[::1]:1", "[0:0::1]:1"]),
        ("[::1]:1", No, &["[::1]:2", "127.0.0.1:1", "localhost:1", "[::ffff:127.0.0.1]:1"]),
        ("Host.Test:1", Yes, &["host.test:1", "HOST.TEST:1"]),
        ("Host.Test:1", No, &["host.test:2", "a.host.test:1", "host.testx:1", "host.test.:1", "10.0.0.1:1"]),
        ("*.pods.test:80", Yes, &["a.pods.test:80", "a.b.PODS.test:80", "a.pods.test.:80"]),
        ("*.pods.test:80", No, &["pods.test:80", "xpods.test:80", "a.pods.testx:80", "a.pods.test:81", "10.0.0.1:80"]),
        ("10.0.0.0/8:8000-8010", Yes, &["10.1.2.3:8000", "10.255.0.1:8010"]),
        ("10.0.0.0/8:8000-8010", No, &["10.1.2.3:7999", "10.1.2.3:8011", "11.0.0.1:8000", "[::ffff:10.1.2.3]:8000",
            "169.254.169.254:8000", "ten.test:7999", "ten.test:8011"]),
        ("10.0.0.0/8:8000-8010", No, &["ten.test:8000", "TEN.test.:8010", "a:8005", "10.0.0.1.test:8000"]),
        ("10.0.0.7/32:1", Yes, &["10.0.0.7:1"]),
        ("10.0.0.7/32:1", No, &["10.0.0.8:1"]),
        ("0.0.0.0/0:1", Yes, &["10.0.0.7:1"]),
        ("0.0.0.0/0:1", No, &["[::1]:1", "[::ffff:10.0.0.7]:1", "a.test:2"]),
        ("fd00::/8:1", Yes, &["[fd00::1]:1"]),
        ("fd00::/8:1", No, &["[fe80::1]:1", "10.0.0.1:1"]),
        ("fd00::/8:1", No, &["a.test:1"]),
        ("::/0:1", Yes, &["[2001:db8::1]:1"]),
        ("::/0:1", No, &["[::ffff:10.0.0.1]:1", "10.0.0.1:1"]),
        ("::ffff:10.0.0.0/104:1", Yes, &["[::ffff:10.0.0.1]:1"]),
        ("::ffff:10.0.0.0/104:1", No, &["10.0.0.1:1", "[::ffff:11.0.0.1]:1"]),
        ("[fd00::]/8:1-2", Yes, &["[fd00:0:0::1]:2"]),
        ("[fd00::]/8:1-2", No, &["[fd00::1]:3"]),
    ];
    for (entry, expected, endpoints) in cases {
        let entry: AllowEntry = entry.parse().unwrap();
        for text in *endpoints {
            let endpoint: ContextEndpoint = text.parse().unwrap();
            assert_eq!(allow::allowed(std::slice::from_ref(&entry), &endpoint), *expected, "{entry}: {text}");
            assert_eq!(entry.allows(&endpoint), *expected == Yes, "{entry}: {text}");
        }
        assert_eq!(entry.to_string().parse::<AllowEntry>().unwrap(), entry);
    }
}

#[test]
fn what_a_name_resolves_to() {
    // entries; addresses that were found; where the endpoint may be called, at port 8000
    #[rustfmt::skip]
    let cases: &[(&[&str], &[&str], &[&str])] = &[
        (&["10.0.0.0/8:8000"], &["10.1.2.3:0"], &["10.1.2.3:8000"]),
        (&["10.0.0.0/8:7999-8001"], &["10.1.2.3:0", "10.1.2.4:0"], &["10.1.2.3:8000", "10.1.2.4:8000"]),
        (&["10.0.0.0/8:8000"], &["11.0.0.1:0", "10.1.2.3:0", "169.254.169.254:0"], &["10.1.2.3:8000"]),
        (&["10.0.0.0/8:8000"], &["169.254.169.254:0", "[::1]:0", "[fd00::1]:0"], &[]),
        (&["10.0.0.0/8:8000"], &[], &[]),
        (&["10.0.0.0/8:8001"], &["10.1.2.3:0"], &[]),
        // the port that counts is the endpoint's
        (&["10.0.0.0/8:8001"], &["10.1.2.3:8001"], &[]),
        // each entry for its own addresses
        (&["10.0.0.0/8:8000", "fd00::/8:8000"], &["[fd00::1]:0", "10.1.2.3:0"], &["[fd00::1]:8000", "10.1.2.3:8000"]),
        (&["10.0.0.0/8:8001", "fd00::/8:8000"], &["[fd00::1]:0", "10.1.2.3:0"], &["[fd00::1]:8000"]),
        // IPv4 in the form of IPv6 is IPv4, and is dialled as such
        (&["10.0.0.0/8:8000"], &["[::ffff:10.1.2.3]:0"], &["10.1.2.3:8000"]),
        (&["10.0.0.0/8:8000"], &["[::ffff:169.254.169.254]:0"], &[]),
        (&["::/0:8000"], &["[::ffff:169.254.169.254]:0", "169.254.169.254:0"], &[]),
        (&["::ffff:0:0/96:8000"], &["[::ffff:169.254.169.254]:0", "169.254.169.254:0"], &[]),
        (&["::/0:8000"], &["[2001:db8::1]:0"], &["[2001:db8::1]:8000"]),
        // a scope says where an address is, not which
        (&["fe80::/10:8000"], &["[fe80::1%3]:0"], &["[fe80::1%3]:8000"]),
        (&["fd00::/8:8000"], &["[fe80::1%3]:0"], &[]),
        // names and single endpoints are no networks
        (&["10.1.2.3:8000", "*.test:8000", "a.test:8000"], &["10.1.2.3:0"], &[]),
    ];
    for (entries, found, expected) in cases {
        let entries: Vec<AllowEntry> = entries.iter().map(|entry| entry.parse().unwrap()).collect();
        let addresses = |list: &[&str]| list.iter().map(|text| text.parse().unwrap()).collect::<Vec<_>>();
        let dialled: Vec<_> = allow::resolved(&entries, 8000, &addresses(found)).collect();
        assert_eq!(dialled, addresses(expected), "{entries:?}: {found:?}");
    }
}

#[test]
fn an_address_that_was_resolved_is_checked_in_its_normal_form() {
    for (entry, address, expected) in [
        ("10.0.0.0/8:1-2", "10.1.2.3:2", true),
        ("10.0.0.0/8:1-2", "10.1.2.3:3", false),
        ("10.0.0.0/8:1-2", "[::ffff:10.1.2.3]:2", true),
        ("10.0.0.0/8:1-2", "[::ffff:169.254.169.254]:2", false),
        ("::/0:1", "[::ffff:169.254.169.254]:1", false),
        ("::/0:1", "[fe80::1%7]:1", true),
        ("10.1.2.3:1", "10.1.2.3:1", false),
    ] {
        let entry: AllowEntry = entry.parse().unwrap();
        assert_eq!(entry.allows_resolved(address.parse().unwrap()), expected, "{entry}: {address}");
    }
}

#[test]
fn malformed_entries_are_refused() {
    for text in [
        "",
        "h",
        "h:",
        "h:0",
        "h:65536",
        "h:+1",
        "h:1-2",
        "*:1",
        "*.:1",
        "*a.test:1",
        "a.*.test:1",
        "*.10.0.0.1:1",
        "10.0.0.0/33:1",
        "10.0.0.0/+8:1",
        "10.0.0.0/8",
        "10.0.0.0/8:",
        "10.0.0.0/8:2-1",
        "10.0.0.0/8:0-5",
        "10.0.0.0/8:1-",
        "h/8:1",
        "[10.0.0.0]/8:1",
        "http://h:1",
        "h:1,",
        " h:1",
    ] {
        assert!(text.parse::<AllowEntry>().is_err(), "{text:?} is accepted");
    }
}

#[test]
fn a_list_allows_what_one_of_its_entries_allows() {
    use allow::Allowed::{ByAddress, No, Yes};
    for (entries, expected) in [
        (&[][..], Yes),
        (&["h:2"], No),
        (&["h:2", "h:1"], Yes),
        // no network lets a name through
        (&["h:2", "10.0.0.0/8:2"], No),
        (&["h:2", "0.0.0.0/0:1"], No),
        // but networks bound where a name that is listed may lead, when there are any for its port
        (&["10.0.0.0/8:1", "h:1"], ByAddress),
        (&["10.0.0.0/8:2", "h:1", "fd00::/8:1-3"], ByAddress),
        (&["10.0.0.0/8:2-9", "h:1"], Yes),
    ] {
        let entries: Vec<AllowEntry> = entries.iter().map(|entry| entry.parse().unwrap()).collect();
        assert_eq!(allow::allowed(&entries, &"h:1".parse().unwrap()), expected, "{entries:?}");
    }
}
