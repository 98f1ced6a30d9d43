use super::*;
use proptest::prelude::*;

fn fields(status: &str) -> HeaderMap {
    let value = HeaderValue::from_str(status).unwrap();
    [(GRPC_STATUS, value)].into_iter().collect()
}

fn failed(mut outcome: Outcome, http: u16, status: Option<&str>) -> bool {
    if let Some(status) = status {
        outcome.read(&fields(status));
    }
    let http = StatusCode::from_u16(http).unwrap();
    outcome.has_failed(Some(http), FailedGrpcStatus::default())
}

#[test]
fn the_status_behind_the_messages_decides() {
    for (status, has_failed) in [
        ("0", false),
        ("1", false),
        ("2", true),
        ("3", false),
        ("4", true),
        ("5", false),
        ("7", false),
        ("8", true),
        ("12", false),
        ("13", true),
        ("14", true),
        ("15", true),
        ("16", false),
        // Nobody knows these: UNKNOWN.
        ("17", true),
        ("256", true),
        ("-1", true),
        ("", true),
        ("OK", true),
    ] {
        assert_eq!(failed(Outcome::Open, 200, Some(status)), has_failed, "{status:?}");
    }
}

#[test]
fn without_a_status_a_call_has_failed_but_by_what_http_says() {
    for (http, has_failed) in [
        (200, true),
        (400, true),
        (401, false),
        (403, false),
        (404, false),
        (418, true),
        (429, true),
        (500, true),
        (503, true),
    ] {
        assert_eq!(failed(Outcome::Open, http, None), has_failed, "{http}");
    }
    assert!(!failed(Outcome::NoCall, 200, Some("13")));
    assert!(!failed(Outcome::NoCall, 200, None));
}

#[test]
fn trailers_overrule_the_head() {
    let mut outcome = Outcome::Open;
    outcome.read(&fields("0"));
    outcome.read(&HeaderMap::new());
    assert_eq!(outcome, Outcome::Status(0));
    outcome.read(&fields("13"));
    assert_eq!(outcome, Outcome::Status(INTERNAL));
}

#[test]
fn calls_are_told_by_their_content_type() {
    let call = |method: &str, kind: &str| {
        let request = http::Request::builder()
            .method(method)
            .header("content-type", kind);
        is_call(&request.body(()).unwrap().into_parts().0)
    };
    for kind in [
        "application/grpc",
        "application/grpc+proto",
        "application/grpc;x=1",
    ] {
        assert!(call("POST", kind), "{kind}");
    }
    for kind in [
        "application/grpc-web",
        "application/grpc-web-text",
        "application/json",
        "",
    ] {
        assert!(!call("POST", kind), "{kind}");
    }
    assert!(!call("GET", "application/grpc"));
    assert!(!is_call(
        &http::Request::post("/").body(()).unwrap().into_parts().0
    ));
}

#[test]
fn the_gateways_own_answers_have_a_status() {
    for (status, code) in [
        (503, "14"),
        (502, "14"),
        (504, "4"),
        (408, "4"),
        (413, "8"),
        (431, "8"),
        (501, "12"),
        (400, "13"),
    ] {
        let fields = refusal(StatusCode::from_u16(status).unwrap(), "why");
        assert_eq!(fields["grpc-status"], code, "{status}");
        assert_eq!(fields["grpc-message"], "why");
        assert_eq!(fields["content-type"], "application/grpc");
    }
}

#[test]
fn statuses_are_names_or_codes() {
    let of = |words: &[&str]| {
        FailedGrpcStatus::try_from(words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
    };
    let some = of(&["unavailable", "1"]).unwrap();
    assert_eq!(Vec::from(some), ["CANCELLED", "UNAVAILABLE"]);
    assert_eq!(of(&[]).unwrap(), FailedGrpcStatus(0));
    for wrong in ["OK", "0", "17", "BROKEN", ""] {
        let error = of(&[wrong]).unwrap_err().to_string();
        assert!(
            error.contains(&format!("\"{wrong}\"")) && error.contains("UNAVAILABLE"),
            "{error}"
        );
    }
}

proptest! {
    #[test]
    fn what_is_written_reads_the_same(bits in 0u32..1 << 16) {
        let set = FailedGrpcStatus(bits << 1);
        prop_assert_eq!(FailedGrpcStatus::try_from(Vec::from(set)).unwrap(), set);
    }

    #[test]
    fn any_value_is_some_status(value in prop::collection::vec(any::<u8>(), 0..8)) {
        if let Ok(value) = HeaderValue::from_bytes(&value) {
            let mut outcome = Outcome::Open;
            outcome.read(&[(GRPC_STATUS, value)].into_iter().collect());
            prop_assert!(matches!(outcome, Outcome::Status(code) if usize::from(code) < NAMES.len()));
        }
    }
}
