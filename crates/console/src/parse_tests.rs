use super::*;
use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    slo: Inner,
    #[serde(rename = "service")]
    _service: Inner,
    #[serde(default, rename = "list")]
    _list: Vec<Inner>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Inner {
    #[serde(rename = "name")]
    _name: String,
    #[serde(default)]
    most: u32,
}

/// The mistakes of a text, a line each, without the hint that all have.
fn mistakes(text: &str) -> Vec<String> {
    let document = Document::shipped("m.toml", text);
    let small = |file: &File, found: &mut Mistakes| {
        found.of(document.within(&[("slo.most", f64::from(file.slo.most), 0.0, 5.0)]));
        if !document.has("slo", "least") {
            found.push(document.error("slo.least", "is not given"));
        }
    };
    let errors = document.parse_checked::<File>("up", small).err();
    let hint = ". `headroom up --example` prints every key with its meaning";
    let errors = errors.iter().flat_map(ConfigErrors::iter);
    errors.map(|error| error.to_string().replace(hint, "")).collect()
}

#[test]
fn an_error_names_the_key_that_it_is_about() {
    for (text, wanted) in [
        (
            "[slo]\nname = \"a\"\n",
            "service: is missing: add the table `[service]` with its keys",
        ),
        (
            "\n[slo]\nname = \"a\"\n",
            "service: is missing: add the table `[service]` with its keys",
        ),
        ("", "slo: is missing: add the table `[slo]` with its keys"),
        (
            "[slo]\n[service]\nname = \"a\"",
            "m.toml:1: slo.name: is missing: add it to `slo`, in `[slo]`",
        ),
        ("[slo]\nname = 1\n", "m.toml:2: slo.name: invalid type"),
        ("slo.name = 1\n", "m.toml:1: slo.name: invalid type"),
        (
            "[slo]\nnames = \"a\"\n",
            "m.toml:2: slo.names: unknown field `names`",
        ),
        ("[slo\n", "m.toml:1: "),
    ] {
        let found = mistakes(text);
        assert!(
            found.len() == 1 && found[0].contains(wanted),
            "{text:?}: {found:?}"
        );
    }
}

#[test]
fn every_key_that_is_wrong_is_said_and_what_follows_from_it_is_not() {
    let found = mistakes(
        "[slo]\nname = 3\nmost = 9\nlowest = 1\n[service]\nname = \"a\"\nmust = 1\n[[list]]\nname = \"b\"\nnme = 1\n[[list]]\nname = 5\n\
         [more]\n",
    );
    let wanted = [
        "m.toml:2: slo.name: invalid type: integer `3`, expected a string",
        "m.toml:4: slo.lowest: unknown field `lowest`",
        "m.toml:7: service.must: unknown field `must`",
        "m.toml:10: list[0].nme: unknown field `nme`",
        "m.toml:12: list[1].name: invalid type",
        "m.toml:13: more: unknown field `more`",
    ];
    assert_eq!(found.len(), wanted.len(), "{found:#?}");
    for (found, wanted) in found.iter().zip(wanted) {
        assert!(found.starts_with(wanted), "{found}");
    }
}

#[test]
fn what_is_understood_is_checked_beside_what_is_not() {
    // `least` may be what `lest` was to be; what is written is judged all the same.
    let found = mistakes("[slo]\nname = \"a\"\nmost = 9\nlest = 1\n[service]\nname = \"b\"\n");
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].starts_with("m.toml:3: slo.most: is 9.0"), "{found:?}");
    assert!(
        found[1].starts_with("m.toml:4: slo.lest: unknown field"),
        "{found:?}"
    );
    let found = mistakes("[slo]\nname = \"a\"\nmost = 9\n[service]\nname = \"b\"\n");
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].ends_with("slo.least: is not given"), "{found:?}");
}

#[test]
fn a_text_for_a_number_is_answered_with_the_number() {
    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Times {
        #[serde(rename = "wait_ms")]
        _wait_ms: Option<u64>,
        #[serde(rename = "length_s")]
        _length_s: Option<f64>,
        #[serde(rename = "age_days")]
        _age_days: Option<f64>,
        #[serde(rename = "most_percent")]
        _most_percent: Option<f64>,
    }
    let refused = |text: &str| {
        let document = Document::shipped("m.toml", text);
        document.parse::<Times>("up").unwrap_err().to_string()
    };
    for (text, right) in [
        (
            "wait_ms = \"100ms\"",
            "of milliseconds, without quotes and without a unit: write wait_ms = 100.",
        ),
        ("wait_ms = \"0.3s\"", "write wait_ms = 300."),
        ("wait_ms = \"100\"", "write wait_ms = 100."),
        (
            "wait_ms = \"soon\"",
            "of milliseconds, without quotes and without a unit.",
        ),
        ("length_s = \"10m\"", "write length_s = 600."),
        ("age_days = \"12h\"", "write age_days = 0.5."),
        (
            "most_percent = \"95%\"",
            "of percent, without quotes and without a unit: write most_percent = 95.",
        ),
    ] {
        let why = refused(text);
        assert!(why.contains(right), "{text}: {why}");
    }
    assert!(!refused("wait_ms = true").contains("write"));
}
