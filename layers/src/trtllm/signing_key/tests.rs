use super::*;
use crate::trtllm::signature::tests::message;

fn hex(mac: [u8; 32]) -> String {
    mac.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn signed(key: &str, info_endpoint: Option<&str>, opaque_state: Option<&str>) -> String {
    hex(SigningKey::new(key).unwrap().mac(&message(info_endpoint, opaque_state)))
}

/// The first two are those of contract, section 8. All were computed with Python 3, as
/// `hmac.new(key.encode(), json.dumps({...}, separators=(",", ":"), sort_keys=True).encode(), "sha256").hexdigest()`
/// where `{...}` has `json.loads` of the texts below.
#[test]
fn vectors() {
    let tcp = Some(r#""tcp://10.0.0.5:37771""#);
    let state = Some(r#""AAEC""#);
    let long = "k".repeat(65);
    #[rustfmt::skip]
    let cases = [
        ("secret", tcp, state, "c8630ed264cc1f1ddcb2b4506fdf769b993c9b69b5b9f761dfb7c36c39d2957c"),
        ("secret", None, state, "18d30bfdf728ae223c066a9c2c66f16e9cc45d365ee1cc8fbdb00c91b60c1a8e"),
        ("secret", Some(r#""""#), state, "ff6b2289e7ba746a3426bf4e274c630750fbe1216f7eee78fbfa8509b971a088"),
        ("secret", tcp, None, "44b6b17b9b24b6b388f0081206c44aa611434f3cc9af61795284b2c37ae55df7"),
        ("secret", tcp, Some(r#""""#), "f66f7745f9c4ab02e036f701994a87bf01d79f55a954b6475bc81a5ad35b505a"),
        // the same values as in the first, in other words
        ("secret", Some(r#""tcp:\/\/10.0.0.5:37771""#), Some(r#""\u0041AE\u0043""#),
            "c8630ed264cc1f1ddcb2b4506fdf769b993c9b69b5b9f761dfb7c36c39d2957c"),
        ("secret", Some(r#""a\"b\\c""#), Some(r#""\u0022\u005c\u005C""#),
            "af210f73ba85d68bc3deac974a91afa364d6edb209c08d327c5fd6c5c79fc7b7"),
        ("secret", Some(r#""\b\f\n\r\t""#), Some(r#""\u0008\u000C\u000a\u000D\u0009\u0000\u001f\u000b""#),
            "9653bfd9d22b620abbaf813f3d0a3aa77a25ca9ec81f7796e01a3b2f600276d3"),
        ("secret", Some("\"\u{7f}\u{80}\u{e9}\u{2028}\u{ffff}\""), Some(r#""\u007F\u0080\u00E9\u2028\uFFFF""#),
            "62b6f1a4c5a3f91b76473ac0bdb0c6c047cacd772de8a1f18b4468a6d3211759"),
        ("secret", Some("\"\u{1f600}x\u{10ffff}\""), Some(r#""\ud83d\ude00x\uDBFF\uDFFF""#),
            "8a45ab2fc77128150112f44b91dd75c0a751f63b8da6dd25c63a36b308af306a"),
        ("secret", Some(r#""\ud83d""#), Some(r#""\ude00 \uD83D\u0041\udfff""#),
            "6fc91f9d518efee44658e69bb0d390c75a145c60ad609529fbf8964140ed5a3e"),
        ("schlüssel 🔑", tcp, state, "9093d042f57afcca75228e5613b672bfa994eb7300338275da49e4b67cbcbcc8"),
        // as long as a block, and longer
        (&long[1..], tcp, state, "f598867a613c6b95606b97d2804eabd03a1ae1f537c7be59be4cb1d2db2829fa"),
        (&long, tcp, state, "96bd3d77c72129fe69ad4789f1c4fafd037bf6df56f7d93500cf34d608741318"),
        (" secret", tcp, state, "e3f5bb4390b626ced46a2d4c8550a25d95748cfa60f2e459e85dcb1014146c51"),
    ];
    for (key, info_endpoint, opaque_state, expected) in cases {
        assert_eq!(signed(key, info_endpoint, opaque_state), expected, "{info_endpoint:?} {opaque_state:?}");
    }
}

#[test]
fn vectors_of_large_states() {
    let tcp = Some(r#""tcp://10.0.0.5:37771""#);
    let ascii = format!("\"{}\"", &"QUFB".repeat(76_800));
    assert_eq!(
        signed("secret", tcp, Some(&ascii)),
        "b726b47a8a3be8c9929255cf7c9c981b527d8dc05ad417f19f2515a7ca90c004"
    );
    let other = format!("\"{}\"", "\u{e9}A".repeat(100_000));
    assert_eq!(
        signed("secret", None, Some(&other)),
        "f6c4536e637f96e667df03db85080194973afb0b3f3ab9f56e59e966a042151b"
    );
}

#[test]
fn keys_are_told_apart_and_not_shown() {
    let key = |text: &str| SigningKey::new(text).unwrap();
    assert_eq!(key("one"), key("one"));
    assert_eq!(key("one"), key("one").clone());
    assert_ne!(key("one"), key("two"));
    assert_ne!(key("one"), key("one\n"));
    assert_eq!(format!("{:?}", key("CANARY")), "SigningKey");
    assert_eq!(SigningKey::new("").unwrap_err().to_string(), "the key is empty");
}
