//! What the view shows on screens of some sizes.

use super::*;
use headroom_control::Reason;
use headroom_units::Part;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

/// The lines of the view on a screen of this size.
fn drawn(screen: &Screen, width: u16, height: u16) -> Vec<String> {
    drawn_beside(screen, &[], width, height)
}

/// The same beside what the log says.
fn drawn_beside(screen: &Screen, log: &[HeldLine], width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| screen.draw_all(frame, log)).unwrap();
    let cells = &terminal.backend().buffer().content;
    let lines = cells.chunks(usize::from(width));
    lines
        .map(|line| line.iter().map(|cell| cell.symbol()).collect())
        .collect()
}

/// A period of a server on call that is late, with so many workers and this figure in its reason.
fn late(second: u32, workers: f64, ms: u32) -> Tick {
    let setting = headroom_units::Setting::from([
        (Lever::Concurrency, workers),
        (Lever::QueryBatch, 8.0),
        (Lever::RoundDelay, 0.0024),
    ]);
    let mut tick = Tick {
        at: Seconds::new(f64::from(second)),
        target: Some(Seconds::from_millis(100.0)),
        ..Tick::default()
    };
    tick.observation.in_force = setting;
    tick.decision.setting = setting;
    tick.decision.reasons.push(Reason {
        rule: "oncall-late".into(),
        text: format!("P99 {ms} ms > guard 80 ms"),
        numbers: Vec::new(),
        levers: Vec::new(),
    });
    tick
}

#[test]
fn late_periods_have_one_line_until_something_changes_and_all_of_it_fits_80_by_24() {
    let mut screen = Screen::default();
    for second in 1..=50 {
        screen.take(Message::Tick(Box::new(late(second, 3.0, 100 + second))));
    }
    screen.take(Message::Tick(Box::new(late(51, 2.0, 180))));
    assert_eq!(
        screen.reasons,
        [
            "  50.0 s  oncall-late: P99 150 ms > guard 80 ms",
            "  51.0 s  oncall-late: P99 180 ms > guard 80 ms"
        ]
    );
    let lines = drawn(&screen, 80, 24);
    let all = lines.join("\n");
    for shown in ["P99 150 ms > guard 80 ms", "P99 180 ms > guard 80 ms", "2.4 ms"] {
        assert!(all.contains(shown), "{shown}: {all}");
    }
    assert!(!all.contains(CUT), "{all}");
}

#[test]
fn a_screen_of_80_by_24_has_a_plot_and_whole_reasons_and_says_what_it_leaves_out() {
    let mut screen = Screen::default();
    let text = "utilisation is forecast at 0.91, above 0.85: two cores more, before latency suffers, and the cap goes up with \
                them so that they can run at full speed";
    let whole = Part::new("all", Role::Cluster)
        .with(Sensor::LatencyAtSlo, Some(0.1))
        .with(Sensor::ArrivalRate, Some(40.0))
        .with(Sensor::PowerAlwaysOn, Some(185.0))
        .with(Sensor::FailureRate, Some(0.0));
    let mut parts = vec![whole];
    parts.extend((1..=4).map(|node| Part::new(format!("n{node}"), Role::Node)));
    parts[1].trouble.push("the agent cannot be reached".to_owned());
    for second in 1..=19 {
        let mut tick = Tick {
            at: Seconds::new(f64::from(second)),
            target: Some(Seconds::from_millis(250.0)),
            percentile: Some(headroom_units::Ratio::from_percent(95.0)),
            parts: parts.clone(),
            ..Tick::default()
        };
        tick.observation.traffic = Some(headroom_control::Traffic {
            in_flight: Some(1),
            ..headroom_control::Traffic::default()
        });
        tick.decision.setting = headroom_units::Setting::from([(Lever::Cores, f64::from(second))]);
        tick.decision.reasons.push(Reason {
            rule: "scale-up".into(),
            text: text.to_owned(),
            numbers: Vec::new(),
            levers: Vec::new(),
        });
        screen.take(Message::Tick(Box::new(tick)));
    }
    let points: VecDeque<_> = (1..=19).map(|second| (f64::from(second), 100.0)).collect();
    for sensor in [Sensor::LatencyAtSlo, Sensor::ArrivalRate] {
        screen.series.insert(sensor.into(), points.clone());
    }
    let values: [(Quantity, f64); 5] = [
        (Lever::Cores.into(), 4.0),
        (Lever::Cap.into(), 50.0),
        (Lever::BatchInterval.into(), 20.0),
        (Sensor::Power.into(), 31.25),
        (Sensor::CacheHitRatio.into(), 64.0),
    ];
    screen
        .series
        .extend(values.map(|(quantity, value)| (quantity, VecDeque::from([(19.0, value)]))));
    screen.heading = Some(Heading {
        law: "seek-batch + headroom".to_owned(),
        trace: "live traffic".to_owned(),
        length: None,
        notes: Vec::new(),
    });
    let lines = drawn(&screen, 80, 24);
    let text = lines.join("\n");
    assert!(
        lines[0].contains("law seek-batch + headroom  0/9 late  0 failed  energy unknown"),
        "{text}"
    );
    let now = "4.0 cores  interval 20 ms  hit rate 64.0 %  power 31.2 W  cap 50.0 W";
    assert_eq!(lines[2].trim_end(), now, "{text}");
    assert!(lines[3].contains("Latency at P95"), "{text}");
    let plot = lines[4..12].concat();
    assert!(
        plot.chars().any(|c| ('\u{2801}'..='\u{28ff}').contains(&c)),
        "{text}"
    );
    for wanted in [
        "n1",
        "the agent cannot be reached",
        "…│",
        "Power with every server on 185.0 W",
        "parts; 4 of the plots in the record only",
        "19.0 s  scale-up:",
        "full speed",
        "6 of the reasons in the record only",
    ] {
        assert!(text.contains(wanted), "{wanted} in\n{text}");
    }
}

