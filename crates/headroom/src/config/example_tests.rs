//! What keeps an example in step with the configuration that it is of.

use serde::de::DeserializeOwned;
use toml::{Table, Value};

/// A key that no configuration has.
const NO_KEY: &str = "no-such-key";

/// An example with each key and table written that is commented out, but for those of these names.
pub fn written_out(example: &str, but: &[&str]) -> String {
    let mut left_out = false;
    let mut whole = String::new();
    for line in example.lines() {
        let text = line.strip_prefix("# ").filter(|rest| {
            let is_table = rest.starts_with('[');
            let name = rest.split(" = ").next().unwrap_or_default();
            let is_key = rest.contains(" = ") && !name.contains(' ');
            let but = but.contains(&name);
            if is_table {
                left_out = but;
            }
            (is_table || is_key) && !but && !left_out
        });
        left_out &= !line.starts_with('[');
        whole.push_str(text.unwrap_or(line));
        whole.push('\n');
    }
    assert_ne!(whole, example, "nothing is commented out");
    whole
}

/// The keys of a configuration that its example lacks, and the tables that have no fixed set of keys: names of the user's, or
/// one key of several.
pub fn gaps<T: DeserializeOwned>(example: &str) -> (Vec<String>, Vec<String>) {
    let whole: Table = toml::from_str(&written_out(example, &[])).unwrap();
    Value::Table(whole.clone()).try_into::<T>().map(drop).unwrap();
    let (mut missing, mut named) = (Vec::new(), Vec::new());
    let mut paths = vec![Vec::<String>::new()];
    while let Some(path) = paths.pop() {
        let mut root = whole.clone();
        let table = path
            .iter()
            .fold(&mut root, |table, key| table[key].as_table_mut().unwrap());
        for (key, _) in table.iter().filter(|(_, value)| value.is_table()) {
            paths.push([path.clone(), vec![key.clone()]].concat());
        }
        let keys: Vec<String> = table.keys().cloned().collect();
        table.insert(NO_KEY.to_owned(), true.into());
        let refused = Value::Table(root)
            .try_into::<T>()
            .map(drop)
            .map_err(|error| error.message().to_owned());
        let unknown = format!("unknown field `{NO_KEY}`, ");
        let dotted = |key: &str| [&path[..], &[key.to_owned()]].concat().join(".");
        match refused.as_ref().err().and_then(|why| why.strip_prefix(&unknown)) {
            // "expected one of `a`, `b`".
            Some(expected) => missing.extend(
                expected
                    .split('`')
                    .skip(1)
                    .step_by(2)
                    .filter(|key| !keys.iter().any(|there| there == key))
                    .map(dotted),
            ),
            None => named.push(path.join(".")),
        }
    }
    missing.sort();
    named.sort();
    (missing, named)
}

#[test]
fn a_key_that_an_example_lacks_is_found() {
    #[derive(serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Inner {
        #[serde(rename = "there")]
        _there: bool,
        #[serde(rename = "absent")]
        _absent: Option<bool>,
    }
    type Outer = std::collections::BTreeMap<String, Inner>;
    let (missing, named) = gaps::<Outer>("[a]\nthere = true\n# [b]\n# there = true\n# absent = false\n");
    assert_eq!(
        (missing, named),
        (vec!["a.absent".to_owned()], vec![String::new()])
    );
}
