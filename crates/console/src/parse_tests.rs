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
    let lacks = "service: is missing: add the table `[service]` with its keys";
    for (text, wanted) in [
        ("[slo]\nname = \"a\"\n", &[lacks][..]),
        ("\n[slo]\nname = \"a\"\n", &[lacks]),
        (
            "",
            &["slo: is missing: add the table `[slo]` with its keys", lacks],
        ),
        (
            "[slo]\n[service]\nname = \"a\"",
            &["m.toml:1: slo.name: is missing: add it to `slo`, in `[slo]`"],
        ),
        ("[slo]\nname = 1\n", &[lacks, "m.toml:2: slo.name: invalid type"]),
        ("slo.name = 1\n", &["m.toml:1: slo.name: invalid type", lacks]),
        (
            "[slo]\nnames = \"a\"\n",
            &[lacks, "m.toml:2: slo.names: unknown field `names`"],
        ),
        ("[slo\n", &["m.toml:1: "]),
    ] {
        let errors = Document::shipped("m.toml", text).parse::<File>("up").unwrap_err();
        let found: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), wanted.len(), "{text:?}: {found:?}");
        for one in wanted {
            assert!(
                found.iter().any(|found| found.contains(one)),
                "{text:?}: {found:?}"
            );
        }
    }
}

#[test]
fn every_key_that_is_wrong_is_said_and_what_follows_from_it_is_not() {
    let found = mistakes(
        "[slo]\nname = 3\nmost = 9\nlowest = 1\n[service]\nname = \"a\"\nmust = 1\n[[list]]\nname = \"b\"\nnme = 1\n[[list]]\nname = 5\n\
         [more]\n",
    );
    let wanted = [
        "m.toml:1: slo.least: is not given",
        "m.toml:2: slo.name: invalid type: integer `3`, expected a string",
        "m.toml:3: slo.most: is 9.0: it must be between 0.0 and 5.0",
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
fn a_misspelt_key_hides_no_other_mistake_of_its_table() {
    // The name is not what `mst` was to be; where it may have been, that is said once.
    let table = ["slo.most: is 9.0", "slo.least: is not given"];
    for (slip, said) in [
        ("mst = 1", &["slo.name: is missing", "slo.mst: unknown"][..]),
        ("nam = 1", &["slo.nam: unknown"]),
    ] {
        let found = mistakes(&format!("[slo]\nmost = 9\n{slip}\n[service]\nname = \"b\"\n"));
        assert_eq!(found.len(), said.len() + table.len(), "{found:?}");
        for one in said.iter().chain(&table) {
            assert!(found.iter().any(|found| found.contains(one)), "{one}: {found:?}");
        }
    }
    // Nor does a table that is misspelt hide those of the others.
    let found = mistakes("[sloo]\nname = \"a\"\n[service]\nname = 3\n");
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[1].contains("service.name: invalid type"), "{found:?}");
}

#[test]
fn the_rest_of_a_list_is_checked_where_an_entry_of_it_is_wrong() {
    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Listed {
        list: Vec<Inner>,
    }
    let mistakes = |text: &str| {
        let document = Document::shipped("m.toml", text);
        let small = |listed: &Listed, found: &mut Mistakes| {
            for (at, entry) in listed.list.iter().enumerate() {
                let key = format!("list[{at}].most");
                found.of(document.within(&[(&key, f64::from(entry.most), 0.0, 5.0)]));
            }
        };
        let errors = document.parse_checked("up", small).unwrap_err();
        errors.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    for (first, wanted) in [
        ("{ most = 1 }", "list[0].name: is missing"),
        ("{ name = 3 }", "list[0].name: invalid type"),
        ("{ nam = \"a\" }", "list[0].nam: unknown field"),
        ("5", "list[0]: invalid type"),
    ] {
        let found = mistakes(&format!(
            "list = [{first},\n  {{ name = \"b\", most = 8 }},\n  {{ name = \"c\", most = 9 }}]\n"
        ));
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].starts_with(&format!("m.toml:1: {wanted}")), "{found:?}");
        assert!(
            found[1].starts_with("m.toml:2: list[1].most: is 8.0"),
            "{found:?}"
        );
        assert!(
            found[2].starts_with("m.toml:3: list[2].most: is 9.0"),
            "{found:?}"
        );
    }
    // What is not understood of an entry is no mistake of its check too.
    assert_eq!(mistakes("list = [{ name = \"b\", most = \"9\" }]\n").len(), 1);
}