#[test]
fn a_run_without_an_slo_shows_its_queue_and_its_parts_and_no_latency() {
    let mut screen = Screen::default();
    screen.take(Message::Heading(Heading {
        law: "busy-time".to_owned(),
        trace: "port 80".to_owned(),
        length: Some(Seconds::new(60.0)),
        notes: Vec::new(),
    }));
    let whole = Part::new("port 80", Role::Cluster)
        .in_state("exact")
        .with(Sensor::Capacity, Some(595.0))
        .with(Sensor::ArrivalRate, Some(700.0))
        .fact("capacity", "595.0 connections/s (580.1 to 610.2)")
        .with(Sensor::QueueMean, Some(3.0))
        .with(Sensor::Backlog, Some(65.0))
        .with(Sensor::DropRatio, Some(0.0));
    let estimator = Part::new("ramp (eBPF)", Role::Estimator).in_state("unknown");
    screen.take(Message::Tick(Box::new(Tick {
        at: Seconds::new(1.0),
        parts: vec![whole, estimator],
        ..Tick::default()
    })));
    let narrow = drawn(&screen, 80, 24);
    let first = narrow.iter().find(|line| line.starts_with("│port 80")).unwrap();
    assert!(first.contains("595.0 connections/s (580.1 to 610.2)"), "{first}");
    let progress = narrow.iter().find(|line| line.contains("1 of 60 s")).unwrap();
    assert!(progress.starts_with("1 of 60 s "), "{progress}");
    let text = drawn(&screen, 160, 50).concat();
    assert!(!text.contains(" failed") && !text.contains("0 J"), "{text}");
    for wanted in [
        "law busy-time",
        "0 SYNs dropped",
        "Connection attempts, with retries: now 700.0",
        "595.0 connections/s (580.1 to 610.2)",
        "Accept queue, mean length: now 3.0",
        "backlog",
        "Drop ratio: now 0.00 %",
        "ramp (eBPF)",
    ] {
        assert!(text.contains(wanted), "{wanted} in {text}");
    }
    assert!(
        !text.contains("over the target") && !text.contains("Latency"),
        "{text}"
    );
}

