//! What SIGHUP changed of a controller's configuration: whoever has its servers after it goes by that, too.

use crate::config::controller::ControllerFile;
use headroom_control::resize::Maintenance;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What was read last of what holds as soon as it is read; the rest of the configuration is as at the start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Amendment {
    /// The gateways, by name; `None` where the run has those of its start.
    pub gateways: Option<BTreeMap<String, String>>,
    /// The servers that an operator takes out, and how.
    pub taken_out: BTreeMap<String, Maintenance>,
}

impl Amendment {
    /// Has a configuration be as it was read last.
    pub fn apply(&self, config: &mut ControllerFile) {
        if let Some(gateways) = &self.gateways {
            config.gateways.clone_from(gateways);
        }
        for (name, node) in &mut config.nodes {
            node.server.maintenance = self.taken_out.get(name).copied();
        }
    }
}

/// What an operator takes out now is taken out, whatever was read before. Somebody works on one whose table is gone.
pub fn take_out_as(config: &mut ControllerFile, now: &ControllerFile) {
    for (name, node) in &mut config.nodes {
        if let Some(of_now) = now.nodes.get(name) {
            node.server.maintenance = of_now.server.maintenance;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::controller::EXAMPLE;
    use headroom_console::Document;

    fn parsed(text: &str) -> ControllerFile {
        let document = Document::shipped("controller.toml", text);
        ControllerFile::checked(document, "controller").unwrap().0
    }

    #[test]
    fn a_configuration_is_as_it_was_read_last_and_else_as_at_the_start() {
        let text = EXAMPLE.replace("# maintenance = false", "maintenance = true");
        let mut config = parsed(&text);
        let (at_start, nodes) = (config.gateways.clone(), config.nodes.len());
        assert!(config.taken_out().contains_key("web1"));
        Amendment::default().apply(&mut config);
        assert!(config.taken_out().is_empty());
        assert_eq!(config.gateways, at_start);
        let amendment = Amendment {
            gateways: Some([("g2".to_owned(), "unix:/run/g2.sock".to_owned())].into()),
            taken_out: [
                ("web2".to_owned(), Maintenance::default()),
                ("gone".to_owned(), Maintenance::default()),
            ]
            .into(),
        };
        amendment.apply(&mut config);
        assert_eq!(config.taken_out().into_keys().collect::<Vec<_>>(), ["web2"]);
        assert_eq!(Some(&config.gateways), amendment.gateways.as_ref());
        assert_eq!(config.nodes.len(), nodes);
    }

    #[test]
    fn a_server_whose_table_is_gone_is_as_it_was() {
        let text = EXAMPLE.replace("# maintenance = false", "maintenance = true");
        let (mut config, mut now) = (parsed(&text), parsed(EXAMPLE));
        now.nodes.remove("web1");
        take_out_as(&mut config, &now);
        assert!(config.taken_out().contains_key("web1"));
        take_out_as(&mut config, &parsed(EXAMPLE));
        assert!(config.taken_out().is_empty());
    }
}