#[test]
fn what_is_missing_is_understood_as_whatever_its_key_takes() {
    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields, rename_all = "lowercase")]
    enum Kind {
        One,
    }
    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Kinds {
        #[serde(rename = "number")]
        _number: f64,
        #[serde(rename = "address")]
        _address: std::net::SocketAddr,
        #[serde(rename = "is_so")]
        _is_so: bool,
        #[serde(rename = "table")]
        _table: Option<Table>,
        #[serde(rename = "inner")]
        _inner: Inner,
    }
    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Table {
        #[serde(rename = "kind")]
        _kind: Kind,
    }
    let found = |text: &str| {
        let checked = std::cell::Cell::new(false);
        let document = Document::shipped("m.toml", text);
        let errors = document
            .parse_checked::<Kinds>("up", |_, _| checked.set(true))
            .unwrap_err();
        assert!(checked.get(), "{errors}");
        errors.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(found("").len(), 4);
    // A word that nobody knows cannot stand in: the table goes, of which no more is said.
    let said = found("number = \"no\"\n[table]\n[inner]\nname = \"a\"\n");
    assert_eq!(said.len(), 4, "{said:?}");
    assert!(
        said.iter().any(|one| one.contains("table.kind: is missing")),
        "{said:?}"
    );
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
        #[serde(rename = "percentile")]
        _percentile: Option<f64>,
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
        (
            "percentile = \"p99.9\"",
            "of percent, without quotes and without a unit: write percentile = 99.9.",
        ),
    ] {
        let why = refused(text);
        assert!(why.contains(right), "{text}: {why}");
    }
    assert!(!refused("wait_ms = true").contains("write"));
}

#[test]
fn of_very_many_mistakes_the_first_are_said() {
    let keys: String = (0..2_000)
        .map(|number| format!("unknown_{number} = 1\n"))
        .collect();
    let document = Document::shipped("m.toml", &keys);
    let error = document.parse::<File>("up").map(drop).unwrap_err();
    let text = error.to_string();
    assert_eq!(error.iter().count(), 40, "{text}");
    assert!(
        text.ends_with("\nand more, which are said once these are mended"),
        "{text}"
    );
}

#[test]
fn a_name_that_is_nearly_one_that_may_stand_there_is_suggested() {
    let of_key = |key: &str| {
        meant(&format!(
            "unknown field `{key}`, expected one of `name`, `on-call`, `reef`"
        ))
    };
    assert_eq!(of_key("oncall").as_deref(), Some("; did you mean `on-call`?"));
    assert_eq!(of_key("nane").as_deref(), Some("; did you mean `name`?"));
    assert_eq!(of_key("policy"), None);
    let unit = meant("unknown field `p99`, expected one of `p95_ms`, `p99_ms`, `p999_ms`");
    assert_eq!(unit.as_deref(), Some("; did you mean `p99_ms`?"));
    let law = meant("\"on_call\" is no law: choose one of fixed, on-call, reef");
    assert_eq!(law.as_deref(), Some("; did you mean `on-call`?"));
    assert_eq!(meant("invalid type: string \"x\", expected u32"), None);
}