#[test]
fn a_note_is_shown_whole_or_not_at_all() {
    let mut screen = Screen::default();
    let mut head = |notes: &[&str]| {
        screen.take(Message::Heading(Heading {
            law: "on-call".to_owned(),
            trace: "live traffic".to_owned(),
            length: None,
            notes: notes.iter().map(|note| (*note).to_owned()).collect(),
        }));
        let lines = drawn(&screen, 80, 24);
        [0, 1, 2].map(|row| lines[row].trim_end().to_owned())
    };
    let long = "instructions are not counted: No such file or directory (os error 2); this machine has no such counter";
    let [first, progress, _] = head(&[long]);
    assert!(
        first.starts_with("headroom  law on-call") && progress == "0 s",
        "{first}\n{progress}"
    );
    let short = "power is estimated by model";
    let [_, notes, progress] = head(&[long, short, "an idle period pays from 1.0 ms on"]);
    assert_eq!(notes, format!("{short}; an idle period pays from 1.0 ms on"));
    assert_eq!(progress, "0 s");
}

#[test]
fn the_first_periods_are_not_counted_as_late() {
    let mut screen = Screen::default();
    for second in 1..=12 {
        let mut tick = late(second, 3.0, 180);
        tick.observation.traffic = Some(headroom_control::Traffic {
            in_flight: Some(1),
            oldest_in_flight: Some(Seconds::new(0.18)),
            ..headroom_control::Traffic::default()
        });
        screen.take(Message::Tick(Box::new(tick)));
    }
    assert_eq!(screen.late.of_judged(), (2, 2));
}

/// What the view counts is what the summary of the run will: without the periods in which nobody asked, and with those that nobody saw.
#[test]
fn periods_without_requests_are_no_base_of_those_that_are_late() {
    let mut screen = Screen::default();
    screen.take(Message::Heading(Heading {
        law: "elastic".to_owned(),
        trace: "live traffic".to_owned(),
        length: None,
        notes: Vec::new(),
    }));
    for second in 1..=40 {
        let mut tick = late(second, 3.0, 180);
        // Nobody asks from the 21st on, and of the last the telemetry is lost.
        tick.telemetry_lost = second == 40;
        tick.observation.traffic = Some(headroom_control::Traffic {
            completions: u64::from(second <= 20),
            latency: (second <= 20).then(|| headroom_control::observation::Latency {
                at_slo: Seconds::from_millis(if second > 15 { 180.0 } else { 20.0 }),
                missed: false,
                distribution: None,
            }),
            ..headroom_control::Traffic::default()
        });
        screen.take(Message::Tick(Box::new(tick)));
    }
    let first = |width| drawn(&screen, width, 24).remove(0);
    assert!(first(80).contains("6/11 late"), "{}", first(80));
    let said = "6 of 11 judged periods over the target";
    assert!(first(160).contains(said), "{}", first(160));
}

#[test]
fn where_nothing_measures_latencies_the_view_says_so_and_of_no_period_that_it_is_late() {
    let mut screen = Screen::default();
    screen.take(Message::Heading(Heading {
        law: "elastic".to_owned(),
        trace: "live traffic".to_owned(),
        length: None,
        notes: Vec::new(),
    }));
    for second in 1..=20 {
        let mut tick = late(second, 3.0, 180);
        tick.is_unmeasured = true;
        tick.percentile = Some(headroom_units::Ratio::from_percent(95.0));
        tick.observation.traffic = Some(headroom_control::Traffic {
            completions: 95,
            ..headroom_control::Traffic::default()
        });
        screen.take(Message::Tick(Box::new(tick)));
    }
    for width in [80, 160] {
        let first = drawn(&screen, width, 24).remove(0);
        assert!(
            first.contains("latency unknown in 10 of 10 periods  0 failed"),
            "{first}"
        );
        assert!(
            !first.contains("late ") && !first.contains("over the target"),
            "{first}"
        );
    }
}

#[test]
fn a_class_that_misses_says_how_many_connections_do_and_that_its_figures_are_of_all() {
    let gold = Part::new("gold", Role::Class)
        .in_state("missed")
        .with(Sensor::LatencyP99, Some(0.0177))
        .with(Sensor::TargetP99, Some(0.04))
        .with(Sensor::Connections, Some(4.0))
        .with(Sensor::MissedSlo, Some(1.0));
    let row = Screen::default().row(&gold, 78).to_string();
    assert!(
        row.ends_with("1 of 4 connections over; all P99 17.7 of 40.0 ms"),
        "{row}"
    );
}

