use http::Method;

use super::*;
use crate::names::Names;
use crate::response_head::{Reading, parse};

fn fields(text: &str) -> Fields {
    let data = Bytes::from(format!("HTTP/1.1 200 OK\r\n{text}\r\n"));
    let parsed = parse(&data, &Method::GET, 100, Reading::Lines, &mut Names::default());
    parsed.unwrap().unwrap().0.fields
}

fn is_lines(fields: &Fields) -> bool {
    matches!(fields.0, Form::Lines(_))
}

fn written(fields: &mut Fields, with_length: bool) -> (String, Told) {
    let mut out = Vec::new();
    let told = fields.write(&mut out, with_length);
    (String::from_utf8(out).unwrap(), told)
}

#[test]
fn lines_go_on_as_they_came_without_those_that_end_here() {
    let came = "Server: x\r\nDATE:  today \r\nConnection: keep-alive\r\nKeep-Alive: 5\r\nContent-Length: 7\r\nETag: \"a\"\r\n";
    let mut fields = fields(&came.replace("today ", "today"));
    assert!(is_lines(&fields));
    fields.add_via(false);
    let (text, told) = written(&mut fields, true);
    let sent = "Server: x\r\nDATE:  today\r\nContent-Length: 7\r\nETag: \"a\"\r\nvia: 1.1 headroom\r\n";
    assert_eq!(text, sent);
    let all = Told {
        has_date: true,
        length: Some(7),
    };
    assert_eq!(told, all);
    assert_eq!(fields.map()["date"], "today");
    assert_eq!(fields.map()["via"], "1.1 headroom");
    assert_eq!(fields.map().len(), 5);
    let (again, told) = written(&mut fields, true);
    assert_eq!((again.matches("\r\n").count(), told), (5, all));
}

#[test]
fn an_answer_without_content_is_sent_no_length() {
    let mut fields = fields("content-length: 7\r\nx: y\r\n");
    let (text, told) = written(&mut fields, false);
    assert_eq!((text.as_str(), told), ("x: y\r\n", Told::default()));
}

#[test]
fn what_can_be_read_in_two_ways_is_read_and_written_anew() {
    for (odd, sent) in [
        ("a : b\r\n", "a: b\r\n"),
        ("a: b \t\r\n", "a: b\r\n"),
        ("a: b\n", "a: b\r\n"),
        ("a: b\r\nconnection: a\r\nc: d\r\n", "c: d\r\n"),
        (
            "content-length: 3\r\nContent-Length: 3\r\n",
            "content-length: 3\r\n",
        ),
    ] {
        let mut fields = fields(odd);
        assert!(!is_lines(&fields), "{odd:?}");
        assert_eq!(written(&mut fields, true).0, sent, "{odd:?}");
    }
    let gaps = "a: b\r\nte: x\r\n".repeat(RUNS);
    assert!(is_lines(&fields(&gaps)));
    let mut more = fields(&gaps.repeat(2));
    assert!(!is_lines(&more), "so many parts are not kept");
    assert_eq!(written(&mut more, true).0, "a: b\r\n".repeat(2 * RUNS));
}

#[test]
fn the_kind_is_that_of_the_first_of_its_fields() {
    assert_eq!(
        fields("Content-type:text/html\r\n").kind(),
        Some(&b"text/html"[..])
    );
    assert_eq!(fields("x: y\r\n").kind(), None);
    let mut two = fields("content-type: a\r\ncontent-type: b\r\n");
    assert_eq!(two.kind(), Some(&b"a"[..]));
    two.map();
    assert_eq!(two.kind(), Some(&b"a"[..]));
}

#[test]
fn another_via_is_behind_that_which_came() {
    let mut fields = fields("via: 1.0 x\r\n");
    fields.add_via(false);
    assert_eq!(
        written(&mut fields, true).0,
        "via: 1.0 x\r\nvia: 1.1 headroom\r\n"
    );
    let all: Vec<_> = fields.map().get_all("via").iter().collect();
    assert_eq!(all, ["1.0 x", "1.1 headroom"]);
}
