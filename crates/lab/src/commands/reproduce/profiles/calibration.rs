//! The figures of the machines, and what each is from.

use headroom_physics::{ServingKind, StudiedService};
use headroom_units::Watts;

/// The calibration: which figure, its value, and what it is from.
pub fn lines() -> Vec<[String; 3]> {
    let mut lines = Vec::new();
    for kind in ServingKind::ALL {
        let machine = kind.machine();
        let busy = match kind {
            ServingKind::Arm => {
                "three of its four cores at the infinite loop's watts; the fourth is ksoftirqd's"
            }
            ServingKind::Xeon | ServingKind::Atom => {
                "fitted to the 100 % columns: the service at 100 % CPU is not the infinite loop"
            }
        };
        let link = match kind {
            ServingKind::Arm => "fitted: what the driver of its USB network card carries on one core",
            ServingKind::Xeon | ServingKind::Atom => "a gigabit",
        };
        let name = kind.name();
        let watts = |watts: Watts| format!("{:.1} W", watts.get());
        lines.extend([
            [
                format!("{name}: idle"),
                watts(machine.idle),
                "Section 3.1".to_owned(),
            ],
            [
                format!("{name}: link"),
                watts(machine.link),
                "Section 3.1: iperf less idle".to_owned(),
            ],
            [
                format!("{name}: all {} cores busy", machine.cores),
                watts(machine.busy),
                busy.to_owned(),
            ],
            [
                format!("{name}: link rate"),
                format!("{:.1} MB/s", machine.link_bytes_per_s / 1e6),
                link.to_owned(),
            ],
        ]);
        for service in StudiedService::ALL {
            let cost = kind.cost(service);
            let kb_us = cost.base.per_byte.get() * 1024e6;
            let mut text = format!("{:.1} us + {kb_us:.1} us/KB", cost.base.per_request.get() * 1e6);
            if cost.base.head_bytes > 0.0 {
                text.push_str(&format!(
                    ", {:.1} KB of the driver",
                    cost.base.head_bytes / cost.base.bytes_per_byte / 1024.0
                ));
            }
            lines.push([
                format!("{name}: a request to {}", service.name()),
                text,
                "fitted to the 100 % columns and the throughputs of the text".to_owned(),
            ]);
        }
    }
    lines
}
