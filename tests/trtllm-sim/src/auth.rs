//! The signature on generation requests: HMAC-SHA256 over two members.
//!
//! Written out here, not taken from a crate, so that a sidecar and its test
//! engine do not share an implementation.

use crate::json::Value;

/// Whether a header signs these parameters with this key.
pub(crate) fn valid(key: &str, params: &Value, header: Option<&str>) -> bool {
    header.and_then(|header| header.strip_prefix("sha256=")) == Some(&signature(key, params))
}

/// The lower-case hex signature over the endpoint and the opaque state.
fn signature(key: &str, params: &Value) -> String {
    let member = |name| match params.get(name) {
        Some(Value::Str(text)) => ascii(text),
        _ => "null".to_owned(),
    };
    let message = format!(
        "{{\"ctx_info_endpoint\":{},\"encoded_opaque_state\":{}}}",
        member("ctx_info_endpoint"),
        member("encoded_opaque_state")
    );
    let digest = hmac(key.as_bytes(), message.as_bytes());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A JSON string as the worker's language writes it: everything but printable
/// ASCII is escaped, DEL included.
fn ascii(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\u{c}' => out.push_str("\\f"),
            '\r' => out.push_str("\\r"),
            ' '..='~' => out.push(c),
            _ => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    out.push_str(&format!("\\u{unit:04x}"));
                }
            }
        }
    }
    out.push('"');
    out
}

fn hmac(key: &[u8], message: &[u8]) -> [u8; 32] {
    let mut block = [0; 64];
    if key.len() > block.len() {
        block[..32].copy_from_slice(&sha256(key));
    } else {
        block[..key.len()].copy_from_slice(key);
    }
    let inner = sha256(&[&block.map(|b| b ^ 0x36)[..], message].concat());
    sha256(&[&block.map(|b| b ^ 0x5c)[..], &inner].concat())
}

const K: [u32; 64] = [
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
];

fn sha256(data: &[u8]) -> [u8; 32] {
    let mut state: [u32; 8] =
        [0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19];
    let mut padded = data.to_vec();
    padded.push(0x80);
    while padded.len() % 64 != 56 {
        padded.push(0);
    }
    padded.extend((data.len() as u64 * 8).to_be_bytes());
    for block in padded.as_chunks::<64>().0 {
        compress(&mut state, block);
    }
    let mut digest = [0; 32];
    for (out, word) in digest.as_chunks_mut::<4>().0.iter_mut().zip(state) {
        *out = word.to_be_bytes();
    }
    digest
}

fn compress(state: &mut [u32; 8], block: &[u8; 64]) {
    let mut w = [0_u32; 64];
    for (word, bytes) in w.iter_mut().zip(block.as_chunks::<4>().0) {
        *word = u32::from_be_bytes(*bytes);
    }
    for i in 16..64 {
        let a = w[i - 15];
        let b = w[i - 2];
        let s0 = a.rotate_right(7) ^ a.rotate_right(18) ^ (a >> 3);
        let s1 = b.rotate_right(17) ^ b.rotate_right(19) ^ (b >> 10);
        w[i] = w[i - 16].wrapping_add(s0).wrapping_add(w[i - 7]).wrapping_add(s1);
    }
    let mut v = *state;
    for (k, w) in K.into_iter().zip(w) {
        let [a, b, c, _, e, f, g, h] = v;
        let s1 = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
        let s0 = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
        let t1 = h.wrapping_add(s1).wrapping_add((e & f) ^ (!e & g)).wrapping_add(k).wrapping_add(w);
        let t2 = s0.wrapping_add((a & b) ^ (a & c) ^ (b & c));
        v.rotate_right(1);
        v[4] = v[4].wrapping_add(t1);
        v[0] = t1.wrapping_add(t2);
    }
    for (sum, word) in state.iter_mut().zip(v) {
        *sum = sum.wrapping_add(word);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vectors_of_the_contract() {
        let both = Value::obj([
            ("ctx_info_endpoint", Value::str("tcp://10.0.0.5:37771")),
            ("encoded_opaque_state", Value::str("AAEC")),
        ]);
        let state_only = Value::obj([("encoded_opaque_state", Value::str("AAEC"))]);
        // as Python signs them
        let controls = Value::obj([
            ("ctx_info_endpoint", Value::str("\u{8}\u{c}\n\r\t")),
            ("encoded_opaque_state", Value::str("\u{8}\u{c}\n\r\t\0\u{1f}\u{b}")),
        ]);
        let others = Value::obj([
            ("ctx_info_endpoint", Value::str("\u{7f}\u{80}\u{e9}\u{2028}\u{ffff}")),
            ("encoded_opaque_state", Value::str("\u{7f}\u{80}\u{e9}\u{2028}\u{ffff}")),
        ]);
        for (params, hex) in [
            (both, "c8630ed264cc1f1ddcb2b4506fdf769b993c9b69b5b9f761dfb7c36c39d2957c"),
            (state_only, "18d30bfdf728ae223c066a9c2c66f16e9cc45d365ee1cc8fbdb00c91b60c1a8e"),
            (controls, "9653bfd9d22b620abbaf813f3d0a3aa77a25ca9ec81f7796e01a3b2f600276d3"),
            (others, "62b6f1a4c5a3f91b76473ac0bdb0c6c047cacd772de8a1f18b4468a6d3211759"),
        ] {
            assert_eq!(signature("secret", &params), hex);
            assert!(valid("secret", &params, Some(&format!("sha256={hex}"))));
            assert!(!valid("other", &params, Some(&format!("sha256={hex}"))));
            assert!(!valid("secret", &params, Some(hex)));
            assert!(!valid("secret", &params, None));
        }
    }
}
