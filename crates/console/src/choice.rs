//! An argument that is one of a list that the program, not the command line, knows.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

/// Parses the name of one of these: each with its name, what help says of it, and itself.
pub fn one_of<T: Clone + Send + Sync + 'static>(
    choices: impl IntoIterator<Item = (&'static str, &'static str, T)>,
) -> impl TypedValueParser<Value = T> {
    let choices: Vec<_> = choices.into_iter().collect();
    let names = choices
        .iter()
        .map(|(name, help, _)| PossibleValue::new(*name).help(*help));
    PossibleValuesParser::new(names.collect::<Vec<_>>()).try_map(move |name| {
        let chosen = choices.iter().find(|(one, ..)| *one == name);
        chosen
            .map(|(.., choice)| choice.clone())
            .ok_or_else(|| format!("{name} is none of them"))
    })
}