#[test]
fn of_many_servers_those_in_trouble_are_shown_and_their_figures_fit_80_columns() {
    let mut screen = Screen::default();
    let mut parts: Vec<Part> = (1..=9)
        .map(|node| {
            let mut part = Part::new(format!("web{node}"), Role::Node)
                .with(Sensor::ArrivalRate, Some(123.4))
                .with(Sensor::InFlight, Some(17.0))
                .with(Sensor::Capacity, Some(180.0));
            part.state = Some("serving".to_owned());
            part
        })
        .collect();
    parts[8].trouble.push("does not answer".to_owned());
    parts[1].trouble.push(
        "set --backend-idle 0 at headroom gateway: connections to it stay open, which is a long story"
            .to_owned(),
    );
    let tick = Tick {
        at: Seconds::new(1.0),
        target: Some(Seconds::from_millis(250.0)),
        parts,
        ..Tick::default()
    };
    screen.take(Message::Tick(Box::new(tick)));
    let lines = drawn(&screen, 80, 24);
    let row = |name: &str| lines.iter().find(|line| line.contains(name));
    for name in ["web1 ", "web5 ", "web9 "] {
        assert!(row(name).is_some(), "{name}: {lines:#?}");
    }
    assert!(row("web9 ").unwrap().contains("does not answer"));
    // A long one leaves room for what the server does meanwhile.
    let web2 = row("web2 ").unwrap();
    assert!(
        web2.contains("set --backend-idle 0 at head") && web2.contains("arrive 123"),
        "{web2}"
    );
    assert!(row("web6 ").is_none(), "{lines:#?}");
    let web1 = row("web1 ").unwrap();
    assert!(
        web1.contains("arrive 123") && web1.contains("takes 180") && !web1.contains(CUT),
        "{web1}"
    );
    assert!(
        lines.iter().any(|line| line.contains("3 of the parts")),
        "{lines:#?}"
    );
}

#[test]
fn of_the_classes_of_importance_the_one_that_is_turned_away_has_the_row() {
    let class =
        |name: &str, rate: f64| Part::new(name, Role::Importance).with(Sensor::TurnedAway, Some(rate));
    let mut parts: Vec<Part> = (1..=3)
        .map(|node| Part::new(format!("web{node}"), Role::Node))
        .collect();
    parts.extend([
        class("checkout", 0.0),
        class("everybody", 1.5),
        class("crawlers", 113.7),
    ]);
    let names = |count: usize| -> Vec<&str> {
        let parts = foremost(&parts, count).into_iter();
        parts.map(|part| part.name.as_str()).collect()
    };
    assert_eq!(names(4), ["web1", "web2", "web3", "crawlers"]);
    assert_eq!(names(5), ["web1", "web2", "web3", "everybody", "crawlers"]);
    assert_eq!(names(6)[3..], ["checkout", "everybody", "crawlers"]);
}

/// What was read again at a signal has the rows that the law's reason leaves.
#[test]
fn a_reason_that_does_not_fit_is_cut_into_the_free_rows() {
    let mut screen = Screen::default();
    for (second, read_again) in [(1, false), (2, true), (3, false)] {
        let mut tick = late(second, 3.0, 180);
        tick.decision.reasons[0].text =
            "at least 156.5/s came over the last 10 s, 2 servers take 145.0 with 10 % kept free: enough"
                .to_owned();
        if read_again {
            tick.decision.reasons.push(Reason {
                rule: "read-again".into(),
                text: format!(
                    "The gateways stay as they were, and who is taken out: {}",
                    "wrong ".repeat(40)
                ),
                numbers: Vec::new(),
                levers: Vec::new(),
            });
        }
        screen.take(Message::Tick(Box::new(tick)));
    }
    let (lines, hidden) = screen.newest_reasons(78, 4);
    let lines: Vec<String> = lines.iter().map(Line::to_string).collect();
    assert_eq!((lines.len(), hidden), (4, 2), "{lines:#?}");
    assert!(
        lines[2].contains("read-again: The gateways stay as they were"),
        "{lines:#?}"
    );
    assert!(lines[3].ends_with(CUT), "{lines:#?}");
}

