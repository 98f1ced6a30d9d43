//! `[machine]`: what a machine is, whose figures say what it draws.

use headroom_console::{ConfigError, Document};
use headroom_control::FrequencyRange;
use headroom_physics::{FigureError, Machine, MachineFigures};
use headroom_units::Cores;

/// The checked figures of a machine of so many cores that stands at a key.
///
/// # Errors
/// A figure that cannot be, with its dotted key and line.
pub fn figures(
    machine: &Machine,
    document: &Document,
    key: &str,
    cores: Cores,
) -> Result<MachineFigures, ConfigError> {
    let wrong = |error: FigureError| {
        let why = format!("is {}: {}", error.value, error.expected);
        document.error(&format!("{key}.{}", error.key), why)
    };
    machine.figures(cores.get().ceil() as usize).map_err(wrong)
}

/// The same figures with the frequencies that the machine has itself, where they are a kind's: a kind says what a core draws
/// between its lowest and its highest, whichever these are.
#[must_use]
pub fn with_frequencies(
    machine: &Machine,
    mut figures: MachineFigures,
    own: Option<FrequencyRange>,
) -> MachineFigures {
    let own = own.filter(|_| !matches!(machine, Machine::Figures(_)));
    if let Some(range) = own {
        let frequency = &mut figures.processor.frequency;
        (frequency.lowest, frequency.highest) = (range.min(), range.max());
        frequency.step = range.step();
    }
    figures
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_that_cannot_be_is_named_with_its_key_and_line() {
        let four = Machine::Figures(Box::new(MachineFigures::skylake(4)));
        let mut table = toml::Table::new();
        table.insert("machine".to_owned(), toml::Value::try_from(&four).unwrap());
        let good = table.to_string();
        let error = |text: &str, cores: f64| {
            let document = Document::shipped("headroom.toml", text);
            let machine: toml::Table = text.parse().unwrap();
            let machine: Machine = machine["machine"].clone().try_into().unwrap();
            let found = figures(&machine, &document, "machine", Cores::new(cores));
            found.map(drop).unwrap_err().to_string()
        };
        let line = |text: &str, key: &str| 1 + text.lines().position(|line| line.starts_with(key)).unwrap();
        let dearer = good.replace("uncore_asleep = 4.6", "uncore_asleep = 99.0");
        let message = error(&dearer, 4.0);
        let place = format!(
            "headroom.toml:{}: machine.processor.uncore_asleep: is 99: give watts, at most the 14 W",
            line(&dearer, "uncore_asleep")
        );
        assert!(message.starts_with(&place), "{message}");
        let message = error(&good, 8.0);
        assert!(
            message.contains("machine.processor.cores: is 4: the machine has 8 cores"),
            "{message}"
        );
    }
}
