use bytes::Bytes;

use super::*;

fn object(text: &str) -> Object {
    Object::parse(Bytes::copy_from_slice(text.as_bytes())).unwrap()
}

#[test]
fn neighbours_that_stay_are_one_slice() {
    let body = object(r#"{ "a" : 1 ,  "b":[2], "c":"x","d":null }"#);
    let out = body.edit().remove("c").finish();
    assert_eq!(out.to_bytes(), &br#"{"a" : 1 ,  "b":[2],"d":null}"#[..]);
    assert_eq!(out.parts().len(), 5);
}
