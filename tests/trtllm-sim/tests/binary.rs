//! The program: its line, its signals, its exit codes.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trtllm-sim"));
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn line(child: &mut Child) -> String {
    let mut line = String::new();
    let stdout = child.stdout.as_mut().unwrap();
    BufReader::new(stdout).read_line(&mut line).unwrap();
    line
}

#[test]
fn it_says_where_it_listens_and_ends_on_a_signal() {
    for signal in ["-TERM", "-INT"] {
        let mut child = program()
            .args(["--role", "context", "--release", "1.3.0rc22", "--token-gap", "1ms"])
            .spawn()
            .unwrap();
        let line = line(&mut child);
        let rest = line.strip_prefix("trtllm-sim listening on ").unwrap();
        let (addr, rest) = rest.split_once(' ').unwrap();
        assert_eq!(rest, "role=context release=1.3.0rc22\n");
        let mut stream = TcpStream::connect(addr).unwrap();
        stream.write_all(b"GET /version HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        assert!(reply.ends_with(r#"{"version":"1.3.0rc22"}"#));
        let pid = child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
        assert!(child.wait().unwrap().success());
    }
}

#[test]
fn bad_flags_are_code_2() {
    for args in [
        &["--role", "decoder"][..],
        &[],
        &["--role", "both", "--release", "latest"],
        &["--role", "both", "--generation", "g9"],
        &["--role", "both", "--port", "70000"],
        &["--role", "both", "--token-gap", "soon"],
        &["--role", "both", "--ranks", "0"],
    ] {
        let output = program().args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(output.stdout.is_empty());
    }
    assert!(program().arg("--help").output().unwrap().status.success());
}

#[test]
fn a_port_in_use_is_code_1() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let output = program().args(["--role", "both", "--port", &port]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
}