#[test]
fn kinds_are_named_as_people_do_and_one_value_of_several_is_put_in_brackets() {
    assert_eq!(
        plain("invalid type: string \"x\", expected f64"),
        "invalid type: string \"x\", expected a number"
    );
    assert_eq!(
        plain("invalid value: integer `70000`, expected u16"),
        "invalid value: integer `70000`, expected a whole number from 0 to 65535"
    );
    let why = plain("invalid type: string \"user:gold\", expected a sequence");
    let place = Place(vec![Step::Key("clients".to_owned())]);
    let remedy = list_remedy(&place, &why).unwrap();
    assert!(remedy.ends_with("clients = [\"user:gold\"]"), "{remedy}");
    // A command with its arguments, and one that only a shell can take apart.
    let place = Place(vec![Step::Key("start".to_owned())]);
    for (text, wanted) in [
        (
            "/tmp/sw.sh  start thr",
            r#"start = ["/tmp/sw.sh", "start", "thr"]"#,
        ),
        ("/tmp/sw.sh", r#"start = ["/tmp/sw.sh"]"#),
        (
            "sh -c 'kill 3'",
            r#"each a text of its own, start = ["...", "..."]"#,
        ),
    ] {
        let why = plain(&format!("invalid type: string {text:?}, expected a sequence"));
        let remedy = list_remedy(&place, &why).unwrap();
        assert!(remedy.ends_with(wanted), "{remedy}");
    }
    assert_eq!(
        list_remedy(&place, &plain("invalid type: integer `3`, expected a sequence")),
        None
    );
}

/// Of several messages the last says how to learn of every key; a question keeps its mark alone.
#[test]
fn how_to_learn_of_every_key_is_said_once() {
    let hint = "`headroom up --example` prints every key with its meaning";
    let text = "[slo]\nname = 3\nmst = 1\n[service]\nname = \"a\"\n";
    let errors = Document::shipped("m.toml", text)
        .parse::<File>("up")
        .unwrap_err()
        .to_string();
    assert_eq!(errors.matches(hint).count(), 1, "{errors}");
    assert!(errors.ends_with(hint) && errors.lines().count() == 2, "{errors}");
    assert!(errors.contains("did you mean `most`? `headroom"), "{errors}");
    assert!(errors.lines().next().unwrap().ends_with("`name = 3`"), "{errors}");
}

#[test]
fn an_address_in_a_file_is_answered_with_a_right_one() {
    #[derive(Debug, Deserialize)]
    #[allow(dead_code, reason = "read for its errors")]
    struct Addresses {
        listen: std::net::SocketAddr,
        #[serde(default)]
        nameservers: Vec<std::net::SocketAddr>,
    }
    for (text, said) in [
        (
            "listen = \":80\"\n",
            "m.toml:1: listen: invalid socket address syntax, in `listen = \":80\"`; there is no address before the port: write 127.0.0.1:80",
        ),
        (
            "listen = \"127.0.0.1:1\"\nnameservers = ['10.0.0.2']\n",
            "; it has no port: write 10.0.0.2:53. `headroom",
        ),
    ] {
        let error = Document::shipped("m.toml", text)
            .parse::<Addresses>("gateway")
            .unwrap_err()
            .to_string();
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn what_is_wrong_in_a_table_of_several_kinds_is_found_in_it() {
    #[derive(Debug, Deserialize)]
    #[serde(tag = "kind", rename_all = "kebab-case")]
    enum Switch {
        Command {
            #[serde(rename = "start")]
            _start: Vec<String>,
            #[serde(default, rename = "limit_s")]
            _limit_s: f64,
        },
    }
    #[derive(Debug, Deserialize)]
    struct Powered {
        #[serde(rename = "power")]
        _power: Switch,
    }
    let text = "[power]\nkind = \"command\"\nlimit_s = \"5s\"\nstart = \"switch on\"\n";
    let document = Document::shipped("m.toml", text);
    let error = document
        .parse_checked::<Powered>("resize", |_, _| {})
        .unwrap_err()
        .to_string();
    let lines: Vec<_> = error.lines().collect();
    assert_eq!(lines.len(), 2, "{error}");
    assert!(
        lines[0].starts_with("m.toml:3: power.limit_s: invalid type: string \"5s\"")
            && lines[0].contains("write limit_s = 5"),
        "{error}"
    );
    assert!(
        lines[1].starts_with("m.toml:4: power.start: invalid type")
            && lines[1].contains("start = [\"switch\", \"on\"]"),
        "{error}"
    );
}