/// The rows of the head of the view while the log has this to say.
fn head_with(line: &str, width: u16, height: u16) -> Vec<String> {
    let log = [HeldLine::of(line, Duration::ZERO)];
    let mut screen = Screen::default();
    screen.take(Message::Heading(Heading {
        law: "elastic".to_owned(),
        trace: "live traffic".to_owned(),
        length: None,
        notes: vec!["a note".to_owned()],
    }));
    let mut tick = late(1, 3.0, 180);
    tick.parts = (1..=4)
        .map(|node| Part::new(format!("web{node}"), Role::Node))
        .collect();
    screen.take(Message::Tick(Box::new(tick)));
    let lines = drawn_beside(&screen, &log, width, height);
    let progress = lines.iter().position(|line| line.starts_with("1 s")).unwrap();
    let head = lines[1..progress].iter();
    head.map(|line| line.trim_end().to_owned()).collect()
}

#[test]
fn a_warning_of_the_log_is_broken_into_lines_without_its_colours_and_its_time() {
    let ansi = "\u{1b}[2m2026-11-29T22:06:35.846011Z\u{1b}[0m \u{1b}[33m WARN\u{1b}[0m /etc/headroom/resize.toml:12: \
                law.elastic.boot_s: is -5: allowed is a number above 0";
    assert_eq!(
        head_with(ansi, 80, 24),
        [
            "WARN /etc/headroom/resize.toml:12: law.elastic.boot_s: is -5: allowed is a",
            "  number above 0"
        ]
    );
    assert_eq!(head_with(ansi, 160, 50).len(), 1);

    let long = format!("WARN law.nme: {}the end", "no such key ".repeat(24));
    assert!(long.len() > 300);
    let at_80 = head_with(&long, 80, 24);
    assert_eq!(at_80.len(), 4, "{at_80:#?}");
    assert!(
        at_80[0].starts_with("WARN law.nme: no such key") && at_80[3].ends_with("the end"),
        "{at_80:#?}"
    );
    let at_160 = head_with(&long, 160, 50);
    assert!(at_160.len() == 2 && at_160[1].ends_with("the end"), "{at_160:#?}");
    let endless = head_with(&"no such key ".repeat(99), 80, 24);
    assert!(endless.len() == 4 && endless[3].ends_with(CUT), "{endless:#?}");
}

#[test]
fn a_warning_and_a_newer_note_share_the_rows_of_the_log() {
    let line = |text: &str, is_warning| HeldLine {
        text: text.to_owned(),
        age: Duration::ZERO,
        is_warning,
    };
    let both = [
        line(&"wrong here ".repeat(40), true),
        line("web1: serving to draining", false),
    ];
    let rows = log_rows(&both, 80, 4);
    assert_eq!(rows.len(), 4);
    assert!(rows[2].ends_with(CUT), "{rows:#?}");
    assert_eq!(rows[3], "web1: serving to draining");
}

#[test]
fn a_capacity_is_never_shown_without_what_kind_of_number_it_is() {
    let screen = Screen::default();
    let row = |kind: &str, width: usize| {
        let part = Part::new("web1", Role::Node)
            .in_state("serving")
            .with(Sensor::ArrivalRate, Some(19.0))
            .with(Sensor::Capacity, Some(15.0))
            .fact("capacity", kind);
        screen.row(&part, width).to_string()
    };
    for (kind, narrow, wide) in [
        ("exact", "takes 15.0 /s", "Capacity 15.0 /s"),
        ("given", "takes 15.0 /s", "Capacity 15.0 /s"),
        ("about", "takes ~15.0 /s", "Capacity about 15.0 /s"),
        ("presumed", "takes ~15.0 /s", "Capacity presumably 15.0 /s"),
        ("lower-bound", "takes >=15.0 /s", "Capacity at least 15.0 /s"),
    ] {
        assert!(row(kind, 78).ends_with(narrow), "{}", row(kind, 78));
        assert!(row(kind, 158).ends_with(wide), "{}", row(kind, 158));
    }
}

#[test]
fn a_percentile_among_those_that_failed_is_said_to_be_there() {
    let mut screen = Screen::default();
    let mut tick = late(1, 4.0, 120);
    tick.observation.traffic = Some(headroom_control::observation::Traffic {
        arrivals: 100,
        completions: 60,
        failures: 40,
        latency: Some(headroom_control::observation::Latency {
            at_slo: Seconds::from_millis(200.0),
            missed: true,
            distribution: None,
        }),
        ..Default::default()
    });
    screen.keep(tick);
    let lines = drawn(&screen, 110, 40).join("\n");
    assert!(
        lines.contains(": now among those that failed, of 100 ms"),
        "{lines}"
    );
}
